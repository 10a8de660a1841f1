"""Records games of agents, scripts or people, to learn from.

    ftwax record capture_the_flag --players=tactician --games=500 --out=games
    ftwax record capture_the_flag --saved=runs/games --out=games
    ftwax record --minari=D4RL/door/human-v2 --out=games
    ftwax train ... --demonstrations=games

In a team game, each team consists of copies of one player. What the seats of
the first one saw and did is kept. Of games saved by `ftwax play`, it is what
people saw and did. Episodes of a Minari data set are kept as they are. A folder
that has games gets more.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

from ftwax.cli import film_command, flags, sources


@dataclasses.dataclass(frozen=True)
class Options(sources.RunOptions):
  """Flags of `ftwax record`."""

  run: str = flags.argument(
    'Directory of the run, or of several, of which it takes the newest; or the'
    ' name of a population of the library.',
    default='',
  )
  out: str = flags.flag('recorded', 'Folder of the recorded games.')
  players: tuple[str, ...] = flags.flag(
    (),
    'For each team, the number of a member or the name of a script; by default'
    ' 0. With --saved, whom to keep: people, all, or names.',
  )
  saved: str | None = flags.flag(
    None, 'Folder of games saved by ftwax play, in place of new ones.'
  )
  minari: str | None = flags.flag(
    None, 'Minari data set, in place of games of a run.'
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
  if (options.minari is None) == (not options.run):
    raise ValueError(
      'run must be given, or else --minari, and not both; choose e.g. ftwax'
      ' record capture_the_flag.'
    )
  if options.run:
    options = dataclasses.replace(options, run=sources.find_run(options.run))
  if options.saved is not None and not pathlib.Path(options.saved).is_dir():
    raise ValueError(
      f'saved ({options.saved}) must be a folder of saved games; choose e.g.'
      ' runs/games.'
    )
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.records import recorded_games
  from ftwax.runtime import devices

  devices.keep_compiled_functions()
  if options.minari is not None:
    _record_minari(options)
  elif options.saved is not None:
    _record_saved(options)
  else:
    _record(options)
  steps = recorded_games.count_steps(options.out)
  print(f'{options.out} has {steps:,} recorded steps.')
  return 0


def _record_minari(options: Options) -> None:
  """Records the episodes of a Minari data set."""
  from ftwax.records import recorded_episodes

  num_episodes = recorded_episodes.from_minari(options.out, options.minari)
  print(f'{options.minari} has {num_episodes:,} episodes.')


def _record_saved(options: Options) -> None:
  """Records what was seen and done in saved games."""
  from ftwax.cli import past_runs
  from ftwax.inference import replaying

  num_games = replaying.record(
    past_runs.find_game(options.run, options.experiment),
    str(options.saved),
    options.out,
    options.players or (replaying.PEOPLE,),
    lambda text: print(text, file=sys.stderr),
  )
  print(f'{num_games:,} saved games were played again.')


def _record(options: Options) -> None:
  """Plays games and records them."""
  from ftwax.cli import past_runs
  from ftwax.environments import game_vectors
  from ftwax.inference import filming, recording

  experiment = past_runs.rebuild(options.run, options.experiment)
  named = [
    film_command.load(options, options.greedy, experiment, name)
    for name in options.players or ('0',)
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
