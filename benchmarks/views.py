"""Times a step of capture the flag by what players see.

    uv run benchmarks/views.py

Games on maps of 11x15 play random actions in a compiled loop. The views take
turns, and times are those of the processor, which other work on the machine
changes little.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import common
import jax
import numpy as np

from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag, functional
from ftwax.environments.capture_the_flag import actions

VIEWS: dict[str, dict[str, Any]] = {
  'features': {},
  'rays': {'observation': 'rays', 'compass': False},
  'rgb, 21x21': {'observation': 'rgb', 'tile_size': 3},
  'columns, 48x72': {'observation': 'columns', 'num_rays': 72},
}

_NUM_STEPS = 299  # Nothing is reset.


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this benchmark."""

  num_games: int = flags.flag(32, 'Games at a time.')
  num_rounds: int = flags.flag(25, 'Calls of each view.')


def make_call(config: Any, num_games: int) -> Callable[[], Any]:
  """Returns a compiled call of so many steps of games."""
  games = functional.vectorize(capture_the_flag.make(config), num_games)
  shape = (_NUM_STEPS, num_games, config.num_players)
  action = {
    name: jax.random.randint(jax.random.PRNGKey(index), shape, 0, limit)
    for index, (name, limit) in enumerate(actions.NUM_CHOICES.items())
  }
  state, _ = jax.jit(games.reset)(jax.random.PRNGKey(0))

  @jax.jit
  def play(state: Any, action: Any) -> Any:
    def step(state: Any, action: Any) -> Any:
      state, timestep = games.step(state, action)
      return state, (timestep.reward, timestep.observation)

    return jax.lax.scan(step, state, action)

  return lambda: jax.block_until_ready(play(state, action))


def main(options: Options) -> None:
  """Prints the microseconds of a game's step, and ratios to `features`."""
  base = capture_the_flag.CaptureTheFlagConfig(height=11, width=15)
  calls = {
    name: make_call(base.replace(**changes), options.num_games)
    for name, changes in VIEWS.items()
  }
  for call in calls.values():
    call()
  seconds: dict[str, list[float]] = {name: [] for name in calls}
  for _ in range(options.num_rounds):
    for name, call in calls.items():
      before = time.process_time()
      call()
      seconds[name].append(time.process_time() - before)
  print(common.machine_line())
  first = np.array(next(iter(seconds.values())))
  common.print_table(
    'Processor time of a step of a game of four players',
    ['view', 'microseconds', 'ratio of pairs'],
    [
      [
        name,
        f'{np.median(times) / _NUM_STEPS / options.num_games * 1e6:.1f}',
        f'{np.median(np.array(times) / first):.2f}',
      ]
      for name, times in seconds.items()
    ],
  )


if __name__ == '__main__':
  launch.main(__file__)
