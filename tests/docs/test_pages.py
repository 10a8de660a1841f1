"""The Python of each page runs: shortened in CI, slow ones as printed.

By default the calls of pages are compared with signatures, and pages run that
train nothing.
"""

import ast
import functools
import inspect
import itertools
import pathlib
import re

import documented_code
import held_memory
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
import slow_cases

import ftwax
from ftwax.cli import sources, tasks
from ftwax.population import evolution, exploring, population_config
from ftwax.population import state as state_lib
from ftwax.runtime import run_records, runs
from ftwax.runtime.device import train

pytestmark = pytest.mark.usefixtures('compiles_once')

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / 'docs'
PAGES = [
  path
  for folder in ('coming_from', 'how_to', 'tutorials')
  for path in sorted((DOCS / folder).glob('*.md'))
  if '```python' in path.read_text('utf-8')
] + [
  DOCS / f'{name}.md' for name in ('cli', 'coming_from', 'evolution', 'index')
]

# Those that take long even shortened.
_LONG = {
  'btgym',
  'gpu',  # tests/runtime/test_sweeps.py
  'go_on_from_a_checkpoint',  # tests/runtime/test_initial_state.py
  'loss',
  'memory',
  'pettingzoo',
  'population',  # tests/runtime/test_device_population.py
  'reading_a_run',
  'recorded_games',  # tests/runtime/test_{recorded,offline,stay_close}.py
  'scaling',
  'several_devices',
  'several_seeds',
  'sweeps',  # tests/runtime/test_sweeps.py
  'turns_and_masks',
  'use_only_the_learner',
  'use_only_the_networks',
  'your_own_game',
  'your_own_network',
}

# What trains, or plays games, which takes seconds to compile.
_TRAINS = re.compile(r'ftwax\.run\(|make_train\(|compare\(|record\(|\brun\(')

# Numbers of runs of pages that are traced, not executed: compiling takes most
# of a page's time. Other tests run what they show; slow tests run the pages.
_TRACED = {
  'atari': (0,),  # tests/agents/test_sharded_learner.py learns from frames.
  'capture_the_flag': (0,),  # tests/experiments/test_device_experiments.py
  'team_critic': (0,),  # tests/agents/test_team_critic.py
  'your_own_core': (0,),  # tests/agents/test_parts.py
  'your_own_jax_environment': (0,),  # The page's next block trains as well.
  'your_own_task': (0,),  # tests/agents/test_parts.py
}

# Pages of acme and Reverb say so below their titles.
_NEEDS_PYTHON_310 = re.compile('^# .*\n\nNeeds Python 3.10', re.M)

# Packages of the extra envs that pages need.
_NEEDS = {'atari': 'ale_py', 'pettingzoo': 'mpe2'}

# What makes a page short. Tests have several CPU devices already.
_SHORTER = (
  (r'max_num_actor_steps=[\d_]+', 'max_num_actor_steps=600'),
  (r'make\(\), [\d_]+\)', 'make(), 600)'),  # The same by position.
  (r'eval_every=[\d_]+', 'eval_every=300'),
  (r'num_updates = \d+', 'num_updates = 2'),
  (r'num_steps=250', 'num_steps=5'),
  (r'seeds=range\(3\)', 'seeds=range(1)'),
  (r"  'LSTM': functools.*\n", ''),  # Others of a comparison are left.
  (r"jax\.config\.update\('jax_num_cpu_devices'.*\n", ''),
)


def _has_exploiters(names):
  """Returns whether they meet main agents, but not each other."""
  config = population_config.PopulationConfig(4, exploits=False)
  members = evolution.members_of_traits(
    exploring.Traits((), jnp.ones((4, 1), jnp.float32))
  )
  state = state_lib.from_members(members, jax.random.PRNGKey(0), config)
  is_met = names['league'](state) > -1e5
  pair, nobody = [True, True], [False, False]
  return is_met[2:].tolist() == [pair + nobody] * 2 and is_met[:2, 2:].all()


def _changes_the_game(names):
  """Returns whether players count the new event, and a capture ends a game."""
  stay = {name: jnp.zeros(2, jnp.int32) for name in ('move', 'turn', 'tag')}

  @jax.jit
  def play(key):
    state, timestep = names['carrying'].reset(key)
    scored = state._replace(score=jnp.array([1, 0]))
    return timestep.reward, [
      names[game].step(scored, stay)[1].step_type
      for game in ('game', 'golden_goal')
    ]

  reward, steps = play(jax.random.PRNGKey(0))
  return reward.shape == (2, 14) and np.array_equal(steps, [[1, 1], [2, 2]])


def _drawn(names):
  """Returns the hyperparameters of the members of a page's run."""
  return names['result'].state.hyperparameters


# What is to hold of the names of a page, where running is not enough.
_HOLDS = {
  'capture_the_flag': _changes_the_game,
  'use_only_the_learner': lambda names: (
    names['metrics']['loss'].shape == (8,)
    and names['states'].steps.tolist() == [1] * 8
  ),
  'use_only_the_losses': lambda names: names['gradients'][0].any(),
  'deploy': lambda names: (
    names['action'].shape == () and names['actions'].shape == (4,)
  ),
  'evolution': _has_exploiters,
  'export_parameters': lambda names: len(names['arrays']) > 10,
  'log_to_your_own_place': lambda names: (
    {label for label, _ in names['rows']} >= {'train', 'evaluation'}
  ),
  'several_devices': lambda names: names['result'].counts.learner_steps > 0,
  'sweeps': lambda names: (
    [cell.returns.shape[0] for cell in names['results']] == [5, 5, 5]
  ),
  'turns_and_masks': lambda names: names['result'].counts.actor_steps > 0,
  'your_own_core': lambda names: len(_drawn(names).core.decay) == 4,
  'your_own_optimizer': lambda names: len(_drawn(names).optimizer.decay) == 4,
  'your_own_task': lambda names: (
    len(set(_drawn(names).tasks.second_value.cost.tolist())) > 1
    and (_drawn(names).tasks.longer_value.discount == np.float32(0.9)).all()
  ),
  'your_own_game': lambda names: (
    len(names['made'].players.names) == 5
    and len(list(names['run_dir'].glob('games/*.json'))) == 1
  ),
  'several_seeds': lambda names: set(names['scores']) == {'PPO', 'IMPALA'},
}


def _trace_some(numbers):
  """Returns what executes runs, but traces those of some numbers."""
  count, execute = itertools.count(), runs.execute

  def execute_or_trace(make_run, parts, *options):
    traces = next(count) in numbers
    return _trace(parts) if traces else execute(make_run, parts, *options)

  return execute_or_trace


def _trace(parts):
  """Traces what a run compiles; returns its result before the first step."""
  if parts.game is None:
    return _trace_update(parts)
  loop = train.make_loop(parts)
  state = jax.eval_shape(loop.init, parts.key)
  after, report = jax.eval_shape(functools.partial(loop.call, 1), state)
  assert jax.tree.structure(after) == jax.tree.structure(state)
  jax.eval_shape(loop.summarize, after, report)
  jax.eval_shape(loop.next_round, after)
  drawn = jax.jit(lambda key: loop.init(key).training.hyperparameters)
  training = state.training._replace(hyperparameters=drawn(parts.key))
  return runs.RunResult(pathlib.Path(), run_records.Counts(), np.nan, training)


def _trace_update(parts):
  """Traces an update, and plays a few steps by chance."""
  ftwax.check_environment(parts.experiment.environment)
  spec, network = parts.spec.environment, parts.network
  batch = random_batches.make_batch(0, spec, network, parts.experiment.agent)
  state = jax.eval_shape(parts.learner.init, parts.key)
  after, _ = jax.eval_shape(parts.learner.update, state, batch)
  assert jax.tree.structure(after) == jax.tree.structure(state)


def _marks(page):
  if _NEEDS_PYTHON_310.search(page.read_text('utf-8')):
    return [pytest.mark.python_310]
  return []


def _marks_shortened(page):
  trains = any(map(_TRAINS.search, documented_code.read_blocks(page)))
  short = [] if page.stem in _LONG else [page]
  quick = [] if trains else short
  return [*_marks(page), *slow_cases.marks(page, quick, ci=short)]


def _code(page, directory):
  """Returns the Python of a page, and writes its other files."""
  if page.stem in _NEEDS:
    pytest.importorskip(_NEEDS[page.stem], reason='the extra envs is not there')
  text = page.read_text('utf-8')
  for name, content in re.findall(r'```js title="(.*?)"\n(.*?)```', text, re.S):
    (directory / name).write_text(content)
  return '\n'.join(documented_code.read_blocks(page))


def test_settings_are_those_of_recorded_runs():
  docs = ROOT / 'docs'
  results = (docs / 'results.md').read_text('utf-8')
  page = (docs / 'how_to' / 'settings.md').read_text('utf-8')
  row = r'^\| .*? \| `([\w.:-]+).*?` \| (\S+) \| (.*?) \|'
  rows = re.findall(row, page, re.M)
  assert len(rows) > 5
  for program, steps, scores in rows:
    assert program in (*tasks.TASKS, *sources.experiments())
    numbers = re.findall(r'-?[\d.]+', scores.partition(' (')[0])
    line = '.*?'.join(map(re.escape, [steps, *numbers]))
    assert re.search(line, results), (program, line)


def test_there_are_pages():
  assert len(PAGES) > 10
  assert set(_HOLDS) | set(_NEEDS) | set(_TRACED) <= {
    page.stem for page in PAGES
  }


@pytest.mark.parametrize(
  'page',
  [page for page in PAGES if page.parent.name == 'tutorials'],
  ids=lambda page: page.stem,
)
def test_the_notebook_of_a_page_is_its_execution(page):
  jupytext = pytest.importorskip(
    'jupytext', reason='the extra dev is not there'
  )
  cells = jupytext.read(page.with_suffix('.ipynb')).cells
  of_page = jupytext.read(page).cells
  assert [(cell.cell_type, cell.source) for cell in cells] == [
    (cell.cell_type, cell.source) for cell in of_page
  ], f'run `uv run --extra docs docs/execute.py {page.stem}`'
  code = [cell for cell in cells if cell.cell_type == 'code']
  assert [cell.source for cell in code] == [
    block.strip() for block in documented_code.read_blocks(page)
  ]
  counts = [cell.execution_count for cell in code]
  assert counts == list(range(1, len(code) + 1))
  outputs = [output for cell in code for output in cell.outputs]
  assert outputs
  for output in outputs:
    assert output.get('name') != 'stderr' and '/tmp' not in str(output)


def _calls(code):
  """Yields the calls of the library in a page: its name, and the call."""
  tree, paths = ast.parse(code), {'ftwax': 'ftwax'}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom):
      for alias in node.names:
        paths[alias.asname or alias.name] = f'{node.module}.{alias.name}'
  for node in ast.walk(tree):
    if isinstance(node, ast.Call):
      root, *names = ast.unparse(node.func).split('.')
      path = '.'.join([paths.get(root, root), *names])
      if path.startswith('ftwax.') and callable(found := _find(path)):
        yield found, node


def _find(path):
  """Returns what a path in the library names."""
  found, (_, *names) = ftwax, path.split('.')
  for name in names:
    found = getattr(found, name, None)
  return found


def _check_call(function, call):
  """Raises a TypeError unless the function takes such arguments."""
  if any(isinstance(value, ast.Starred) for value in call.args):
    return
  keywords = {word.arg: None for word in call.keywords if word.arg}
  is_part = len(keywords) < len(call.keywords)  # Others come by `**`.
  signature = inspect.signature(function)
  bind = signature.bind_partial if is_part else signature.bind
  bind(*call.args, **keywords)


@pytest.mark.parametrize(
  'page',
  [
    pytest.param(page, id=f'{page.parent.name}-{page.stem}')
    for page in PAGES
    if not _marks(page)
  ],
)
def test_calls_have_arguments_that_are_there(page):
  code = '\n'.join(documented_code.read_blocks(page))
  for function, call in _calls(code):
    try:
      _check_call(function, call)
    except TypeError as error:
      raise AssertionError(f'{ast.unparse(call)}: {error}') from error


def test_wrong_calls_are_found():
  code = 'from ftwax.agents import ppo\nppo.PPOConfig({})\nx.run(1)'
  assert not list(_calls(code.replace('from ftwax', 'from x')))
  (found,) = _calls(code.format('batch_size=3'))
  _check_call(*found)
  (found,) = _calls(code.format('batchsize=3'))
  with pytest.raises(TypeError, match='batchsize'):
    _check_call(*found)


# PettingZoo's own way to make its environments.
@pytest.mark.filterwarnings('ignore:The old environment creation API')
@pytest.mark.parametrize(
  'page',
  [
    pytest.param(
      page,
      id=page.stem,
      marks=_marks_shortened(page),
    )
    for page in PAGES
  ],
)
def test_code_runs_shortened(page, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  code = _code(page, tmp_path)
  for pattern, replacement in _SHORTER:
    code = re.sub(pattern, replacement, code)
  numbers = _TRACED.get(page.stem, ())
  monkeypatch.setattr(runs, 'execute', _trace_some(numbers))
  names: dict = {'__name__': 'page'}
  exec(compile(code, str(page), 'exec'), names)
  assert _HOLDS.get(page.stem, lambda _: True)(names)
  names.clear()
  held_memory.free()  # Pages have little in common.


@pytest.mark.slow
@pytest.mark.parametrize(
  'page',
  [pytest.param(page, id=page.stem, marks=_marks(page)) for page in PAGES],
)
def test_code_runs_as_printed(page, tmp_path):
  # But for millions of steps, which take hours.
  code = re.sub(r'\d+_000_000', '20_000', _code(page, tmp_path))
  documented_code.run(code, tmp_path, timeout_s=850)
