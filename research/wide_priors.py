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

import concurrent.futures
import dataclasses
import fcntl
import functools
import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import evolution
import jax
import jax.numpy as jnp
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
  until: int = flags.flag(
    0, 'Steps of each seed at which training ends early; 0 for never.'
  )
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
  compiled = compilation.jit(jax.vmap(function), donate_argnums=0)
  return compiled.lower(state).compile()


def _call(loop: Any, num_iterations: int, state: Any) -> tuple[Any, Any]:
  """Runs iterations; returns the state, actions taken and what was wrong."""
  state, report = loop.call(num_iterations, state)
  skipped = jnp.sum(report.skipped_in_a_row > 0)
  num_faults = jnp.sum(report.episodes.faults) + skipped
  return state, (jnp.sum(report.episodes.moved), num_faults)


def _end_round(loop: Any, state: Any) -> tuple[Any, dict[str, Any]]:
  """Begins the next round; returns the state, and facts of the last one."""
  totals, values = state.totals, state_lib.log_values(state.population)
  rates = totals.returns / jnp.maximum(totals.num_episodes, 1)[:, None]
  state, parent = loop.next_round(state)
  return state, {**values, 'event_rates': rates, 'parent': parent}


def train_arm(options: Options) -> None:
  """Trains all seeds of an arm, and chooses their best members."""
  experiment = _make(options, options.arm)
  loop = train.make_loop(prepare.prepare(experiment))
  whole = experiment.max_num_actor_steps
  most = options.until or whole
  per_round = loop.sizes.iterations_per_round(experiment.steps_per_round)
  per_call = loop.sizes.iterations_per_call(per_round, most)
  directory = _directory(options, options.arm)
  directory.mkdir(parents=True, exist_ok=True)
  seeds = range(options.first_seed, options.first_seed + options.num_seeds)
  keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
  init = jax.vmap(loop.init)
  shapes = jax.eval_shape(init, keys)
  with (
    compilation.shown(f'{options.arm}: compiling'),
    concurrent.futures.ThreadPoolExecutor() as pool,
  ):
    call_done, end_done, choice = (
      pool.submit(_compile, functools.partial(_call, loop, per_call), shapes),
      pool.submit(_compile, functools.partial(_end_round, loop), shapes),
      pool.submit(_Choice, options, options.arm),
    )
    state = compilation.jit_unoptimized(init)(keys)
  call, end_round = call_done.result(), end_done.result()
  moved, num_faults = np.zeros(len(seeds), np.int64), 0
  rows, saved = [], []
  # Arms in a directory train one at a time, and compile side by side.
  with (directory.parent / 'lock').open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    start = shown = time.monotonic()
    while moved.min() < most:
      for _ in range(per_round // per_call):
        state, done = call(state)
        more, faults = jax.device_get(done)
        moved, num_faults = moved + more, num_faults + int(faults.sum())
        if moved.min() >= most:
          break
      state, row = end_round(state)
      steps, now = int(moved.min()), time.monotonic()
      rows.append({**jax.device_get(row), 'steps': steps})
      is_due = steps >= min(most, whole * _TIMES[len(saved)])
      if is_due or now - shown > 10:
        shown = now
        print(
          f'{options.arm}: {steps:,} steps of each seed,'
          f' {moved.sum() / (now - start):,.0f} a second in all,'
          f' {num_faults} faults, {now - start:.0f} s',
          flush=True,
        )
      if is_due:
        members = jax.device_get(types.actor_variables(state.training))
        path = directory / f'members-{len(saved)}.npz'
        np.savez(path, *jax.tree.leaves(members))
        saved.append(steps)
        np.savez(
          directory / 'rounds.npz',
          **{name: np.stack([row[name] for row in rows]) for name in rows[0]},
        )
        facts = {
          'saved': saved,
          'seconds': now - start,
          'faults': num_faults,
          'jax': jax.__version__,
          'device': jax.devices()[0].device_kind,
          'options': dataclasses.asdict(options),
        }
        (directory / 'facts.json').write_text(json.dumps(facts), 'utf-8')
  choice.result().choose()


class _Choice:
  """Chooses the best member of each seed of an arm, at all times."""

  def __init__(self, options: Options, arm: str):
    """Compiles the games."""
    self._directory = _directory(options, arm)
    self._shape = options.num_seeds, ARMS[arm].breadth * options.num_members
    experiment, num_agents = _make(options, arm), math.prod(self._shape)
    self._games = evolution.Games(experiment, num_agents, _NUM_CHOICE)
    self._template = _variables(experiment)
    zeros = [
      jnp.zeros((num_agents, *leaf.shape[1:]), leaf.dtype)
      for leaf in jax.tree.leaves(self._template)
    ]
    self._games.compile(_like(self._template, zeros))

  def choose(self) -> None:
    """Writes the best members [times, seeds, ...], and the scores of all."""
    last, made = len(_facts(self._directory)['saved']) - 1, []
    for index in range(last + 1):
      leaves = _load(self._directory / f'members-{index}.npz')
      rows = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves]
      agents = _like(self._template, rows)
      turns = range(2 if index == last else 1)
      scores = np.mean([self._games.play(agents, turn) for turn in turns], 0)
      scores = scores.reshape(*self._shape, -1)
      best = scores.mean(axis=2).argmax(axis=1)
      chosen = np.arange(len(best)), best
      made.append([best, scores, *(leaf[chosen] for leaf in leaves)])
      shown = scores.mean(axis=2).round(2).tolist()
      print(f'{self._directory.name}: {shown}', flush=True)
    leaves = [np.stack(leaves) for leaves in zip(*made, strict=True)]
    np.savez_compressed(self._directory / 'best.npz', *leaves)


def _variables(experiment: ftwax.ExperimentConfig) -> types.ActorVariables:
  """Returns the shapes of members' variables."""
  loop = train.make_loop(prepare.prepare(experiment))
  state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
  return types.actor_variables(state.training)


def _like(template: Any, leaves: Any) -> Any:
  return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _load(path: pathlib.Path) -> list[Any]:
  with np.load(path) as file:
    return [file[f'arr_{index}'] for index in range(len(file))]


def read_best(options: Options, arm: str) -> types.ActorVariables:
  """Returns the best members of an arm at the end, leaves [seeds, ...]."""
  _, _, *leaves = _load(_directory(options, arm) / 'best.npz')
  return _like(_variables(_make(options, arm)), [leaf[-1] for leaf in leaves])


def _directory(options: Options, arm: str) -> pathlib.Path:
  return pathlib.Path(options.directory) / arm


def _facts(directory: pathlib.Path) -> Any:
  return json.loads((directory / 'facts.json').read_text('utf-8'))


def judge(options: Options) -> dict[str, list[Any]]:
  """Plays what has not been played; returns the cells of each arm."""
  path = pathlib.Path(options.directory) / 'cells.jsonl'
  rows = loggers.read_jsonl(path) if path.exists() else []
  cells = {(row['arm'], row['time']): row for row in rows}
  experiment = _make(options, 'copies')
  template = _variables(experiment)
  games = evolution.Games(experiment, options.num_seeds, _NUM_SCORE)
  made: dict[str, list[Any]] = {}
  for arm in ARMS:
    if not (_directory(options, arm) / 'best.npz').exists():
      continue
    saved = _facts(_directory(options, arm))['saved']
    _, choice, *leaves = _load(_directory(options, arm) / 'best.npz')
    last = len(saved) - 1
    for index in reversed(range(last + 1)):
      if (arm, index) in cells:
        continue
      agents = _like(template, [leaf[index] for leaf in leaves])
      # Other turns than those on which they were chosen.
      turns = range(2, 6 if index == last else 3)
      scores = np.mean([games.play(agents, turn) for turn in turns], axis=0)
      cell = {
        'arm': arm,
        'time': index,
        'steps': saved[index],
        'scores': scores.tolist(),
        'members': choice[index].mean(axis=(1, 2)).tolist(),
      }
      if index == last and arm != 'copies':
        best = read_best(options, 'copies')
        cell['duels'] = _duel(options, experiment, best, agents)
      with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(cell) + '\n')
      cells[arm, index] = cell
      print(f'{arm} {saved[index]:,}: {scores.mean(axis=1)}', flush=True)
    made[arm] = [cells[arm, index] for index in range(last + 1)]
  return made


def _duel(
  options: Options, experiment: Any, first: Any, second: Any
) -> list[float]:
  """Returns the scores of first against second agents [S, ...], by seed."""
  num_seeds = options.num_seeds
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
    arm: [np.array(cell['scores']) for cell in own]  # [S, K] at each time.
    for arm, own in cells.items()
  }

  def gain(arm: str, time: int) -> str:
    if arm == 'copies':
      return ''
    pair = scores['copies'][time], scores[arm][time]
    return evolution.with_interval((pair[0] - pair[1]).mean(axis=1))

  rows = []
  for arm, own in cells.items():
    duels = np.array(own[-1].get('duels', []))
    rows.append(
      [
        arm,
        f'{own[-1]["steps"] / 1e6:.0f}M',
        ' '.join(f'{score:.3f}' for score in scores[arm][-1].mean(axis=1)),
        f'{scores[arm][-1].mean():.3f}',
        f'{scores[arm][-1].min(axis=1).mean():.3f}',
        f'{np.mean(own[-1]["members"]):.3f}',
        gain(arm, -1),
        ' '.join(f'{score:.2f}' for score in duels),
        evolution.with_interval(duels - 0.5) if len(duels) else '',
      ]
    )
  common.print_table(
    'the best member of each seed at the end',
    [
      'arm', 'steps', 'by seed', 'mean', 'hardest', 'all members',
      'copies, less it', 'copies against it', 'less a half',
    ],
    rows,
  )  # fmt: skip
  common.print_table(
    'the best member over steps: mean score, and of copies less it',
    ['steps', *(text for arm in cells for text in (arm, ''))],
    [
      [
        f'{cells["copies"][time]["steps"] / 1e6:.0f}M',
        *(
          text
          for arm in cells
          for text in (f'{scores[arm][time].mean():.3f}', gain(arm, time))
        ),
      ]
      for time in range(min(map(len, cells.values())))
    ],
  )


def print_events(options: Options) -> None:
  """Prints and draws the rewards of the best member and its ancestors."""
  directory = _directory(options, 'copies')
  with np.load(directory / 'rounds.npz') as file:
    rounds = dict(file)
  best, *_ = _load(directory / 'best.npz')
  seeds, member = np.arange(options.num_seeds), best[-1]
  lineage = [read_best(options, 'copies').internal_rewards]
  num_copies = 0 * seeds
  for parents, weights in zip(
    rounds['parent'][::-1], rounds['internal_rewards'][::-1], strict=True
  ):
    parent = parents[seeds, member]
    num_copies, member = num_copies + (parent != member), parent
    lineage.append(weights[seeds, member])  # Before the copy.
  weights = np.stack(lineage[::-1])  # [rounds + 1, S, E]
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


def main(options: Options) -> None:
  """Trains an arm, or judges all arms that are trained."""
  if options.train:
    train_arm(options)
    return
  print_scores(judge(options))
  print_events(options)


if __name__ == '__main__':
  launch.main(__file__)
