"""Films an episode of a run's agents, as a GIF.

In a team game, each team consists of copies of one player. The environment must
support rendering; see `LoadedAgent.record`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from ftwax.cli import flags, sources

if TYPE_CHECKING:
  from ftwax.inference import loaded_agent
  from ftwax.runtime import experiment as experiment_lib


@dataclasses.dataclass(frozen=True)
class Options(sources.RunOptions):
  """Flags of `ftwax film`."""

  players: tuple[str, ...] = flags.flag(
    ('0',), 'For each team, the number of a member or the name of a script.'
  )
  out: str | None = flags.flag(
    None, 'Path of the GIF; by default RUN/videos/film.gif.'
  )
  seed: int = flags.flag(0, 'Random seed of the episode.')
  steps: int = flags.flag(1000, 'Maximum number of steps.')
  seat: int | None = flags.flag(
    None, 'Seat, from 0, whose view is shown beside the game.'
  )
  greedy: bool = flags.flag(
    False, 'Take the most probable action instead of sampling.'
  )


def run(options: Options) -> int:
  """Films the episode and prints the path of the film."""
  flags.check_seed(options)
  options = dataclasses.replace(options, run=sources.find_run(options.run))
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import past_runs
  from ftwax.inference import loaded_agent
  from ftwax.runtime import devices

  out = options.out or pathlib.Path(options.run) / 'videos' / 'film.gif'
  devices.keep_compiled_functions()
  experiment = past_runs.rebuild(options.run, options.experiment)
  players = [
    load(options, options.greedy, experiment, name) for name in options.players
  ]
  agents = [player for player in players if not isinstance(player, str)]
  agent = (
    agents[0] if agents else load(options, options.greedy, experiment, '0')
  )
  assert isinstance(agent, loaded_agent.LoadedAgent)
  path = agent.record(
    _make_environment(experiment, options.seed),
    out,
    [players[team % len(players)] for team in agent.game_spec.teams],
    seed=options.seed,
    max_num_steps=options.steps,
    seat=options.seat,
  )
  print(path)
  return 0


def load(
  options: sources.RunOptions,
  greedy: bool,
  experiment: experiment_lib.ExperimentConfig,
  name: str,
) -> loaded_agent.LoadedAgent | str:
  """Loads a member, or returns the name of a script unchanged."""
  if not name.isdecimal():
    return name
  from ftwax.inference import loading  # Slow import.

  return loading.load(
    options.run, int(name), greedy, experiment, options.checkpoint
  )


def _make_environment(
  experiment: experiment_lib.ExperimentConfig, seed: int
) -> object:
  from ftwax.environments import vector  # Slow import.

  environment = experiment.evaluation.environment or experiment.environment
  if isinstance(environment, str):
    return environment  # Of Gymnasium, which is to be made with a render mode.
  factory = experiment.evaluation_factory
  if isinstance(factory, vector.VectorFactory):
    raise ValueError(
      'environment of the run must make single environments for a film,'
      ' and makes vectors; pass --experiment with one that does.'
    )
  return factory(seed)
