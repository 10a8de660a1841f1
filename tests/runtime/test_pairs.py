"""Every agent with every core, task and runtime, in pairs.

An update of each agent with each core is traced, which finds what does not fit,
and one run is executed for each agent, in which all tasks and runtimes occur;
some of both in CI alone. Slow tests execute each pair as a short run that is
resumed, and trace each triple of agent, core and task.
"""

import itertools

import in_process
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
import slow_cases
from dm_env import specs

from ftwax import types
from ftwax.agents import named
from ftwax.agents.actor_critic import tasks
from ftwax.environments import functional, games
from ftwax.networks import cores, torsos
from ftwax.records import checkpoints, recorded_games
from ftwax.replay import replay_options
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare, runs
from ftwax.runtime.distributed import runner

pytestmark = pytest.mark.usefixtures('compiles_once')

_MEMORY = cores.Memory(num_slots=3, word_size=2, num_reads=1)
CORES = {
  **{name: core.with_size(8) for name, core in cores.NAMED.items()},
  'dnc': cores.DNC(8, _MEMORY),
  'rpth_dnc': cores.RPTH(8, memory=_MEMORY),
  'layer_norm_lstm': cores.LSTM(8, layer_norm=True, dropout=0.1),
  'stacked_gru': cores.StackedLSTM((8, 8), layer=cores.GRU()),
}
TASKS = ('none', *tasks.NAMED)
RUNTIMES = ('device', 'local', 'distributed')
FACTORS = (tuple(named.AGENTS), tuple(CORES), TASKS, RUNTIMES)

SPEC = types.EnvironmentSpec(
  observations={
    'frame': specs.BoundedArray((16, 16), np.uint8, 0, 255, 'frame'),
    # An RL2 agent needs it, for others it is a number like any.
    'episode_start': specs.BoundedArray((), np.int8, 0, 1, 'start'),
  },
  actions=specs.DiscreteArray(2, np.int32, 'action'),
  rewards=specs.BoundedArray((), np.float32, 0, 1, 'reward'),
  discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
)


def make_environment():
  """Makes episodes of three steps, with frames that action 1 brightens."""

  def observe(step, action):
    frame = jnp.full((16, 16), 100 * action, jnp.uint8)
    return {'frame': frame, 'episode_start': (step == 0).astype(jnp.int8)}

  def reset(key):
    del key
    step = jnp.zeros((), jnp.int32)
    return step, functional.restart(observe(step, step))

  def step(state, action):
    state = state + 1
    reward = action.astype(jnp.float32)
    return state, functional.transition(
      reward, observe(state, action), is_terminal=state == 3
    )

  return functional.FunctionalEnvironment(SPEC, reset, step)


# Agents with action values, which learn no policy and no value beside them.
OF_VALUES = {
  name for name, kind in named.AGENTS.items() if kind.learns_action_values
}


# Tasks that learn a policy or a value.
OF_POLICIES = {'value_replay', 'off_policy', 'clone', 'stay_close'}


def fits(case):
  """Returns whether an agent can be made so: only an RPTH has latents."""
  if OF_VALUES & set(case) and OF_POLICIES & set(case):
    return False
  return 'latent_kl' not in case or set(case) & {'rpth', 'rpth_dnc'}


def make_cover():
  """Returns cases of which each pair of values is part, greedily."""
  pairs = {
    pair
    for one, other in itertools.combinations(FACTORS, 2)
    for pair in itertools.product(one, other)
    if len(pair) == len(set(pair))
  }
  pairs -= {
    (core, 'latent_kl') for core in CORES if not core.startswith('rpth')
  }
  pairs -= set(itertools.product(OF_VALUES, OF_POLICIES))
  cases = [case for case in itertools.product(*FACTORS) if fits(case)]
  cover = []
  while pairs:
    best = max(cases, key=lambda case: len(pairs & _pairs(case)))
    cover.append(best)
    pairs -= _pairs(best)
  return cover


def _pairs(case):
  return set(itertools.combinations(case, 2))


COVER = make_cover()


def make_agent(agent, core, *names):
  """Makes an agent that is quick to compile, with tasks by their names."""
  task_entries = {
    'pixel_control': tasks.PixelControl(entry='frame', cell_size=8)
  }
  kind = named.AGENTS[agent]
  options = {
    'num_minibatches': 1,
    'num_epochs': 1,
    'replay': replay_options.Replay(capacity=4),
  }
  if kind.learns_from_replay:
    replay = replay_options.Prioritized(
      capacity=8, min_size=4, samples_per_insert=1.0
    )
    options = {'replay': replay}
  return kind(
    core=CORES[core],
    torso=torsos.Torso(hidden_sizes=(3,), entries={'frame': 'mlp'}),
    tasks=tuple(
      task_entries.get(name, name) for name in names if name != 'none'
    ),
    sequence_length=4,
    batch_size=2,
    **options,
  )


@pytest.mark.parametrize(
  'rest', [False, pytest.param(True, marks=pytest.mark.ci)]
)
@pytest.mark.parametrize('agent', named.AGENTS)
def test_every_agent_is_traced_with_every_core(agent, rest, key):
  """By default with two or three, so that each core has an agent."""
  place = tuple(named.AGENTS).index(agent)
  for i, core in enumerate(CORES):
    if rest == ((i - place) % len(named.AGENTS) > 0):
      _trace(make_agent(agent, core), key)


@pytest.mark.slow
@pytest.mark.parametrize('core', CORES)
@pytest.mark.parametrize('agent', named.AGENTS)
def test_every_triple_is_traced(agent, core, key):
  for task in filter(lambda task: fits((core, task)), TASKS):
    _trace(make_agent(agent, core, task), key)


def _trace(config, key):
  """Asserts that an update takes and returns the same kind of state."""
  network = config.make_network(SPEC)
  learner = config.make_learner_core(network, SPEC)
  batch = random_batches.make_batch(0, SPEC, network, config)
  before = jax.eval_shape(learner.init, key)
  after, metrics = jax.eval_shape(learner.update, before, batch)
  assert jax.tree.structure(after) == jax.tree.structure(before)
  for new, old in zip(
    jax.tree.leaves(after), jax.tree.leaves(before), strict=True
  ):
    assert (new.shape, new.dtype) == (old.shape, old.dtype)
  assert metrics['loss'].shape == ()


def _record(directory):
  """Returns a folder of games of whoever plays by chance."""
  folder = directory / 'recorded'
  if not folder.exists():
    shape = (9, 2)
    streams = types.Streams(
      random_batches.make_timesteps(0, SPEC, shape),
      np.random.default_rng(0).integers(0, 2, shape, np.int32),
    )
    spec = games.GameSpec(SPEC, (0,), ('reward',))
    recorded_games.append(folder, spec, streams)
  return str(folder)


def _teach(directory):
  """Returns the folder of a run that has hardly learned."""
  folder = directory / 'teacher'
  if not folder.exists():
    _run(('ppo', 'gru', 'none', 'device'), folder, 8)
  return str(folder)


def _run(case, directory, num_steps, resume=False):
  agent, core, task, runtime = case
  made = make_agent(agent, core, task)
  if task == 'stay_close':
    frozen = tasks.StayClose(run=_teach(directory.parent))
    made = made.replace(tasks=(frozen,))
  experiment = experiment_lib.ExperimentConfig(
    agent=made,
    environment=make_environment(),
    max_num_actor_steps=num_steps,
    num_environments=2,
    checkpointing=checkpoints.CheckpointingConfig(float('inf')),
    name='pairs',
    demonstrations=_record(directory.parent) if task == 'clone' else None,
  )
  if runtime != 'distributed':
    return runs.run_experiment(
      experiment, runtime=runtime, run_dir=directory, resume=resume
    ).state
  return runner.run_with(
    in_process.InProcess,
    prepare.prepare(experiment),
    runs.open_run_directory(experiment, directory, resume),
    resume=resume,
  ).state


def _check(case, directory):
  """Runs two updates, and two or more after a resumption."""
  before = _run(case, directory, 16)
  # In a new replay, two trajectories of each actor come before what is learned.
  num_steps = 48 if case[-1] == 'distributed' else 32
  after = _run(case, directory, num_steps, resume=True)
  for leaf in jax.tree.leaves(after.params):
    assert np.all(np.isfinite(leaf))
  assert np.all(np.asarray(after.steps) > np.asarray(before.steps))
  assert not np.any(after.skipped)
  moved = jax.tree.map(lambda x, y: np.any(x != y), after.params, before.params)
  assert any(jax.tree.leaves(moved))


# A case of each agent, in which all tasks and runtimes occur; new tasks have
# cases of their own.
FIRST = [
  ('a2c', 'lstm', 'none', 'device'),
  ('a3c', 'gru', 'pixel_control', 'local'),
  ('ftw', 'lru', 'reward_prediction', 'distributed'),
  ('impala', 'min_gru', 'value_replay', 'device'),
  ('ppo', 'rpth', 'latent_kl', 'local'),
  ('pqn', 'gru', 'none', 'device'),
  ('r2d2', 'dnc', 'pixel_control', 'device'),
  ('r2d2', 'lstm', 'reward_prediction', 'local'),
  ('r2d2', 'gru', 'none', 'distributed'),
  ('rl2', 'feed_forward', 'none', 'local'),
  ('unreal', 'stacked_lstm', 'off_policy', 'distributed'),
]
# Agents whose losses and runtimes others have, and those with runs of their own
# in test_replayed_runs.py and test_stay_close.py.
IN_CI = {'a2c', 'a3c', 'impala', 'r2d2', 'stay_close', 'unreal'}
FIRST += [
  ('ppo', 'lstm', task, 'device')
  for task in TASKS
  if task not in {task for _, _, task, _ in FIRST}
]


def test_the_cases_have_each_value_and_each_pair():
  for i, factor in enumerate(FACTORS):
    if factor != FACTORS[1]:
      assert {case[i] for case in FIRST} == set(factor)
  pairs = set().union(*map(_pairs, COVER))
  for one, other in itertools.combinations(FACTORS, 2):
    for pair in itertools.product(one, other):
      if pair not in pairs:
        # Those that cannot be made, and are refused.
        assert not fits(pair)
        first, task = pair
        made = (first, 'lstm') if first in OF_VALUES else ('ppo', first)
        with pytest.raises(ValueError, match=task):
          make_agent(*made, task).make_network(SPEC)


@pytest.mark.parametrize(
  'case',
  slow_cases.cases(FIRST, [case for case in FIRST if not IN_CI & set(case)]),
  ids='-'.join,
)
def test_a_run_of_each_agent_learns_and_is_resumed(case, tmp_path):
  _check(case, tmp_path / 'run')


@pytest.mark.slow
@pytest.mark.parametrize(
  'case', [case for case in COVER if case not in FIRST], ids='-'.join
)
def test_a_run_of_each_pair_learns_and_is_resumed(case, tmp_path):
  _check(case, tmp_path / 'run')
