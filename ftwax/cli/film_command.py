"""Films an episode of a run's agents, as a GIF.

In a team game, each team consists of copies of one player. The environment must
support rendering; see `LoadedAgent.record`.
"""

import argparse
import pathlib

from ftwax.cli import past_runs
from ftwax.environments import vector
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import loaded_agent, loading


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the run and the players."""
  past_runs.add_arguments(parser)
  parser.add_argument(
    '--players',
    nargs='+',
    default=['0'],
    metavar='PLAYER',
    help='for each team, the number of a member or the name of a script:'
    ' 0 random (0)',
  )
  parser.add_argument('--out', help='path of the GIF (RUN/videos/film.gif)')
  parser.add_argument(
    '--seed', type=int, default=0, help='random seed of the episode (0)'
  )
  parser.add_argument(
    '--steps', type=int, default=1000, help='maximum number of steps (1000)'
  )
  parser.add_argument(
    '--greedy',
    action='store_true',
    help='take the most probable action instead of sampling',
  )


def run(arguments: argparse.Namespace) -> int:
  """Films the episode and prints the path of the film."""
  out = arguments.out or pathlib.Path(arguments.run) / 'videos' / 'film.gif'
  with past_runs.rebuilt(arguments.run, arguments.experiment) as experiment:
    players = [_load(arguments, experiment, name) for name in arguments.players]
    agents = [player for player in players if not isinstance(player, str)]
    agent = agents[0] if agents else _load(arguments, experiment, '0')
    assert isinstance(agent, loaded_agent.LoadedAgent)
    path = agent.record(
      _make_environment(experiment, arguments.seed),
      out,
      [players[team % len(players)] for team in agent.game_spec.teams],
      seed=arguments.seed,
      max_num_steps=arguments.steps,
    )
  print(path)
  return 0


def _load(
  arguments: argparse.Namespace,
  experiment: experiment_lib.ExperimentConfig,
  name: str,
) -> loaded_agent.LoadedAgent | str:
  """Loads a member, or returns the name of a script unchanged."""
  if not name.isdecimal():
    return name
  return loading.load(
    arguments.run,
    int(name),
    arguments.greedy,
    experiment,
    arguments.step,
  )


def _make_environment(
  experiment: experiment_lib.ExperimentConfig, seed: int
) -> object:
  factory = experiment.evaluation_factory
  if isinstance(factory, vector.VectorFactory):
    raise ValueError(
      'environment of the run must make single environments for a film,'
      ' and makes vectors; pass --experiment with one that does.'
    )
  return factory(seed)
