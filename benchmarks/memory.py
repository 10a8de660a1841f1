r"""Compares recurrent cores on tasks that need memory.

Each cell of the tables is one command, which goes on with an unfinished run:

    uv run benchmarks/memory.py learn --task=recall_100 --core=lru
    uv run benchmarks/memory.py label --task=recall_100 --core=lru
    uv run benchmarks/memory.py speed --core=lru --length=1024
    uv run benchmarks/memory.py table

Networks have about the parameters of one with an LSTM of `--units`.

`learn` trains PPO with several seeds at once, in one compiled program. Options
are those of `PPOConfig.long_memory`; `--set=name=value` changes one. Scores are
mean returns of the episodes in each twentieth of the steps; `--stop_at` ends a
run once all seeds have a score.

`label` trains the same networks with the right answers to whole episodes of
recall, 32 at a time, as a bound on what an agent could learn: if this fails,
neither exploration nor truncation is what fails first. Scores are the shares of
right answers.

`speed` times acting, and the gradient of an unroll of four sequences, in pairs
with an LSTM: the two are called in turn. Memory is what XLA allocates for it.

Results are kept in `--directory`.
"""

import argparse
import ast
import functools
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import common
import jax
import jax.numpy as jnp
import numpy as np
import optax

import ftwax
from ftwax import types
from ftwax.agents import ppo
from ftwax.agents.actor_critic import normalization
from ftwax.environments import (
  copying,
  functional,
  long_recall,
  memory_chain,
  popgym,
  recall,
)

_CORES = ('feed_forward', 'lstm', 'gru', 'lru', 'min_gru', 'gtrxl')

# Sequences of an update in `label`.
_BATCH_SIZE = 32

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
    chance: mean return of random actions, or about that.
    target: mean return at which the task counts as learned.
  """

  make: Callable[[], functional.FunctionalEnvironment]
  length: int
  chance: float
  target: float = 0.9


_TASKS: Mapping[str, _Task] = {
  **{
    f'recall_{delay}': _Task(
      functools.partial(memory_chain.make, delay), delay + 1, 0.0
    )
    for delay in (30, 100, 300, 1000)
  },
  **{
    f'noisy_recall_{delay}': _Task(
      functools.partial(long_recall.make, delay), delay + 1, 0.25
    )
    for delay in (30, 100, 300, 1000)
  },
  **{
    f't_maze_{delay}': _Task(
      functools.partial(long_recall.make, delay, num_goals=2, noise_size=0),
      delay + 1,
      0.5,
    )
    for delay in (100, 1000)
  },
  'copying': _Task(copying.make, 20, 0.25),
  'recall_by_key': _Task(recall.make, 12, 0.25),
  'repeat_previous_easy': _Task(popgym.repeat_previous, 51, -0.5),
  'repeat_previous_medium': _Task(
    functools.partial(popgym.repeat_previous, 2, 32), 103, -0.5
  ),
  'repeat_previous_hard': _Task(
    functools.partial(popgym.repeat_previous, 3, 64), 155, -0.5
  ),
  **{
    f'autoencode_{difficulty}': _Task(
      functools.partial(popgym.autoencode, num_decks), 104 * num_decks - 1, -0.5
    )
    for num_decks, difficulty in enumerate(_DIFFICULTIES, start=1)
  },
  **{
    f'count_recall_{difficulty}': _Task(
      functools.partial(popgym.count_recall, *sizes), 52 * sizes[0] - 1, -0.9
    )
    for difficulty, sizes in zip(
      _DIFFICULTIES, ((1, 2), (2, 4), (4, 13)), strict=True
    )
  },
  **{
    f'concentration_{difficulty}': _Task(
      functools.partial(popgym.concentration, *sizes), 104 * sizes[0], -0.8
    )
    for difficulty, sizes in zip(
      _DIFFICULTIES, ((1, 2), (2, 2), (1, 13)), strict=True
    )
  },
  **{
    f'cart_pole_{difficulty}': _Task(
      functools.partial(popgym.stateless_cart_pole, num_steps), num_steps, 0.1
    )
    for difficulty, num_steps in zip(
      _DIFFICULTIES, (200, 400, 600), strict=True
    )
  },
}


def _num_parameters(config: ppo.PPOConfig, spec: Any) -> int:
  params = jax.eval_shape(config.make_network(spec).init, jax.random.PRNGKey(0))
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def _with_core(
  config: ppo.PPOConfig, core: str, num_units: int, spec: Any
) -> ppo.PPOConfig:
  """Returns the config with a core of about the size of an LSTM."""
  lstm = config.replace(core='lstm', hidden_size=num_units)
  wanted = _num_parameters(lstm, spec)
  return min(
    (
      config.replace(core=core, hidden_size=size)
      for size in range(8, 3 * num_units, 8)
    ),
    key=lambda config: abs(_num_parameters(config, spec) - wanted),
  )


def _make_config(args: argparse.Namespace) -> ppo.PPOConfig:
  options = {}
  for pair in args.set:
    name, value = pair.split('=', 1)
    options[name] = ast.literal_eval(value)
  return ppo.PPOConfig.long_memory(_TASKS[args.task].length, **options)


class _Cell:
  """Files of a run: its curve, and the state after the last part."""

  def __init__(self, args: argparse.Namespace):
    kind = [] if args.command == 'learn' else [args.command]
    name = '-'.join([args.task, args.core, *kind, *args.set])
    directory = pathlib.Path(args.directory)
    directory.mkdir(parents=True, exist_ok=True)
    self.curve = directory / f'{name}.jsonl'
    self._state = directory / f'{name}.npz'

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
    self.curve.write_text('\n'.join(curve))


def learn(args: argparse.Namespace) -> None:
  """Trains a core on a task, from where it was left."""
  task, cell = _TASKS[args.task], _Cell(args)
  environment = task.make()
  config = _with_core(
    _make_config(args), args.core, args.units, environment.spec
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
  state, curve = cell.load(jax.jit(jax.vmap(init))(keys))
  train = jax.jit(jax.vmap(train), donate_argnums=0).lower(state).compile()

  def go_on(state: Any, part: int) -> tuple[Any, int, Any]:
    state, metrics = train(state)
    # [seeds, iterations, 1]
    counts = np.asarray(metrics['num_episodes'])
    returns = np.nan_to_num(np.asarray(metrics['episode_return'])) * counts
    num_episodes = np.maximum(counts.sum((1, 2)), 1)
    num_steps = int(np.sum(metrics['num_steps'][0]))
    return state, num_steps, returns.sum((1, 2)) / num_episodes

  _do_parts(cell, args.stop_at, go_on, state, curve)


def _do_parts(
  cell: _Cell,
  stop_at: float,
  go_on: Callable[[Any, int], tuple[Any, int, Any]],
  state: Any,
  curve: list[str],
) -> None:
  """Does the rest of a run; `go_on` returns a part's steps and scores."""
  for part in range(len(curve), _NUM_PARTS):
    before = time.perf_counter()
    state, num_steps, scores = go_on(state, part)
    row = {
      'steps': (part + 1) * num_steps,
      'returns': np.asarray(scores).tolist(),
      'seconds': time.perf_counter() - before,
    }
    print(row, flush=True)
    curve.append(json.dumps(row))
    cell.save(state, curve)
    if min(row['returns']) >= stop_at:
      break


def _play(
  environment: functional.FunctionalEnvironment, length: int, key: types.Key
) -> tuple[types.NetworkInput, types.Array]:
  """Plays an episode of recall at random, and returns its answer."""
  reset_key, action_key = jax.random.split(key)
  state, first = environment.reset(reset_key)
  answer = state.goal if hasattr(state, 'goal') else state.context[state.query]
  num_actions = environment.spec.actions.num_values
  actions = jax.random.randint(action_key, (length - 1,), 0, num_actions)

  def step(state: Any, action: types.Array) -> tuple[Any, Any]:
    state, timestep = environment.step(state, action)
    return state, timestep.observation

  _, rest = jax.lax.scan(step, state, actions)
  inputs = types.NetworkInput(
    jnp.concatenate([first.observation[None], rest]),
    jnp.append(types.NO_ACTION, actions),
    jnp.zeros(length),
  )
  return inputs, answer


def _normalize(inputs: types.NetworkInput) -> types.NetworkInput:
  """Normalizes observations [T, B, ...] by the statistics of this batch."""
  moments = [
    {'': moment(inputs.observation, (0, 1))} for moment in (jnp.mean, jnp.var)
  ]
  statistics = normalization.ObservationStatistics(jnp.zeros(()), *moments)
  observation = normalization.normalize(statistics, inputs.observation)
  return inputs._replace(observation=observation)


def label(args: argparse.Namespace) -> None:
  """Trains a core on the answers of a recall task, from where it was left."""
  task, cell = _TASKS[args.task], _Cell(args)
  environment = task.make()
  config = _with_core(
    _make_config(args), args.core, args.units, environment.spec
  )
  network = config.make_network(environment.spec)
  values = config.sample_hyperparameters(jax.random.PRNGKey(0))
  optimizer = optax.chain(
    optax.clip_by_global_norm(config.max_gradient_norm),
    optax.adam(config.learning_rate),
  )
  start = jnp.zeros((task.length, _BATCH_SIZE), bool).at[0].set(True)
  play = functools.partial(_play, environment, task.length)
  num_updates = args.num_steps // (_NUM_PARTS * task.length * _BATCH_SIZE)

  def loss(params: Any, key: types.Key) -> tuple[types.Array, types.Array]:
    keys = jax.random.split(key, _BATCH_SIZE)
    inputs, answers = jax.vmap(play, out_axes=(1, 0))(keys)
    if config.normalize_observations:
      inputs = _normalize(inputs)
    state = network.initial_state(_BATCH_SIZE)
    output, _ = network.unroll(params, values, None, inputs, start, state)
    logits = output.logits[-1]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
    return jnp.mean(losses), jnp.mean(jnp.argmax(logits, axis=-1) == answers)

  def update(state: Any, key: types.Key) -> tuple[Any, types.Array]:
    params, opt_state = state
    gradients, score = jax.grad(loss, has_aux=True)(params, key)
    updates, opt_state = optimizer.update(gradients, opt_state)
    return (optax.apply_updates(params, updates), opt_state), score

  @jax.jit
  @jax.vmap
  def train(state: Any, key: types.Key) -> tuple[Any, types.Array]:
    state, scores = jax.lax.scan(
      update, state, jax.random.split(key, num_updates)
    )
    return state, jnp.mean(scores)

  def go_on(state: Any, part: int) -> tuple[Any, int, Any]:
    keys = [
      jax.random.fold_in(jax.random.PRNGKey(seed), part)
      for seed in range(args.num_seeds)
    ]
    state, scores = train(state, jnp.stack(keys))
    return state, num_updates * task.length * _BATCH_SIZE, scores

  params = jax.vmap(network.init)(
    jax.vmap(jax.random.PRNGKey)(np.arange(args.num_seeds))
  )
  state, curve = cell.load((params, jax.vmap(optimizer.init)(params)))
  _do_parts(cell, args.stop_at, go_on, state, curve)


class _Calls(NamedTuple):
  """Calls of a core.

  Attributes:
    functions: acting and the gradient, compiled.
    num_bytes: what the gradient keeps meanwhile.
  """

  functions: Mapping[str, Callable[[], Any]]
  num_bytes: int


def _make_calls(core: str, num_units: int, length: int) -> _Calls:
  spec = long_recall.make().spec
  config = _with_core(ppo.PPOConfig(), core, num_units, spec)
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
        before = time.perf_counter()
        jax.block_until_ready(functions[name]())
        if pair:  # The first call compiles.
          seconds[core].append(time.perf_counter() - before)
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
  directory = pathlib.Path(args.directory)
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f'speed-{args.core}-{args.units}-{args.length}.json'
  path.write_text(json.dumps(row))


def table(args: argparse.Namespace) -> None:
  """Prints what has been measured."""
  directory, rows = pathlib.Path(args.directory), []
  for path in sorted(directory.glob('*.jsonl')):
    task, core, *options = path.stem.split('-', 2)
    curve = [json.loads(line) for line in path.read_text().splitlines()]
    reached = [
      next(
        (
          row['steps']
          for row in curve
          if row['returns'][i] >= _TASKS[task].target
        ),
        None,
      )
      for i in range(len(curve[-1]['returns']))
    ]
    rows.append(
      [
        task,
        _TASKS[task].chance,
        core,
        ' '.join(options),
        f'{curve[-1]["steps"]:,}',
        ', '.join(f'{x:.2f}' for x in curve[-1]['returns']),
        ', '.join(f'{x:,}' if x else 'no' for x in reached),
        f'{sum(row["seconds"] for row in curve):.0f}',
      ]
    )
  common.print_table(
    'Returns',
    [
      'task',
      'chance',
      'core',
      'options',
      'steps',
      'returns',
      'learned at',
      'seconds',
    ],
    rows,
  )
  measured = [
    json.loads(path.read_text()) for path in sorted(directory.glob('speed-*'))
  ]
  if measured:
    common.print_table(
      f'Times of {_NUM_SEQUENCES} sequences, and ratios to an LSTM',
      list(measured[0]),
      [
        [f'{x:.2f}' if isinstance(x, float) else x for x in row.values()]
        for row in measured
      ],
    )


_COMMANDS = {'learn': learn, 'label': label, 'speed': speed, 'table': table}


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
  parser.add_argument('--num_steps', type=int, default=1_000_000)
  parser.add_argument('--stop_at', type=float, default=float('inf'))
  parser.add_argument('--length', type=int, default=128)
  parser.add_argument('--num_pairs', type=int, default=30)
  parser.add_argument('--set', action='append', default=[])
  parser.add_argument('--directory', default='runs/memory')
  args = parser.parse_args()
  _COMMANDS[args.command](args)


if __name__ == '__main__':
  main()
