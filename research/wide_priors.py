"""Asks from which budget on copies pay where priors say little.

    uv run research/wide_priors.py --train --arm=copies    on an accelerator
    uv run research/wide_priors.py

The main experiment has the priors of `--long`, by which only captures have a
sign. The first command trains all seeds of an arm in one program, each as
`ftwax.run` would, and chooses the best member of each at several times. The
second one scores those members on other games, which are the same in all arms,
lets the best of `copies` play those with its core, and prints tables. The arms
have equal steps, summed over members, and as many games for each member:

  copies   members that copy each other
  apart    the same members at the start, which never copy
  narrow   priors by which most events have a sign, without copies
  search   twice the members, half the steps each, without copies
  found    members that start with the rewards of the best of `copies`, by seed,
           and never copy
  rpth     `narrow` with the paper's hierarchy in place of an LSTM

The last table has the rewards that evolution found: the weight of each event in
the best member and, before its lineage copied, in its ancestors, and by how
much more a team wins that has the event once more. Two figures are drawn.
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
import figures
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import ftwax
from ftwax import compilation, types
from ftwax.cli import flags, launch
from ftwax.environments.capture_the_flag import EVENT_NAMES
from ftwax.experiments import capture_the_flag  # noqa: TID251
from ftwax.population import state as state_lib
from ftwax.population import tournament
from ftwax.records import loggers
from ftwax.reporting import words
from ftwax.runtime import evaluation, prepare
from ftwax.runtime.device import matches, train

common = evolution.common


class Arm(NamedTuple):
  """Whether priors are wide and members copy, their number, and their core."""

  is_wide: bool = True
  exploits: bool = False
  breadth: int = 1
  core: str = 'lstm'


ARMS = {
  'copies': Arm(exploits=True),
  'apart': Arm(),
  'narrow': Arm(is_wide=False),
  'search': Arm(breadth=2),
  'found': Arm(),
  'rpth': Arm(is_wide=False, core='rpth'),
}

_LABELS = {
  'apart': 'never copies',
  'narrow': 'signs set by hand',
  'search': 'random search',
  'rpth': 'signs set by hand, RPTH',
}

_FIGURES = pathlib.Path(__file__).parents[1] / 'docs' / 'figures'

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
      gpu=True,  # Not the settings of a short run.
      core=ARMS[arm].core,
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
    if options.arm == 'found':
      found = read_best(options, 'copies').internal_rewards[: len(seeds), None]
      rewards = state.training.internal_rewards
      members = state.training._replace(
        internal_rewards=jnp.broadcast_to(found, rewards.shape)
      )
      population = state.population._replace(members=members)
      state = state._replace(population=population)
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


def read_best(
  options: Options, arm: str, time: int = -1
) -> types.ActorVariables:
  """Returns the best members of an arm at a time, leaves [seeds, ...]."""
  _, _, *leaves = _load(_directory(options, arm) / 'best.npz')
  return _like(_template(options, arm), [leaf[time] for leaf in leaves])


@functools.cache
def _template(options: Options, arm: str) -> types.ActorVariables:
  return _variables(_make(options, arm))


def _directory(options: Options, arm: str) -> pathlib.Path:
  return pathlib.Path(options.directory) / arm


def _facts(directory: pathlib.Path) -> Any:
  return json.loads((directory / 'facts.json').read_text('utf-8'))


def judge(options: Options) -> dict[str, list[Any]]:
  """Plays what has not been played; returns the cells of each arm."""
  path = pathlib.Path(options.directory) / 'cells.jsonl'
  rows = loggers.read_jsonl(path) if path.exists() else []
  cells = {(row['arm'], row['time']): row for row in rows}
  with_core = {own.core: arm for arm, own in ARMS.items()}
  games = {
    core: evolution.Games(_make(options, arm), options.num_seeds, _NUM_SCORE)
    for core, arm in with_core.items()
  }
  made: dict[str, list[Any]] = {}
  for arm in ARMS:
    if not (_directory(options, arm) / 'best.npz').exists():
      continue
    play = games[ARMS[arm].core].play
    saved = _facts(_directory(options, arm))['saved']
    _, choice, *_ = _load(_directory(options, arm) / 'best.npz')
    last = len(saved) - 1
    steps = _facts(_directory(options, 'copies'))['saved'][: len(saved)]
    if not np.allclose(saved, steps, rtol=0.1):
      raise ValueError(
        f'{arm} must be kept at the steps of copies ({steps}), not {saved};'
        ' train it with the same --max_num_actor_steps.'
      )
    for index in reversed(range(last + 1)):
      if (arm, index) in cells:
        continue
      agents = read_best(options, arm, index)
      # Other turns than those on which they were chosen.
      turns = range(2, 6 if index == last else 3)
      scores = np.mean([play(agents, turn) for turn in turns], axis=0)
      cell = {
        'arm': arm,
        'time': index,
        'steps': saved[index],
        'scores': scores.tolist(),
        'members': choice[index].mean(axis=(1, 2)).tolist(),
      }
      is_rival = arm != 'copies' and ARMS[arm].core == ARMS['copies'].core
      if index == last and is_rival:
        rival = read_best(options, 'copies', index)
        cell['duels'] = _duel(options, rival, agents)
      with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(cell) + '\n')
      cells[arm, index] = cell
      print(f'{arm} {saved[index]:,}: {scores.mean(axis=1)}', flush=True)
    made[arm] = [cells[arm, index] for index in range(last + 1)]
  return made


def _game(options: Options) -> Any:
  return _make(options, 'copies').evaluation_factory(0)


def _play(options: Options, agents: types.ActorVariables, seats: Any) -> Any:
  """Plays games of agents [N, ...], by the seats [G, P]."""
  return matches.play(
    jax.random.PRNGKey(options.first_seed),
    _game(options),
    prepare.prepare(_make(options, 'copies')).evaluation_policy,
    agents,
    {},
    seats.astype(np.int32),
  )


def _duel(options: Options, first: Any, second: Any) -> list[float]:
  """Returns the scores of first against second agents [S, ...], by seed."""
  num_seeds, teams = options.num_seeds, _game(options).teams
  pair = tournament.round_robin(2, _NUM_DUEL, teams)
  seats = [seed + num_seeds * pair for seed in range(num_seeds)]
  results = _play(
    options,
    jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second),
    np.concatenate(seats),
  )
  played = evaluation.summarize(results, teams, 2 * num_seeds)
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
    # An arm may have only the first of the seeds.
    copies = scores['copies'][time][: len(scores[arm][time])]
    return evolution.with_interval((copies - scores[arm][time]).mean(axis=1))

  def at(arm: str, time: int) -> tuple[str, str]:
    if time >= len(scores[arm]):  # It ended early.
      return '', ''
    return f'{scores[arm][time].mean():.3f}', gain(arm, time)

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
        gain(arm, len(own) - 1),
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
        *(text for arm in cells for text in at(arm, time)),
      ]
      for time in range(len(cells['copies']))
    ],
  )


def draw_scores(cells: dict[str, list[Any]], path: pathlib.Path) -> None:
  """Draws the best member of each arm over steps, with the range of seeds."""
  figure = figures.make(6, 3.5)
  axes = figure.subplots()
  for arm, own in cells.items():
    scores = np.array([np.mean(cell['scores'], axis=1) for cell in own])
    steps = [cell['steps'] / 1e6 for cell in own]
    label = _LABELS.get(arm, arm)
    axes.plot(steps, scores.mean(axis=1), marker='o', markersize=3, label=label)
    axes.fill_between(steps, scores.min(axis=1), scores.max(axis=1), alpha=0.15)
  axes.set(xlabel='steps in millions', ylabel='score of the best member')
  axes.legend()
  figures.style(axes)
  figures.write_png(path, figure)


def _read_lineages(options: Options) -> tuple[Any, Any, Any]:
  """Returns steps [R], weights [R, S, E] and copies [S] of the best members."""
  directory = _directory(options, 'copies')
  with np.load(directory / 'rounds.npz') as file:
    rounds = dict(file)
  best, *_ = _load(directory / 'best.npz')
  seeds, member = np.arange(options.num_seeds), best[-1]
  lineage, num_copies = [], 0 * seeds
  for parents, weights in zip(
    rounds['parent'][::-1], rounds['internal_rewards'][::-1], strict=True
  ):
    parent = parents[seeds, member]
    num_copies, member = num_copies + (parent != member), parent
    lineage.append(weights[seeds, member])  # Before the copy.
  last = read_best(options, 'copies').internal_rewards
  return rounds['steps'], np.stack([*lineage[::-1], last])[1:], num_copies


def draw_rewards(steps: Any, weights: Any, path: pathlib.Path) -> None:
  """Draws the weights [R, S, E] of the surviving lineages, an axis an event."""
  figure = figures.make(9, 6)
  grid = figure.subplots(3, 5, sharex=True, sharey=True)
  for axes in grid.flat[len(EVENT_NAMES) :]:
    axes.set_visible(False)
  for event, (name, axes) in enumerate(
    zip(EVENT_NAMES, grid.flat, strict=False)
  ):
    axes.axhline(0.0, color='gray', linewidth=0.8)
    axes.plot(steps / 1e6, weights[..., event], linewidth=1)
    axes.set_title(words.readable(name).replace(' the flag', ''), fontsize=7)
    figures.style(axes)
  figure.supxlabel('steps in millions, a line a seed', fontsize=9)
  figures.write_png(path, figure)


def _worth(options: Options) -> Any:
  """Returns by how much more a team wins with an event once more, [E].

  The slope of a regression for each event, over games in which each of the best
  members plays each other.
  """
  best = read_best(options, 'copies')
  seats = tournament.round_robin(
    options.num_seeds, _NUM_DUEL, _game(options).teams
  )
  results = _play(options, best, seats)
  wins = 0.5 * (1.0 + np.array([result.outcome for result in results]))
  num_teams = wins.shape[1]
  counts = np.array([result.returns for result in results])
  counts = counts.reshape(len(results), num_teams, -1, counts.shape[-1])
  counts = counts.sum(axis=2).reshape(-1, counts.shape[-1])
  spread = counts - counts.mean(axis=0)
  return spread.T @ (wins.ravel() - 0.5) / np.sum(spread**2, axis=0)


def print_events(options: Options) -> None:
  """Prints and draws the rewards of the best members and their ancestors."""
  steps, weights, num_copies = _read_lineages(options)
  draw_rewards(steps, weights, _FIGURES / 'wide_priors_rewards.png')
  worth, rows = _worth(options), []
  for event, name in enumerate(EVENT_NAMES):
    start, end = weights[[0, -1], :, event]
    num_above = int((end > 0).sum())
    rows.append(
      [
        name,
        *(f'{a:+.2f} to {b:+.2f}' for a, b in zip(start, end, strict=True)),
        max(num_above, len(end) - num_above),
        f'{worth[event]:+.3f}',
      ]
    )
  names = [
    f'seed {options.first_seed + seed}, {copies} copies'
    for seed, copies in enumerate(num_copies)
  ]
  common.print_table(
    'the weight of each event, from the first draw to the best member',
    ['event', *names, 'same sign', 'chance to win'],
    rows,
  )
  found = scipy.stats.spearmanr(weights[-1].mean(axis=0), worth)
  print(f'rank correlation of mean weights and chances: {found.statistic:.2f}')


def main(options: Options) -> None:
  """Trains an arm, or judges all arms that are trained."""
  if options.train:
    train_arm(options)
    return
  cells = judge(options)
  print_scores(cells)
  draw_scores(cells, _FIGURES / 'wide_priors.png')
  print_events(options)


if __name__ == '__main__':
  launch.main(__file__)
