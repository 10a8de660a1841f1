"""Records games of a run's agents or of scripts, to learn from.

    ftwax record capture_the_flag --players=tactician --games=500 --out=games
    ftwax train ... --demonstrations=games

In a team game, each team consists of copies of one player. What the seats of
the first one saw and did is kept. A folder that has games gets more.
"""

from __future__ import annotations

import dataclasses

from ftwax.cli import film_command, flags, sources


@dataclasses.dataclass(frozen=True)
class Options(sources.RunOptions):
  """Flags of `ftwax record`."""

  out: str = flags.flag('recorded', 'Folder of the recorded games.')
  players: tuple[str, ...] = flags.flag(
    ('0',), 'For each team, the number of a member or the name of a script.'
  )
  games: int = flags.flag(100, 'Number of games.')
  seed: int = flags.flag(0, 'Random seed of games and players.')
  greedy: bool = flags.flag(
    False, 'Take the most probable action instead of sampling.'
  )


def run(options: Options) -> int:
  """Records games, and prints how many there are."""
  flags.check_seed(options)
  if options.games < 1:
    raise ValueError(
      f'games ({options.games}) must be at least 1; choose e.g. 100.'
    )
  options = dataclasses.replace(options, run=sources.find_run(options.run))
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import past_runs
  from ftwax.environments import game_vectors
  from ftwax.inference import filming, recording
  from ftwax.records import recorded_games
  from ftwax.runtime import devices

  devices.keep_compiled_functions()
  experiment = past_runs.rebuild(options.run, options.experiment)
  named = [
    film_command.load(options, options.greedy, experiment, name)
    for name in options.players
  ]
  factory = experiment.evaluation_factory
  environment = factory(options.seed)
  spec = game_vectors.read_spec(factory, 'recording')
  players = [
    filming.find_script(player, environment, spec)
    if isinstance(player, str)
    else player.player
    for player in named
  ]
  seats = [team % len(players) for team in spec.teams]
  print(f'Plays {options.games:,} games.', flush=True)
  recording.record(
    factory,
    [players[index] for index in seats],
    [seat for seat, index in enumerate(seats) if not index],
    options.games,
    options.out,
    options.seed,
    show=lambda count: print(
      f'{count:,} of {options.games:,} games', flush=True
    ),
  )
  steps = recorded_games.count_steps(options.out)
  print(f'{options.out} has {steps:,} recorded steps.')
  return 0
