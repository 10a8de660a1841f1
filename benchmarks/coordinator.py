"""Load of the coordinator of a distributed run, by number of members.

    uv run benchmarks/coordinator.py

Its nodes are simulated: actors return random results at once, and learners
learn nothing, but they hold, give and adopt real members. All games of an
order end with it, so that each order is followed by ratings, evolution and new
seats. The table has the time that the coordinator takes by itself, and
the steps a second that it could handle in trajectories of the default length.
"""

import argparse
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import common
import numpy as np

from ftwax import types
from ftwax.agents import impala
from ftwax.environments import capture_the_flag
from ftwax.population import population_config
from ftwax.reporting import history
from ftwax.runtime import distributed, experiment, prepare
from ftwax.runtime.device import compiled_arena, rollout
from ftwax.runtime.distributed import learner, messages, runner

_NUM_ACTORS = 2
_GAME_LENGTH = 100


class _Learner(learner.Learner):
  """Counts updates without computing them."""

  def learn(
    self, items: Any
  ) -> tuple[messages.Learned, types.ActorVariables | None]:
    """Reports an update."""
    del items
    self._check_restored()
    self._num_updates = getattr(self, '_num_updates', 0) + 1
    report = messages.Learned(self._num_updates, 0, True, [])
    return report, self.variables()


class _Actor:
  """Returns random results."""

  def __init__(self, parts: prepare.Prepared):
    """Starts without seats."""
    self._spec, self._seating = parts.spec, parts.seating
    self._random = np.random.default_rng(0)

  def play(
    self, order: messages.Order, *variables: Any
  ) -> tuple[messages.Played, Any]:
    """Ends all games of a round."""
    del variables
    assert order.seats is not None
    # One step, with which all games end.
    num_games = len(order.seats)
    num_members = self._seating.num_members
    rows = 1, num_members, self._seating.seats_per_member
    ended = np.ones(rows, bool)
    outcomes = np.array([1.0, -1.0], np.float32)
    outcomes = self._random.permuted(
      np.tile(outcomes, (1, num_games, 1)), axis=2
    )
    returns = self._random.normal(size=(*rows, self._spec.num_events))
    episodes = rollout.Episodes(
      ended,
      ended,
      returns.astype(np.float32),
      np.full(rows, _GAME_LENGTH, np.int32),
      compiled_arena.Results(np.ones((1, num_games), bool), outcomes),
      (),
    )
    return messages.Played(order.num_steps, episodes, True, True, None, {}), ()


class _Engine(distributed.InProcess):
  """Runs simulated nodes, and leaves out the time that they take.

  Attributes:
    orders: time of the coordinator at each order, in seconds.
  """

  def __init__(self, parts: prepare.Prepared):
    super().__init__()
    self._parts = parts
    self._node_seconds = 0.0
    self.orders: list[float] = []

  def start(self, nodes: Mapping[str, Callable[[], Any]]) -> None:
    """Replaces the nodes."""
    parts, actor = self._parts, _Actor(self._parts)
    super().start(
      {
        name: (lambda: actor)
        if name.startswith('actor')
        else (lambda: _Learner(parts, 1, 0, 1))
        for name in nodes
      }
    )

  def call(
    self, name: str, method: str, *args: Any, num_returns: int = 1
  ) -> list[Any]:
    """Calls a node."""
    start = time.perf_counter()
    if method == 'play':
      self.orders.append(start - self._node_seconds)
    result = super().call(name, method, *args, num_returns=num_returns)
    self._node_seconds += time.perf_counter() - start
    return result


def run(num_members: int, num_orders: int) -> tuple[str, ...]:
  """Returns the row of a population of `num_members`."""
  game = capture_the_flag.make()
  # Each member has four seats.
  num_games = 4 * num_members // len(game.teams)
  agent = impala.IMPALAConfig(
    core='feed_forward', hidden_size=8, vector_hidden_sizes=(8,)
  )
  steps_per_order = 4 * num_members * agent.sequence_length
  load = experiment.ExperimentConfig(
    name='load',
    agent=agent,
    environment=game,
    num_environments=num_games,
    max_num_actor_steps=num_orders * steps_per_order,
    population=population_config.PopulationConfig(
      num_members, burn_in_games=10, win_probability_threshold=0.6
    ),
  )
  parts = prepare.prepare(load)
  engine = _Engine(parts)
  with tempfile.TemporaryDirectory() as directory:
    runner.run_with(
      lambda: engine,
      parts,
      pathlib.Path(directory),
      settings=distributed.Settings(num_actors=_NUM_ACTORS),
    )
    num_copies = len(history.read_lineage(directory)) - 1
  # The first orders compile the evolution.
  seconds = np.diff(engine.orders[num_orders // 5 :])
  return (
    f'{num_members}',
    f'{num_games}',
    f'{1e3 * np.median(seconds):.1f}, {1e3 * np.max(seconds):.1f}',
    f'{steps_per_order / np.mean(seconds):,.0f}',
    f'{num_copies}',
  )


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('members', nargs='*', type=int, default=[8, 64, 256])
  parser.add_argument('--orders', type=int, default=100)
  arguments = parser.parse_args()
  common.print_table(
    f'{arguments.orders} orders of {_NUM_ACTORS} actors,'
    f' {common.machine_line()}',
    ('members', 'games', 'ms an order: median, longest', 'steps/s', 'copies'),
    [run(members, arguments.orders) for members in arguments.members],
  )


if __name__ == '__main__':
  main()
