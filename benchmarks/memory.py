r"""Compares recurrent cores on tasks that need memory.

Each cell of the tables is one command, which goes on with an unfinished run:

    uv run benchmarks/memory.py learn --task=recall_100 --core=lru
    uv run benchmarks/memory.py cut --task=copying --core=rpth
    uv run benchmarks/memory.py speed --core=lru --length=1024

`all` does every cell of the comparison that is missing, `table` prints what
there is, `profile` draws statistics over its seeds and tasks (`--extra
benchmarks`), and `plot` the curves of all trainings in `--directory`.
Networks have about the parameters of one with an LSTM of `--units`.

`learn` trains PPO with several seeds at once, in one compiled program. Options
are those of `PPOConfig.long_memory`; `--set=name=value` changes one. Scores are
mean returns of the episodes in each twentieth of the steps; `--stop_at` ends a
run once all seeds have a score. A cell's score is that of the last tenth.

`cut` plays on with what `learn` has trained, without learning, and with the
slow core of a hierarchy as it was, ticking at each step, only at the first step
of an episode, or with all its parameters zero.

`speed` times acting, and the gradient of an unroll of four sequences, in pairs
with an LSTM: the two are called in turn. Memory is what XLA allocates for it.

Seconds are CPU time of the process, for runs on one core (`taskset -c 0`).
Results are kept in `--directory`.
"""

import argparse
import ast
import bisect
import functools
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import common
import jax
import jax.numpy as jnp
import memory_tasks as tasks
import numpy as np
import seeds
from matplotlib import pyplot as plt

import ftwax
from ftwax import types
from ftwax.agents import ftw, ppo
from ftwax.environments import (
  copying,
  functional,
  memory_chain,
  recall,
)
from ftwax.networks import cores

_HIERARCHIES = ('rpth', 'rpth_dnc')

_CORES = (
  'feed_forward',
  'lstm',
  'gru',
  'lru',
  'min_gru',
  'gtrxl',
  *_HIERARCHIES,
)

# That of `rpth_dnc`, as in `experiments/ftw_memory.py`.
_MEMORY = cores.Memory(num_slots=16, word_size=16, num_reads=1)

# Tasks of the comparison, in the order in which `all` does them.
_COMPARED = (
  'copying',
  'repeat_previous_easy',
  'recall_by_key',
  't_maze_100',
  'count_recall_easy',
  'cart_pole_easy',
  'recall_30',
  'noisy_recall_100',
  'repeat_previous_medium',
  'autoencode_easy',
  'concentration_easy',
)

# Of these, those chosen for the hierarchies: storage by order and by content,
# for which the DNC was made, and a lasting goal, for which the slow core was.
_CHOSEN = ('copying', 'recall_by_key', 't_maze_100')

# Lengths of unrolls that `all` times.
_LENGTHS = (20, 128, 1024)

# Sequences of an update in `speed`.
_NUM_SEQUENCES = 4

# Parts into which a run is split, each a point of its curve.
_NUM_PARTS = 20

# Of the tasks of POPGym.
_DIFFICULTIES = ('easy', 'medium', 'hard')


class _Task(NamedTuple):
  """A task.

  Attributes:
    make: makes the environment.
    length: steps of an episode.
    chance: mean return of random actions, or about that; the best is 1.
  """

  make: Callable[[], functional.FunctionalEnvironment]
  length: int
  chance: float


_TASKS: Mapping[str, _Task] = {
  **{
    f'recall_{delay}': _Task(
      functools.partial(memory_chain.make, delay), delay + 1, 0.0
    )
    for delay in (30, 100, 300, 1000)
  },
  **{
    f'noisy_recall_{delay}': _Task(
      functools.partial(tasks.long_recall, delay), delay + 1, 0.25
    )
    for delay in (30, 100, 300, 1000)
  },
  **{
    f't_maze_{delay}': _Task(
      functools.partial(tasks.long_recall, delay, num_goals=2, noise_size=0),
      delay + 1,
      0.5,
    )
    for delay in (100, 1000)
  },
  'copying': _Task(copying.make, 20, 0.25),
  'recall_by_key': _Task(recall.make, 12, 0.25),
  'repeat_previous_easy': _Task(tasks.repeat_previous, 51, -0.5),
  'repeat_previous_medium': _Task(
    functools.partial(tasks.repeat_previous, 2, 32), 103, -0.5
  ),
  'repeat_previous_hard': _Task(
    functools.partial(tasks.repeat_previous, 3, 64), 155, -0.5
  ),
  **{
    f'count_recall_{difficulty}': _Task(
      functools.partial(tasks.count_recall, *sizes),
      52 * sizes[0] - 1,
      -0.9,
    )
    for difficulty, sizes in zip(
      _DIFFICULTIES, ((1, 2), (2, 4), (4, 13)), strict=True
    )
  },
  **{
    f'autoencode_{difficulty}': _Task(
      functools.partial(tasks.autoencode, num_decks), 104 * num_decks - 1, -0.5
    )
    for num_decks, difficulty in enumerate(_DIFFICULTIES, start=1)
  },
  **{
    f'concentration_{difficulty}': _Task(
      functools.partial(tasks.concentration, *sizes), 104 * sizes[0], -0.8
    )
    for difficulty, sizes in zip(
      _DIFFICULTIES, ((1, 2), (2, 2), (1, 13)), strict=True
    )
  },
  **{
    f'cart_pole_{difficulty}': _Task(
      functools.partial(tasks.stateless_cart_pole, num_steps),
      num_steps,
      0.1,
    )
    for difficulty, num_steps in zip(
      _DIFFICULTIES, (200, 400, 600), strict=True
    )
  },
}


def _num_parameters(config: ppo.PPOConfig, spec: Any) -> int:
  params = jax.eval_shape(config.make_network(spec).init, jax.random.PRNGKey(0))
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def _with_size(
  config: ppo.PPOConfig, core: str, size: int, slow_period: int
) -> ppo.PPOConfig:
  """Returns the config with a core of a number of units."""
  length = config.core.memory_length
  hierarchy = cores.RPTH(
    cores.LSTM(size, memory_length=length),
    memory=_MEMORY,
    slow_period=slow_period,
    noise_scale=0.0,
  )
  made = ftw.named_core(core, hierarchy)
  if isinstance(made, cores.GTrXL):
    # As far back as the start of an episode, or the default.
    window = min(made.window, config.sequence_length // 2)
    made = made.replace(window=window)
  elif hasattr(made, 'memory_length'):
    made = made.replace(memory_length=length)
  return config.replace(core=made)


def _with_core(
  config: ppo.PPOConfig,
  core: str,
  num_units: int,
  spec: Any,
  slow_period: int = cores.RPTH.slow_period,
) -> ppo.PPOConfig:
  """Returns the config with a core of about the size of an LSTM."""
  wanted = _num_parameters(_with_size(config, 'lstm', num_units, 1), spec)
  step = 4 if core in _HIERARCHIES else 8
  configs = [
    _with_size(config, core, size, slow_period)
    for size in range(8, 3 * num_units, step)
  ]
  count = functools.cache(lambda i: _num_parameters(configs[i], spec))
  above = bisect.bisect_left(range(1, len(configs) - 1), wanted, key=count) + 1
  return configs[min(above - 1, above, key=lambda i: abs(count(i) - wanted))]


def _make_config(args: argparse.Namespace) -> ppo.PPOConfig:
  options = {}
  for pair in args.set:
    name, value = pair.split('=', 1)
    options[name] = ast.literal_eval(value)
  return ppo.PPOConfig.long_memory(_TASKS[args.task].length, **options)


class _Cell:
  """Files of a run: its curve, and the state after the last part."""

  def __init__(self, args: argparse.Namespace, command: str = 'learn'):
    kind = [] if command == 'learn' else [command]
    name = '-'.join(
      [args.task, args.core, str(args.num_steps), *kind, *args.set]
    )
    directory = pathlib.Path(args.directory)
    directory.mkdir(parents=True, exist_ok=True)
    self._curve = directory / f'{name}.jsonl'
    self._state = directory / f'{name}.npz'

  def read(self) -> list[dict[str, Any]]:
    """Returns the rows of the curve."""
    if not self._curve.exists():
      return []
    return [json.loads(row) for row in self._curve.read_text().splitlines()]

  def load(self, state: Any) -> tuple[Any, list[str]]:
    """Returns the saved state, or the given one, and the curve up to it."""
    if not self._state.exists():
      return state, []
    saved = np.load(self._state)
    leaves, treedef = jax.tree.flatten(state)
    leaves = [saved[str(i)] for i in range(len(leaves))]
    return treedef.unflatten(leaves), saved['curve'].tolist()

  def save(self, state: Any, curve: list[str]) -> None:
    """Replaces the state, with the curve up to it, and then the curve."""
    leaves = map(np.asarray, jax.tree.leaves(state))
    draft = self._state.with_suffix('.draft.npz')
    arrays = {str(i): leaf for i, leaf in enumerate(leaves)}
    np.savez(draft, curve=curve, **arrays)
    draft.replace(self._state)
    self._curve.write_text('\n'.join(curve))


def _make_training(
  args: argparse.Namespace, **options: Any
) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
  """Returns the first state of all seeds, and a part of a training."""
  environment = _TASKS[args.task].make()
  config = _with_core(
    _make_config(args), args.core, args.units, environment.spec, **options
  )
  init, train = ftwax.make_train(
    ftwax.ExperimentConfig(
      agent=config,
      environment=environment,
      max_num_actor_steps=args.num_steps // _NUM_PARTS,
      num_environments=config.batch_size,
    )
  )
  keys = jax.vmap(jax.random.PRNGKey)(np.arange(args.num_seeds))
  state = jax.jit(jax.vmap(init))(keys)
  return state, jax.jit(jax.vmap(train), donate_argnums=0).lower(
    state
  ).compile()


def _mean_returns(metrics: Mapping[str, types.Array]) -> Any:
  """Returns the mean over the episodes of each seed."""
  # [seeds, iterations, 1]
  counts = np.asarray(metrics['num_episodes'])
  returns = np.nan_to_num(np.asarray(metrics['episode_return'])) * counts
  return returns.sum((1, 2)) / np.maximum(counts.sum((1, 2)), 1)


def learn(args: argparse.Namespace) -> None:
  """Trains a core on a task, from where it was left."""
  state, train = _make_training(args)
  cell = _Cell(args)
  state, curve = cell.load(state)

  def go_on(state: Any, part: int) -> tuple[Any, int, Any]:
    state, metrics = train(state)
    num_steps = int(np.sum(metrics['num_steps'][0]))
    return state, num_steps, _mean_returns(metrics)

  _do_parts(cell, args.stop_at, go_on, state, curve)


# Periods at which `cut` runs a slow core: at its own, at each step, and only at
# the first step of an episode.
_PERIODS = {
  'intact': cores.RPTH.slow_period,
  'each step': 1,
  'first step': 2**30,
  'zero': cores.RPTH.slow_period,
}


def cut(args: argparse.Namespace) -> None:
  """Plays with a trained hierarchy whose slow core is cut."""
  rows, cell = [], _Cell(args)
  if not cell.read():
    raise SystemExit(
      f'{args.directory} must hold a run of {args.core} on {args.task}; use'
      ' `learn` first.'
    )
  for name, period in _PERIODS.items():
    state, train = _make_training(args, slow_period=period)
    state, _ = cell.load(state)
    members = state.training
    if name == 'zero':
      members = members._replace(params=_without_slow_core(members.params))
    members = members._replace(
      hyperparameters=members.hyperparameters._replace(
        learning_rate=jnp.zeros_like(members.hyperparameters.learning_rate)
      )
    )
    population = state.population._replace(members=members)
    _, metrics = train(state._replace(population=population))
    rows.append([name, _mean_returns(metrics).tolist()])
    print(rows[-1], flush=True)
  _write(args, f'cut-{args.task}-{args.core}', rows)


def _without_slow_core(params: Any) -> Any:
  """Sets all parameters of the slow core to zero."""
  return {
    module: jax.tree.map(jnp.zeros_like, leaves)
    if 'level_1' in module
    else leaves
    for module, leaves in params.items()
  }


def _write(args: argparse.Namespace, name: str, value: Any) -> None:
  directory = pathlib.Path(args.directory)
  directory.mkdir(parents=True, exist_ok=True)
  (directory / f'{name}.json').write_text(json.dumps(value))


def _do_parts(
  cell: _Cell,
  stop_at: float,
  go_on: Callable[[Any, int], tuple[Any, int, Any]],
  state: Any,
  curve: list[str],
) -> None:
  """Does the rest of a run; `go_on` returns a part's steps and scores."""
  total_steps = json.loads(curve[-1])['steps'] if curve else 0
  for part in range(len(curve), _NUM_PARTS):
    before = time.process_time()
    state, num_steps, scores = go_on(state, part)
    total_steps += num_steps
    row = {
      'steps': total_steps,
      'returns': np.asarray(scores).tolist(),
      'seconds': time.process_time() - before,
    }
    print(row, flush=True)
    curve.append(json.dumps(row))
    cell.save(state, curve)
    if min(row['returns']) >= stop_at:
      break


class _Calls(NamedTuple):
  """Calls of a core.

  Attributes:
    functions: acting and the gradient, compiled.
    num_bytes: what the gradient keeps meanwhile.
  """

  functions: Mapping[str, Callable[[], Any]]
  num_bytes: int


def _make_calls(core: str, num_units: int, length: int) -> _Calls:
  spec = tasks.long_recall().spec
  options = ppo.PPOConfig(sequence_length=2 * length)
  config = _with_core(options, core, num_units, spec)
  network = config.make_network(spec)
  key = jax.random.PRNGKey(0)
  params, values = network.init(key), config.sample_hyperparameters(key)

  def make_inputs(*shape: int) -> types.NetworkInput:
    return types.NetworkInput(
      jax.random.normal(key, (*shape, *spec.observations.shape)),
      jnp.zeros(shape, jnp.int32),
      jnp.zeros(shape),
    )

  def loss(params: Any, inputs: Any, start: types.Array) -> types.Array:
    state = network.initial_state(start.shape[1])
    output, _ = network.unroll(params, values, None, inputs, start, state)
    return jnp.mean(jnp.square(output.logits) + output.value[..., None])

  act = jax.jit(functools.partial(network.apply, params, values, None))
  batch = (
    make_inputs(length, _NUM_SEQUENCES),
    jax.random.bernoulli(key, 0.01, (length, _NUM_SEQUENCES)),
  )
  update = jax.jit(jax.grad(loss)).lower(params, *batch).compile()
  functions = {
    'act': functools.partial(act, make_inputs(1), network.initial_state(1)),
    'update': functools.partial(update, params, *batch),
  }
  return _Calls(functions, update.memory_analysis().temp_size_in_bytes)


def speed(args: argparse.Namespace) -> None:
  """Times a core and an LSTM in turn."""
  calls = {
    core: _make_calls(core, args.units, args.length)
    for core in ('lstm', args.core)
  }
  row = {
    'core': args.core,
    'units': args.units,
    'length': args.length,
    'update_mb': 1e-6 * calls[args.core].num_bytes,
    'update_lstm_mb': 1e-6 * calls['lstm'].num_bytes,
  }
  for name in ('act', 'update'):
    seconds: dict[str, list[float]] = {core: [] for core in calls}
    for pair in range(args.num_pairs + 1):
      for core, (functions, _) in calls.items():
        before = time.process_time()
        jax.block_until_ready(functions[name]())
        if pair:  # The first call compiles.
          seconds[core].append(time.process_time() - before)
    ratios = [
      ours / lstm
      for lstm, ours in zip(seconds['lstm'], seconds[args.core], strict=True)
    ]
    row |= {
      f'{name}_ms': 1e3 * min(seconds[args.core]),
      f'{name}_lstm_ms': 1e3 * min(seconds['lstm']),
      f'{name}_ratio': statistics.median(ratios),
    }
  print(common.machine_line(), row, sep='\n')
  _write(args, _speed_name(args.core, args.length), row)


def _speed_name(core: str, length: int) -> str:
  return f'speed-{core}-{length}'


def do_all(args: argparse.Namespace) -> None:
  """Does the cells of the comparison that are missing."""
  directory = pathlib.Path(args.directory)
  for task, core in _cells():
    cell = _with(args, task=task, core=core)
    if len(_Cell(cell).read()) < _NUM_PARTS:
      print(task, core, flush=True)
      learn(cell)
      jax.clear_caches()
  for length in _LENGTHS:
    for core in _CORES:
      if not (directory / f'{_speed_name(core, length)}.json').exists():
        speed(_with(args, core=core, length=length))
        jax.clear_caches()


def _cells() -> Iterable[tuple[str, str]]:
  """Yields the cells of the comparison, the most telling ones first."""
  cheap = [
    core
    for core in _CORES
    if core not in (*_HIERARCHIES, 'gtrxl', 'feed_forward')
  ]
  for names, chosen in (
    (cheap, _COMPARED[:6]),
    (('rpth',), _CHOSEN),
    (cheap, _COMPARED[6:8]),
    (('gtrxl', 'rpth_dnc'), _CHOSEN),
    (cheap, _COMPARED[8:]),
    (_CORES, _COMPARED),
  ):
    yield from ((task, core) for task in chosen for core in names)


def _with(args: argparse.Namespace, **changes: Any) -> argparse.Namespace:
  return argparse.Namespace(**{**vars(args), **changes})


def table(args: argparse.Namespace) -> None:
  """Prints what has been measured, in Markdown."""
  curves = {
    (task, core): _Cell(_with(args, task=task, core=core)).read()
    for task in _COMPARED
    for core in _CORES
  }
  curves = {
    cell: curve for cell, curve in curves.items() if len(curve) == _NUM_PARTS
  }
  if curves:
    _print_comparison(curves)
  directory = pathlib.Path(args.directory)
  for path in sorted(directory.glob('cut-*.json')):
    rows = json.loads(path.read_text())
    _print_markdown(
      f'{path.stem.split("-")[1]}, by the ticks of the slow core',
      [name for name, _ in rows],
      [[_interval(returns) for _, returns in rows]],
    )
  speeds = [json.loads(path.read_text()) for path in directory.glob('speed-*')]
  if speeds:
    _print_speeds(speeds)


def plot(args: argparse.Namespace) -> None:
  """Draws the curves of all trainings: means and ranges of the seeds."""
  directory = pathlib.Path(args.directory)
  figure, axes = plt.subplots(figsize=(7, 4), layout='constrained')
  for path in sorted(directory.glob('*.jsonl')):
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    steps = [row['steps'] for row in rows]
    returns = np.array([row['returns'] for row in rows])  # [points, seeds]
    task, core, _, *settings = path.stem.split('-')
    axes.plot(steps, returns.mean(1), label=', '.join([task, core, *settings]))
    axes.fill_between(steps, returns.min(1), returns.max(1), alpha=0.2)
  axes.set(xscale='log', xlabel='steps', ylabel='return')
  axes.legend(fontsize='small')
  axes.grid(alpha=0.3)
  figure.savefig(directory / 'curves.png', dpi=120)


def profile(args: argparse.Namespace) -> None:
  """Draws scores above guessing, of the cores that have done all tasks."""
  chance = np.array([_TASKS[task].chance for task in _COMPARED])
  scores = {}
  for core in _CORES:
    cells = [_Cell(_with(args, task=t, core=core)).read() for t in _COMPARED]
    if all(len(rows) == _NUM_PARTS for rows in cells):
      last = [[row['returns'] for row in rows[-2:]] for rows in cells]
      returns = np.mean(last, axis=1).T  # [seeds, tasks]
      scores[core] = (returns - chance) / (1 - chance)
  pairs = [(core, 'lstm') for core in scores if core != 'lstm']
  path = pathlib.Path(args.directory) / 'profile.png'
  seeds.draw(scores, pairs, 'score above guessing', path)


def _print_comparison(
  curves: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
) -> None:
  """Prints scores at equal steps and at equal time, and the time of steps."""
  shown = [task for task in _COMPARED if any(task == t for t, _ in curves)]
  seconds = {
    cell: np.cumsum([row['seconds'] for row in curve])
    for cell, curve in curves.items()
  }
  steps = {curve[-1]['steps'] for curve in curves.values()}

  def score(task: str, core: str, seconds_left: float) -> str:
    if (task, core) not in curves:
      return ''
    # A part that ends at the limit counts.
    num_parts = np.sum(seconds[task, core] <= seconds_left)
    rows = curves[task, core][max(num_parts - 2, 0) : num_parts]
    return _interval(np.mean([row['returns'] for row in rows], axis=0))

  def cost(task: str, core: str) -> str:
    if (task, core) not in curves:
      return ''
    row = curves[task, core][-1]
    num_steps = row['steps'] * len(row['returns'])
    return f'{1e5 * seconds[task, core][-1] / num_steps:.1f}'

  def limit(task: str) -> float:
    return min(
      times[-1]
      for (other, core), times in seconds.items()
      if other == task and core != 'feed_forward'
    )

  for title, header, make in (
    (
      f'Returns after {min(steps):,} to {max(steps):,} steps',
      ['guessing'],
      lambda task: [
        f'{_TASKS[task].chance:.2f}',
        *(score(task, core, np.inf) for core in _CORES),
      ],
    ),
    (
      'Returns in the CPU time of the fastest recurrent core',
      ['CPU s'],
      lambda task: [
        f'{limit(task):.0f}',
        *(score(task, core, limit(task)) for core in _CORES),
      ],
    ),
    (
      'CPU seconds per 100,000 steps',
      [],
      lambda task: [cost(task, core) for core in _CORES],
    ),
  ):
    _print_markdown(
      title,
      ['task', *header, *_CORES],
      [[task, *make(task)] for task in shown],
    )


def _print_speeds(speeds: Sequence[Mapping[str, Any]]) -> None:
  _print_markdown(
    f'Times of {_NUM_SEQUENCES} sequences, and ratios to an LSTM in turn',
    ['core', 'T', 'update, ms', 'of LSTM', 'memory, MB', 'of LSTM']
    + ['acting, ms', 'of LSTM'],
    [
      [
        row['core'],
        row['length'],
        f'{row["update_ms"]:.1f}',
        f'{row["update_ratio"]:.2f}',
        f'{row["update_mb"]:.1f}',
        f'{row["update_mb"] / row["update_lstm_mb"]:.2f}',
        f'{row["act_ms"]:.2f}',
        f'{row["act_ratio"]:.2f}',
      ]
      for row in sorted(
        speeds, key=lambda row: (_CORES.index(row['core']), row['length'])
      )
    ],
  )


def _interval(values: Sequence[float]) -> str:
  """Returns mean and range, which bootstrapping three seeds gives as well."""
  if not len(values):
    return 'none'
  return f'{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})'


def _print_markdown(
  title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
  print(f'\n{title}\n')
  for row in (header, ['---'] * len(header), *rows):
    print('| ' + ' | '.join(map(str, row)) + ' |')


_COMMANDS = {
  'learn': learn,
  'cut': cut,
  'speed': speed,
  'all': do_all,
  'table': table,
  'profile': profile,
  'plot': plot,
}


def main() -> None:
  """Does what the first argument says."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('command', choices=list(_COMMANDS))
  parser.add_argument('--task', choices=_TASKS, default='recall_100')
  parser.add_argument('--core', choices=_CORES, default='lstm')
  parser.add_argument('--units', type=int, default=32)
  parser.add_argument('--num_seeds', type=int, default=3)
  parser.add_argument('--num_steps', type=int, default=300_000)
  parser.add_argument('--stop_at', type=float, default=float('inf'))
  parser.add_argument('--length', type=int, default=128)
  parser.add_argument('--num_pairs', type=int, default=30)
  parser.add_argument('--set', action='append', default=[])
  parser.add_argument('--directory', default='runs/memory')
  args = parser.parse_args()
  _COMMANDS[args.command](args)


if __name__ == '__main__':
  main()
