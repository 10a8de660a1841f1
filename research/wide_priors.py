"""Asks from which budget on copies pay where priors say little.

    uv run research/wide_priors.py --train --arm=copies    on an accelerator
    uv run research/wide_priors.py

The main experiment has the priors of `--long`, by which only captures have a
sign. The first command trains all seeds of an arm in one program, each as
`ftwax.run` would, and chooses the best member of each at several times. The
second one scores those members on other games, which are the same in all arms,
lets the best of `copies` play those of the others, and prints tables. The arms
have equal steps, summed over members, and as many games for each member:

  copies   members that copy each other
  apart    the same members at the start, which never copy
  narrow   priors by which most events have a sign, without copies
  search   twice the members, half the steps each, without copies

The last table has the rewards that evolution found: the weight of each event in
the best member and, before its lineage copied, in its ancestors.
"""

import contextlib
import dataclasses
import fcntl
import functools
import json
import math
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import evolution
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ftwax
from ftwax import compilation, types
from ftwax.cli import flags, launch
from ftwax.environments.capture_the_flag import EVENT_NAMES
from ftwax.experiments import capture_the_flag  # noqa: TID251
from ftwax.population import state as state_lib
from ftwax.population import tournament
from ftwax.records import loggers
from ftwax.runtime import evaluation, prepare
from ftwax.runtime.device import loop as loop_lib
from ftwax.runtime.device import matches, train

common = evolution.common


class Arm(NamedTuple):
  """Whether priors are wide and members copy, and how many there are."""

  is_wide: bool = True
  exploits: bool = False
  breadth: int = 1


ARMS = {
  'copies': Arm(exploits=True),
  'apart': Arm(),
  'narrow': Arm(is_wide=False),
  'search': Arm(breadth=2),
}

# Steps at which members are kept, as parts of the run.
_TIMES = (1 / 14, *(part / 7 for part in range(1, 8)))

# Games of each member on which the best one is chosen, and of that one; twice
# and four times as many at the end. Games of a pair.
_NUM_CHOICE, _NUM_SCORE, _NUM_DUEL = 96, 200, 200

# On a GPU a step launches thousands of small kernels.
_GPU_OPTIONS = {
  'xla_gpu_enable_command_buffer': (
    'FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,'
    'CONDITIONAL,WHILE'
  ),
  'xla_gpu_graph_min_graph_size': '1',
}


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this benchmark."""

  train: bool = flags.flag(False, 'Trains an arm and chooses the best members.')
  arm: str = flags.flag('copies', 'The arm to train.', tuple(ARMS))
  first_seed: int = flags.flag(401, 'The first seed.')
  num_seeds: int = flags.flag(5, 'Seeds, in one program.')
  num_members: int = flags.flag(8, 'Members; twice as many in search.')
  games_per_member: int = flags.flag(256, 'Parallel games, over members.')
  max_num_actor_steps: int = flags.flag(350_000_000, 'Steps for each seed.')
  burn_in_games: int = flags.flag(30_000, 'Games between chances to copy.')
  seconds: float = flags.flag(
    0.0, 'Seconds after the start at which training ends early; 0 for never.'
  )
  lock: str | None = flags.flag(None, 'File; one arm trains while it has it.')
  directory: str = flags.flag('runs/wide_priors', 'Where arms are kept.')


def _make(options: Options, arm: str) -> ftwax.ExperimentConfig:
  num_members = ARMS[arm].breadth * options.num_members
  made = capture_the_flag.build(
    capture_the_flag.Options(
      long=ARMS[arm].is_wide,
      seed=options.first_seed,
      num_members=num_members,
      num_environments=num_members * options.games_per_member,
      max_num_actor_steps=options.max_num_actor_steps,
      burn_in_games=options.burn_in_games,
    )
  )
  population = made.population.replace(exploits=ARMS[arm].exploits)
  return made.replace(population=population)


def _compile(function: Callable[[Any], Any], state: Any) -> Any:
  """Compiles a function of one seed for all; it consumes the state."""
  lowered = compilation.jit(jax.vmap(function), donate_argnums=0).lower(state)
  if jax.default_backend() == 'cpu':
    return lowered.compile()
  try:
    return lowered.compile(_GPU_OPTIONS)
  except Exception as error:  # Names of options change with XLA.
    print(f'compiling without options: {error}', flush=True)
    return lowered.compile()


def _call(
  loop: loop_lib.Loop, num_iterations: int, state: loop_lib.LoopState
) -> tuple[loop_lib.LoopState, Any]:
  """Runs iterations; returns the state, actions taken and what was wrong."""
  state, report = loop.call(num_iterations, state)
  num_faults = jnp.sum(report.episodes.faults) + jnp.sum(
    report.skipped_in_a_row > 0
  )
  return state, (jnp.sum(report.episodes.moved), num_faults)


def _end_round(
  loop: loop_lib.Loop, state: loop_lib.LoopState
) -> tuple[loop_lib.LoopState, Any]:
  """Begins the next round; returns the state, and what to keep of both."""
  totals = state.totals
  state, parent = loop.next_round(state)
  return state, _describe(totals, parent, state.population)


def _describe(
  totals: loop_lib.Totals, parent: Any, population: state_lib.PopulationState
) -> dict[str, Any]:
  rates = totals.returns / jnp.maximum(totals.num_episodes, 1)[:, None]
  values = state_lib.log_values(population)
  return {
    **{name: values[name] for name in values if 'payoff' not in name},
    'parent': parent,
    'event_rates': rates,
  }


@contextlib.contextmanager
def _turn(path: str | None) -> Iterator[None]:
  """Waits until no other process that was given the file has a turn."""
  if path is None:
    yield
    return
  with open(path, 'w', encoding='utf-8') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield


def train_arm(options: Options) -> None:
  """Trains all seeds of an arm, and chooses their best members."""
  began = time.monotonic()
  experiment = _make(options, options.arm)
  loop = train.make_loop(prepare.prepare(experiment))
  most = experiment.max_num_actor_steps
  per_round = loop.sizes.iterations_per_round(experiment.steps_per_round)
  per_call = loop.sizes.iterations_per_call(per_round, most)
  directory = pathlib.Path(options.directory) / options.arm
  directory.mkdir(parents=True, exist_ok=True)
  seeds = range(options.first_seed, options.first_seed + options.num_seeds)
  keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
  with compilation.shown(f'{options.arm}: compiling'):
    state = compilation.jit_unoptimized(jax.vmap(loop.init))(keys)
    call = _compile(functools.partial(_call, loop, per_call), state)
    end_round = _compile(functools.partial(_end_round, loop), state)
    choose = _Choice(options, options.arm)
  nobody = jnp.tile(jnp.arange(loop.config.num_members), (len(seeds), 1))
  row = jax.vmap(_describe)(state.totals, nobody, state.population)
  rows, steps, saved = [jax.device_get(row)], [0], []
  moved, num_faults, is_late = np.zeros(len(seeds), np.int64), 0, False
  with _turn(options.lock):
    start = shown = time.monotonic()
    while moved.min() < most and not is_late:
      for _ in range(per_round // per_call):
        state, done = call(state)
        more, faults = jax.device_get(done)
        moved, num_faults = moved + more, num_faults + int(faults.sum())
        if moved.min() >= most:
          break
      state, row = end_round(state)
      rows.append(jax.device_get(row))
      steps.append(int(moved.min()))
      now = time.monotonic()
      is_late = 0 < options.seconds < now - began
      is_due = steps[-1] >= most * _TIMES[len(saved)] or is_late
      if is_due or now - shown > 10:
        shown = now
        print(
          f'{options.arm}: {steps[-1]:,} steps of each seed,'
          f' {moved.sum() / (now - start):,.0f} a second in all,'
          f' {num_faults} faults, {now - start:.0f} s',
          flush=True,
        )
      if is_due:
        variables = types.actor_variables(state.training)
        _save(directory / f'members-{len(saved)}.npz', variables)
        saved.append(steps[-1])
        facts = {
          'arm': options.arm,
          'saved': saved,
          'seconds': now - start,
          'faults': num_faults,
          'jax': jax.__version__,
          'device': jax.devices()[0].device_kind,
          'options': dataclasses.asdict(options),
        }
        (directory / 'facts.json').write_text(json.dumps(facts), 'utf-8')
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
        _save(directory / 'rounds.npz', {'steps': np.array(steps), **stacked})
  choose.choose(directory)


def _save(path: pathlib.Path, tree: Any, write: Any = np.savez) -> None:
  """Saves the leaves of a tree by their paths."""
  leaves = jax.tree.leaves_with_path(jax.device_get(tree))
  write(path, **{jax.tree_util.keystr(key): leaf for key, leaf in leaves})


def _load(path: pathlib.Path, template: Any) -> Any:
  """Loads a tree with the structure of the template."""
  with np.load(path) as file:
    return jax.tree_util.tree_map_with_path(
      lambda key, _: file[jax.tree_util.keystr(key)], template
    )


def _at(tree: Any, index: Any) -> Any:
  return jax.tree.map(lambda leaf: leaf[index], tree)


class _Choice:
  """Chooses the best member of each seed of an arm, at all times at once."""

  def __init__(self, options: Options, arm: str):
    """Compiles the games."""
    experiment = _make(options, arm)
    loop = train.make_loop(prepare.prepare(experiment))
    self._shape = options.num_seeds, loop.config.num_members
    self._template = types.actor_variables(
      jax.eval_shape(loop.init, jax.random.PRNGKey(0)).training
    )
    num_agents = math.prod(self._shape)
    self._games = evolution.Games(experiment, num_agents, _NUM_CHOICE)
    self._games.compile(
      jax.tree.map(
        lambda leaf: jnp.zeros((num_agents, *leaf.shape[1:]), leaf.dtype),
        self._template,
      )
    )

  def choose(self, directory: pathlib.Path) -> None:
    """Writes the best members, leaves [times, seeds, ...], and all scores."""
    facts = json.loads((directory / 'facts.json').read_text('utf-8'))
    last = len(facts['saved']) - 1
    made = []
    for index in range(last + 1):
      members = _load(directory / f'members-{index}.npz', self._template)
      agents = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members
      )
      turns = range(2 if index == last else 1)
      scores = np.mean([self._games.play(agents, turn) for turn in turns], 0)
      scores = scores.reshape(*self._shape, -1)
      best = scores.mean(axis=2).argmax(axis=1)
      own = _at(members, (np.arange(len(best)), best))
      made.append({'variables': own, 'scores': scores, 'best': best})
      print(f'{directory.name}: {scores.mean(axis=2).round(2)}', flush=True)
    chosen = jax.tree.map(lambda *leaves: np.stack(leaves), *made)
    _save(directory / 'best.npz', chosen, np.savez_compressed)


def _chosen(options: Options, arm: str) -> Any:
  """Returns what `choose` wrote, and the facts of an arm."""
  directory = pathlib.Path(options.directory) / arm
  facts = json.loads((directory / 'facts.json').read_text('utf-8'))
  if not (directory / 'best.npz').exists():
    _Choice(options, arm).choose(directory)
  loop = train.make_loop(prepare.prepare(_make(options, arm)))
  state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
  variables = types.actor_variables(state.training)
  template = {'variables': variables, 'scores': 0, 'best': 0}
  return _load(directory / 'best.npz', template), facts


def judge(options: Options) -> dict[str, list[Any]]:
  """Plays what has not been played; returns the cells of each arm."""
  path = pathlib.Path(options.directory) / 'cells.jsonl'
  cells = {}
  if path.exists():
    rows = loggers.read_jsonl(path)
    cells = {(row['arm'], row['time']): row for row in rows}
  arms = [arm for arm in ARMS if (path.parent / arm / 'facts.json').exists()]
  all_chosen = {arm: _chosen(options, arm) for arm in arms}
  games = evolution.Games(
    _make(options, 'copies'), options.num_seeds, _NUM_SCORE
  )
  for arm, (chosen, facts) in all_chosen.items():
    last = len(facts['saved']) - 1
    for index in reversed(range(last + 1)):
      if (arm, index) in cells:
        continue
      agents = _at(chosen['variables'], index)
      # Not the turns on which they were chosen.
      turns = range(2, 6 if index == last else 3)
      scores = np.mean([games.play(agents, turn) for turn in turns], axis=0)
      cell = {
        'arm': arm,
        'time': index,
        'steps': facts['saved'][index],
        'scores': scores.tolist(),
        'members': float(chosen['scores'][index].mean()),
      }
      if index == last and arm != 'copies' and 'copies' in all_chosen:
        own = _at(all_chosen['copies'][0]['variables'], -1)
        cell['duels'] = _duel(options, own, agents)
      with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(cell) + '\n')
      cells[arm, index] = cell
      print(f'{arm} {cell["steps"]:,}: {scores.mean(axis=1)}', flush=True)
  return {
    arm: [cells[arm, index] for index in range(len(facts['saved']))]
    for arm, (_, facts) in all_chosen.items()
  }


def _duel(options: Options, first: Any, second: Any) -> list[float]:
  """Returns the scores of first against second agents [S, ...], by seed."""
  experiment, num_seeds = _make(options, 'copies'), options.num_seeds
  game = experiment.evaluation_factory(0)
  pair = tournament.round_robin(2, _NUM_DUEL, game.teams)
  seats = [seed + num_seeds * pair for seed in range(num_seeds)]
  results = matches.play(
    jax.random.PRNGKey(options.first_seed),
    game,
    prepare.prepare(experiment).evaluation_policy,
    jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second),
    {},
    np.concatenate(seats).astype(np.int32),
  )
  played = evaluation.summarize(results, game.teams, 2 * num_seeds)
  return np.diagonal(played.win_rates, num_seeds).tolist()


def print_scores(cells: dict[str, list[Any]]) -> None:
  """Prints the scores at the end, and those of all times."""
  scores = {
    arm: np.array([cell['scores'] for cell in of_arm])  # [times, seeds, K]
    for arm, of_arm in cells.items()
  }
  means = {arm: own.mean(axis=2) for arm, own in scores.items()}
  rows = []
  for arm, own in means.items():
    duels = np.array(cells[arm][-1].get('duels', []))
    others = [] if arm == 'copies' else means['copies'][-1] - own[-1]
    rows.append(
      [
        arm,
        f'{cells[arm][-1]["steps"] / 1e6:.0f}M',
        ' '.join(f'{score:.3f}' for score in own[-1]),
        f'{own[-1].mean():.3f}',
        f'{scores[arm][-1].min(axis=1).mean():.3f}',
        f'{cells[arm][-1]["members"]:.3f}',
        _interval(others),
        ' '.join(f'{score:.2f}' for score in duels),
        _interval(duels - 0.5),
      ]
    )
  common.print_table(
    'the best member of each seed at the end',
    ['arm', 'steps', 'score by seed', 'mean', 'hardest', 'all members',
     'copies, less this', 'copies against it', 'less 1/2'],
    rows,
  )  # fmt: skip
  rows = [
    [
      f'{cells["copies"][index]["steps"] / 1e6:.0f}M',
      *(
        text
        for arm, own in means.items()
        for text in (
          f'{own[index].mean():.3f}',
          _interval([] if arm == 'copies' else copied[index] - own[index]),
        )
      ),
    ]
    for copied in [means['copies']]
    for index in range(min(map(len, means.values())))
  ]
  header = [text for arm in means for text in (arm, f'less {arm}')]
  common.print_table('the best member by steps', ['steps', *header], rows)


def _interval(differences: Any) -> str:
  return evolution.with_interval(differences) if len(differences) else ''


def print_events(options: Options) -> None:
  """Prints and draws the rewards of the lineage of the best member."""
  chosen, _ = _chosen(options, 'copies')
  directory = pathlib.Path(options.directory)
  with np.load(directory / 'copies' / 'rounds.npz') as file:
    rounds = {name.strip("[']"): file[name] for name in file}
  seeds = np.arange(options.num_seeds)
  member, lineage, num_copies = chosen['best'][-1], [], 0 * seeds
  for index in reversed(range(len(rounds['parent']))):
    lineage.append(rounds['internal_rewards'][index][seeds, member])
    parent = rounds['parent'][index][seeds, member]
    num_copies, member = num_copies + (parent != member), parent
  weights = np.stack(lineage[::-1])  # [rounds, seeds, events]
  rows = []
  for event, name in enumerate(EVENT_NAMES):
    start, end = weights[[0, -1], :, event]
    num_above = int((end > 0).sum())
    pairs = [f'{a:+.2f} to {b:+.2f}' for a, b in zip(start, end, strict=True)]
    rows.append([name, *pairs, max(num_above, len(seeds) - num_above)])
  names = [
    f'seed {options.first_seed + seed}, {num_copies[seed]} copies'
    for seed in seeds
  ]
  common.print_table(
    'the weight of each event, from the first draw to the best member',
    ['event', *names, 'same sign'],
    rows,
  )
  figure, axes = plt.subplots(3, 5, figsize=(12, 6), sharex=True)
  for event, axis in enumerate(axes.flat):
    axis.set_visible(event < len(EVENT_NAMES))
    if event < len(EVENT_NAMES):
      axis.plot(rounds['steps'] / 1e6, weights[:, :, event], linewidth=1)
      axis.axhline(0.0, color='black', linewidth=0.5)
      axis.set_title(EVENT_NAMES[event].replace('_', ' '), fontsize=8)
  figure.supxlabel('million steps')
  figure.tight_layout()
  figure.savefig(directory / 'events.svg')


def main(options: Options) -> None:
  """Trains an arm, or judges all arms that are trained."""
  if options.train:
    train_arm(options)
    return
  print_scores(judge(options))
  print_events(options)


if __name__ == '__main__':
  launch.main(__file__)
