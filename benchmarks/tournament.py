"""Tournament between populations of several runs, on maps never trained on.

    uv run benchmarks/tournament.py --runs=capture_the_flag,RUN_DIR,RUN_DIR

Members of each run and the scripted players play against each other in teams of
copies. Then members play against the scripts together with another member of
their own population, or with a stranger, a member of another run, as in the
robustness tests of Jaderberg et al. (2019, arXiv:1807.01281). Maps are drawn
from `--seed`; no run has trained on the size 13x17. Ratings are Elo points
above the random player. Intervals of ratings and scores are 95% intervals,
bootstrapped over games.
"""

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import common
import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags, logging

from ftwax.environments import capture_the_flag, functional
from ftwax.inference import loading
from ftwax.population import players, ratings, tournament
from ftwax.records import files, tournament_files
from ftwax.reporting import page, population_figures
from ftwax.runtime.device import matches

_RUNS = flags.DEFINE_list(
  'runs',
  None,
  'Directories of runs, or names of populations that come with the library.',
)
_MEMBERS = flags.DEFINE_integer('members', 2, 'Members of each run, the first.')
_SIZES = flags.DEFINE_list('sizes', '11x15,13x17', 'Rows and columns of maps.')
_GAMES = flags.DEFINE_integer(
  'games', 10, 'Games of each pair of players, and of each mixed team.'
)
_SEED = flags.DEFINE_integer('seed', 1_000, 'Seed of maps and actions.')
_RESAMPLES = flags.DEFINE_integer('resamples', 200, 'Samples of the bootstrap.')
_DIRECTORY = flags.DEFINE_string(
  'directory', 'runs/tournament', 'Directory of the results and the page.'
)
flags.mark_flag_as_required('runs')

_INTERVAL = (2.5, 97.5)


class Cast(NamedTuple):
  """The players: members of all runs, run by run, then scripts.

  Attributes:
    names: names of the players, [P].
    runs: indices of the members of each run.
    scripts: indices of the scripted players; the first is the random player.
  """

  names: tuple[str, ...]
  runs: tuple[range, ...]
  scripts: range


class Mixed(NamedTuple):
  """Teams of two players against copies of a script.

  Attributes:
    teams: int [G, 2, 2], the players of each side.
    is_stranger: bool [G], whether the two players belong to different runs.
    run: int [G], index of the run of the first of the two.
    script: int [G], index of the script among the players.
  """

  teams: Any
  is_stranger: Any
  run: Any
  script: Any


def load(game: functional.FunctionalGame) -> tuple[Cast, list[Any], Any]:
  """Returns the cast, the first run's agents, and other players by name."""
  names, runs, agents = [], [], []
  for run in _RUNS.value:
    first = len(names)
    members = loading.load_members(run, greedy=False)
    if len(members) < _MEMBERS.value:
      raise ValueError(
        f'--members ({_MEMBERS.value}) must be those of {run} at most; choose'
        f' {len(members)}.'
      )
    agents += members[: _MEMBERS.value]
    names += [
      f'{pathlib.Path(run).name} {member}' for member in range(_MEMBERS.value)
    ]
    runs.append(range(first, len(names)))
  others = {
    name: agent.player
    for name, agent in zip(
      names[_MEMBERS.value :], agents[_MEMBERS.value :], strict=True
    )
  }
  players.check_specs(
    {name: agent.player for name, agent in zip(names, agents, strict=True)},
    game.spec,
  )
  scripts = {'random': players.uniform(game.spec.actions)}
  scripts |= {
    name: players.scripted(script) for name, script in game.scripts.items()
  }
  first = len(names)
  cast = Cast(
    (*names, *scripts), tuple(runs), range(first, first + len(scripts))
  )
  return cast, agents[: _MEMBERS.value], {**others, **scripts}


def mix(cast: Cast) -> Mixed:
  """Returns the games of mixed teams, equally often on either side."""
  rows = []
  members = [member for run in cast.runs for member in run]
  run_of = {
    member: index for index, run in enumerate(cast.runs) for member in run
  }
  for first, second in itertools.permutations(members, 2):
    for script in cast.scripts:
      for game in range(_GAMES.value):
        sides = [[first, second], [script, script]]
        rows.append(
          (
            sides if game % 2 == 0 else sides[::-1],
            run_of[first] != run_of[second],
            run_of[first],
            script,
          )
        )
  return Mixed(*(np.array(column) for column in zip(*rows, strict=True)))


def to_seats(teams: Any, team_of_seats: Sequence[int]) -> np.ndarray:
  """Returns the player on each seat, [G, P], given teams [G, 2, team_size]."""
  seats = np.empty((len(teams), len(team_of_seats)), np.int32)
  order = np.argsort(team_of_seats, kind='stable')
  seats[:, order] = teams.reshape(len(teams), -1)
  return seats


def play(
  key: Any, game: functional.FunctionalGame, loaded: Any, teams: Any
) -> np.ndarray:
  """Plays games and returns the scores of the blue team, float [G]."""
  _, agents, others = loaded
  variables = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *(agent.variables for agent in agents)
  )
  seats = to_seats(teams, game.teams)
  results = matches.play(key, game, agents[0].actor, variables, others, seats)
  return np.array([0.5 * (1.0 + result.outcome[0]) for result in results])


def rate(key: Any, cast: Cast, teams: Any, outcomes: Any) -> Any:
  """Returns the results of all games, with intervals by bootstrap."""
  num_players, anchor = len(cast.names), cast.scripts[0]
  # Win rates are only computed for teams of copies.
  is_pure = (teams == teams[:, :, :1]).all(axis=(1, 2))
  sides = np.repeat([0, 1], teams.shape[2])
  seats = to_seats(teams, sides)
  results = np.stack([outcomes, 1.0 - outcomes], axis=1)
  summary = tournament.summarize(
    seats[is_pure], results[is_pure], sides, num_players, anchor
  )
  games = ratings.multiplicities(jnp.asarray(seats), sides, num_players)[:, 0]
  scores = jnp.asarray(outcomes, jnp.float32)
  fitted = ratings.fit(games, scores, anchor, 0.0).ratings
  samples = ratings.bootstrap(key, games, scores, _RESAMPLES.value, anchor, 0.0)
  lows, highs = np.percentile(np.asarray(samples), _INTERVAL, axis=0)
  return tournament_files.Results(
    players=cast.names,
    num_members=cast.scripts[0],
    anchor=anchor,
    ratings=np.asarray(fitted),
    lows=lows,
    highs=highs,
    win_rates=summary.win_rates,
    half_widths=0.5 * (summary.highs - summary.lows),
    num_games=len(teams),
  )


def compare_mates(
  cast: Cast, mixed: Mixed, outcomes: np.ndarray
) -> tuple[list[str], list[list[str]]]:
  """Returns the header and rows of scores with teammates and strangers."""
  is_blue = ~np.isin(mixed.teams[:, 0, 0], cast.scripts)
  scores = np.where(is_blue, outcomes, 1.0 - outcomes)
  head = ['beside', *(cast.names[script] for script in cast.scripts)]
  rows = []
  for run, name in enumerate(_RUNS.value):
    for is_stranger, mate in ((False, 'its own'), (True, 'a stranger')):
      row = [f'{pathlib.Path(name).name}, {mate}']
      for script in cast.scripts:
        chosen = scores[
          (mixed.run == run)
          & (mixed.is_stranger == is_stranger)
          & (mixed.script == script)
        ]
        row.append(common.summarize(chosen) if len(chosen) else '-')
      rows.append(row)
  return head, rows


def run_size(size: str, directory: pathlib.Path) -> list[str]:
  """Plays on maps of one size; writes results and returns parts of the page."""
  height, width = map(int, size.split('x'))
  game = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(height=height, width=width)
  )
  loaded = load(game)
  cast = loaded[0]
  pure = tournament.round_robin(
    len(cast.names), 2 * (-(-_GAMES.value // 2)), game.teams
  )
  order = np.argsort(game.teams, kind='stable')
  pure = pure[:, order].reshape(len(pure), 2, -1)
  mixed = mix(cast)
  teams = np.concatenate([pure, mixed.teams])
  play_key, bootstrap_key = jax.random.split(jax.random.PRNGKey(_SEED.value))
  outcomes = play(play_key, game, loaded, teams)
  results = rate(bootstrap_key, cast, teams, outcomes)
  (directory / size).mkdir(parents=True, exist_ok=True)
  tournament_files.write(directory / size, results)
  head, rows = compare_mates(cast, mixed, outcomes[len(pure) :])
  ranking_head, ranking = population_figures.tabulate_tournament(results)
  print(f'\nMaps of {size}, {len(teams):,} games')
  _print(ranking_head, ranking)
  _print(head, rows)
  return [
    *page.charts(
      f'Maps of {size}',
      f'{len(teams):,} games. Lines are 95% intervals by bootstrap.',
      [population_figures.tournament(results)],
    ),
    page.columns(ranking_head, ranking),
    page.paragraph('Win rates of teams of copies, and half their intervals.'),
    population_figures.payoff(
      results.win_rates, results.players, results.half_widths, '±{:.0%}'
    ),
    page.paragraph(
      'Scores against two copies of a script, of a member beside another one of'
      ' its run, and beside a member of another run.'
    ),
    page.columns(head, rows),
  ]


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
  widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
  for row in (head, *rows):
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    print('  '.join(cells).rstrip())


def main(argv: Sequence[str]) -> None:
  """Plays on maps of each size and writes the page."""
  del argv
  logging.set_verbosity(logging.WARNING)
  directory = pathlib.Path(_DIRECTORY.value)
  print(common.machine_line())
  body = [part for size in _SIZES.value for part in run_size(size, directory)]
  path = directory / 'tournament.html'
  files.write_atomically(path, page.render('Tournament', body))
  print(f'\nPage: {path}')


if __name__ == '__main__':
  app.run(main)
