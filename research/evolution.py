"""Evolution judged by its best member, against members that never copy.

    uv run research/evolution.py --tasks catch --num_seeds=10

A cell is one run: an arm of a task with a seed, on one core. After it, the best
of its members is chosen on some games, and that member alone is scored on
others, which are the same in all arms of a seed. Arms have equal environment
steps, summed over members:

  apart    N members with values drawn from the priors, which never copy
  copies   the same members at the start, which copy as the task has it
  search   random search in breadth: 2 N members, half the steps each
  late     `copies`, four times as rare

Finished cells are kept in `--directory` and not repeated, and an
interrupted run is resumed. The table shows means over seeds, and the mean
difference to `apart` of the same seeds with the 95% interval of Student's t.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pbt_catch
import scipy.stats

import ftwax
from ftwax import types
from ftwax.cli import flags, launch
from ftwax.experiments import capture_the_flag  # noqa: TID251
from ftwax.inference import loading
from ftwax.records import loggers
from ftwax.runtime import evaluation, prepare, sharding
from ftwax.runtime.device import compiled_arena, matches
from ftwax.runtime.local import evaluations

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'benchmarks'))

import common  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this benchmark."""

  tasks: tuple[str, ...] = flags.flag((), 'Names; all by default.')
  arms: tuple[str, ...] = flags.flag((), 'Names; all by default.')
  first_seed: int = flags.flag(300, 'The first seed.')
  num_seeds: int = flags.flag(5, 'Runs of each arm.')
  directory: str = flags.flag('runs/evolution', 'Where cells are kept.')


# Games or episodes of each member on which the best one is chosen, and of the
# best one on which it is scored.
_NUM_CHOICE, _NUM_SCORE = 100, 200

_Experiment = ftwax.ExperimentConfig


def catch(seed: int, num_members: int) -> _Experiment:
  """The experiment pbt_catch with a quarter of its steps.

  With all of them the best of eight that never copy has the best return, 1.
  """
  options = pbt_catch.Options(
    num_members=num_members, max_num_actor_steps=250_000
  )
  return pbt_catch.make_experiment(options, seed, exploits=True)


def flag_quarter(seed: int, num_members: int) -> _Experiment:
  """A quarter of the main experiment's short run, and of its burn-in."""
  options = capture_the_flag.Options
  return capture_the_flag.build(
    options(
      seed=seed,
      num_members=num_members,
      num_environments=8 * num_members,
      max_num_actor_steps=options.max_num_actor_steps // 4,
      burn_in_games=options.burn_in_games // 4,
    )
  )


# The members and the experiment of each task.
TASKS: dict[str, tuple[int, Callable[[int, int], _Experiment]]] = {
  'catch': (8, catch),
  'flag_quarter': (4, flag_quarter),
}


def copies(experiment: _Experiment) -> _Experiment:
  """The task as it is."""
  return experiment


def apart(experiment: _Experiment) -> _Experiment:
  """Members that never copy."""
  return _with_population(experiment, exploits=False)


def late(experiment: _Experiment) -> _Experiment:
  """Copies are four times as rare, and the first is as late."""
  games = 4 * experiment.population.burn_in_games
  return _with_population(experiment, burn_in_games=games)


ARMS: dict[str, Callable[[_Experiment], _Experiment]] = {
  'apart': apart,
  'copies': copies,
  'search': apart,
  'late': late,
}


def _with_population(experiment: _Experiment, **changes: Any) -> _Experiment:
  return experiment.replace(population=experiment.population.replace(**changes))


def _make(task: str, arm: str, seed: int) -> _Experiment:
  num_members, build = TASKS[task]
  if arm == 'search':
    num_members *= 2
  made = ARMS[arm](build(seed, num_members))
  return made.replace(evaluation=made.evaluation.replace(greedy=False))


def run(options: Options, task: str, arm: str, seed: int) -> dict[str, Any]:
  """Runs one cell, or what is left of it, and judges it."""
  experiment = _make(task, arm, seed)
  directory = _directory(options, task, arm, seed)
  directory.parent.mkdir(parents=True, exist_ok=True)
  start = time.perf_counter()
  result = ftwax.run(
    experiment,
    runtime='device',
    run_dir=directory,
    resume=directory.exists(),
  )
  agents = loading.load_members(directory, experiment=experiment)
  scores = _play(experiment, agents, _NUM_CHOICE, 0).mean(axis=1)
  best = int(np.argmax(scores))
  (score,) = _play(experiment, agents[best : best + 1], _NUM_SCORE, 1)
  rows = loggers.read_jsonl(directory / 'lineage.jsonl')
  return {
    'task': task,
    'arm': arm,
    'seed': seed,
    'score': score.mean(),
    'scores': score.tolist(),
    'best': best,
    'choice': scores.tolist(),
    'copies': sum('parent' in row for row in rows),
    'steps': result.counts.actor_steps,
    'seconds': round(time.perf_counter() - start),
  }


def _play(
  experiment: _Experiment, agents: Sequence[Any], num_games: int, turn: int
) -> Any:
  """Returns agents' scores against scripts [N, K], or mean returns [N, 1]."""
  if experiment.name == 'capture_the_flag':
    games = Games(experiment, len(agents), num_games)
    return games.play(jax.device_get(_stack(agents)), turn)
  players = ftwax.PopulationConfig(num_members=len(agents), exploits=False)
  parts = prepare.prepare(experiment.replace(population=players))
  variables = [agent.variables for agent in agents]
  row = evaluation.make_row(
    evaluations.evaluate(parts, variables, num_games, (turn,))
  )
  returns = row.get('member_returns', [row['episode_return']])
  return np.expand_dims(returns, 1)


class Games:
  """Games of agents against the scripts, compiled once."""

  def __init__(
    self,
    experiment: _Experiment,
    num_agents: int,
    num_games: int,
    change: Callable[[types.ActorCore], types.ActorCore] = lambda same: same,
  ):
    """Plans so many games of each agent, whose policy may be changed."""
    players = ftwax.PopulationConfig(num_members=num_agents, exploits=False)
    parts = prepare.prepare(
      experiment.replace(population=players, num_environments=num_agents)
    )
    plan = evaluation.make_plan(parts, num_games)
    self._plan, self._key = plan, parts.key
    self._matches = matches.Matches(
      compiled_arena.make_arena(
        parts.evaluation_game, plan.seating, list(plan.opponents.values())
      ),
      change(parts.evaluation_policy),
      sharding.make_mesh(None),
    )

  def compile(self, variables: Any) -> None:
    """Compiles ahead of time for variables [N, ...]."""
    self._matches.compile(variables, self._plan.seats)

  def play(self, variables: Any, turn: int) -> Any:
    """Returns scores [N, K] of variables [N, ...]; each turn has its games."""
    plan = self._plan
    results = self._matches.play(
      jax.random.fold_in(self._key, turn),
      variables,
      plan.seats,
      plan.games_per_place,
    )
    results = evaluation.count_results(results, plan)
    row = evaluation.make_row(evaluation.Outcome(plan, results))
    return np.array(row['member_scores'])


def _stack(agents: Sequence[Any]) -> Any:
  return jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *(agent.variables for agent in agents)
  )


def _directory(
  options: Options, task: str, arm: str, seed: int
) -> pathlib.Path:
  return pathlib.Path(options.directory) / task / f'{arm}-seed{seed}'


def _read(options: Options) -> dict[tuple[str, str, int], Any]:
  """Returns the finished cells by task, arm and seed."""
  path = pathlib.Path(options.directory) / 'cells.jsonl'
  if not path.exists():
    return {}
  cells = map(json.loads, path.read_text('utf-8').splitlines())
  return {(cell['task'], cell['arm'], cell['seed']): cell for cell in cells}


def with_interval(differences: Sequence[float]) -> str:
  """Formats a mean of differences over seeds."""
  if len(differences) < 2:
    return ' '.join(f'{difference:+.3f}' for difference in differences)
  deviation = scipy.stats.sem(differences)
  half = scipy.stats.t.ppf(0.975, len(differences) - 1) * deviation
  return f'{np.mean(differences):+.3f} +- {half:.3f}'


def _summarize(arm: str, cells: Any, baseline: Any) -> list[Any]:
  """Returns the row of an arm from its cells and those of `apart`, by seed."""

  def mean(read: Callable[[Any], float], digits: int = 3) -> str:
    return f'{np.mean([read(cell) for cell in cells.values()]):.{digits}f}'

  shared = [] if arm == 'apart' else sorted(cells.keys() & baseline.keys())
  return [
    arm,
    len(cells),
    mean(lambda cell: cell['score']),
    mean(lambda cell: cell['scores'][-1]),
    mean(lambda cell: np.mean(cell['choice'])),
    with_interval(
      [cells[seed]['score'] - baseline[seed]['score'] for seed in shared]
    ),
    mean(lambda cell: cell['copies'], 1),
    mean(lambda cell: cell['seconds'], 0),
  ]


def print_tables(options: Options) -> None:
  """Prints a table for each task that has cells."""
  cells = _read(options)
  for task in TASKS:
    by_arm: dict[str, Any] = {arm: {} for arm in ARMS}
    for (own, arm, seed), cell in cells.items():
      if own == task:
        by_arm[arm][seed] = cell
    rows = [
      _summarize(arm, by_arm[arm], by_arm['apart'])
      for arm in ARMS
      if by_arm[arm]
    ]
    if rows:
      common.print_table(
        f'{task}: score of the best, on the hardest opponent, mean of members',
        [
          'arm', 'seeds', 'best', 'hardest', 'members', 'best less apart',
          'copies', 'seconds',
        ],
        rows,
      )  # fmt: skip


def main(options: Options) -> None:
  """Runs the cells that are missing, then prints the tables."""
  os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
  for seed in range(options.first_seed, options.first_seed + options.num_seeds):
    for task in options.tasks or TASKS:
      for arm in options.arms or ARMS:
        if (task, arm, seed) not in _read(options):
          cell = run(options, task, arm, seed)
          path = pathlib.Path(options.directory) / 'cells.jsonl'
          with path.open('a', encoding='utf-8') as file:
            file.write(json.dumps(cell) + '\n')
  print(common.machine_line())
  print_tables(options)


if __name__ == '__main__':
  launch.main(__file__)
