"""Numbers of steps, rows and updates in iterations, calls and rounds."""

import fractions
from typing import Any, NamedTuple

import jax

from ftwax.runtime import prepare

# Approximate number of steps per call: enough to hide the overhead of a call,
# few enough to show progress and to answer interrupts promptly. On accelerators
# it is a multiple, since the host's work between calls is more of their time.
_STEPS_PER_CALL = 16384
_MULTIPLE_ON_ACCELERATORS = 8

# Largest fraction of a run that a call may take, since the last call may
# overshoot the run by nearly all of its steps.
MAX_OVERSHOOT = 0.1


# Most rollouts between two updates from a replay.
_MAX_ROLLOUTS = 128


class Sizes(NamedTuple):
  """Sizes of an iteration.

  Attributes:
    sequence_length: T, number of steps of a rollout.
    num_rows: M, number of rows of a member's rollout.
    batch_size: B, number of trajectories in an update.
    num_members: N.
    fresh: number of fresh trajectories for each update; None for B, each of
      which is used once.
  """

  sequence_length: int
  num_rows: int
  batch_size: int
  num_members: int = 1
  fresh: fractions.Fraction | None = None

  @property
  def num_rollouts(self) -> int:
    """R, number of rollouts per iteration, all with the same policy.

    It is the smallest with which each trajectory is in one batch or, where
    batches are sampled, with which there is a whole number of updates.
    """
    return (self.num_rows / self._fresh).denominator

  @property
  def num_updates(self) -> int:
    """U, number of updates per iteration."""
    return (self.num_rows / self._fresh).numerator

  @property
  def _fresh(self) -> fractions.Fraction:
    return self.fresh or fractions.Fraction(self.batch_size)

  @property
  def steps_per_iteration(self) -> int:
    """Number of steps of all members in all rows, including resets."""
    steps = self.num_rollouts * self.sequence_length
    return steps * self.num_rows * self.num_members

  def iterations_per_round(self, steps_per_round: int) -> int:
    """Returns the number of iterations per round, a multiple of a call's.

    Args:
      steps_per_round: minimum number of steps of each game.
    """
    num_steps = self.num_rollouts * self.sequence_length
    num_iterations = -(-steps_per_round // num_steps)
    per_call = self._per_call(num_iterations)
    return -(-num_iterations // per_call) * per_call

  def iterations_per_call(
    self, iterations_per_round: int, max_num_steps: int
  ) -> int:
    """Returns K, a divisor of `iterations_per_round`.

    Args:
      iterations_per_round: number of iterations per round.
      max_num_steps: steps of the whole run; keeps short runs from overshooting.
    """
    most = int(MAX_OVERSHOOT * max_num_steps) // self.steps_per_iteration
    num_iterations = self._per_call(iterations_per_round)
    # Reaches 1 at the latest, which divides everything.
    while (
      num_iterations > max(1, most) or iterations_per_round % num_iterations
    ):
      num_iterations -= 1
    return num_iterations

  def _per_call(self, num_iterations: int) -> int:
    """Returns the size of calls that overshoot `num_iterations` the least."""
    num_steps = _STEPS_PER_CALL
    if jax.default_backend() != 'cpu':
      num_steps *= _MULTIPLE_ON_ACCELERATORS
    most = max(1, num_steps // self.steps_per_iteration)
    if num_iterations <= most:
      return num_iterations
    # `min` keeps the first of equal candidates, so the largest size wins a tie.
    return min(
      range(most, most // 4, -1), key=lambda size: -num_iterations % size
    )


def make_sizes(parts: prepare.Prepared) -> Sizes:
  """Returns the sizes of a run's iterations.

  Raises:
    ValueError: if updates from a replay would be too far apart.
  """
  agent, seating = parts.experiment.agent, parts.seating
  sizes = Sizes(
    agent.sequence_length,
    seating.seats_per_member,
    agent.batch_size,
    seating.num_members,
    agent.trajectories_per_update,
  )
  if agent.learns_from_replay and sizes.num_rollouts > _MAX_ROLLOUTS:
    replay: Any = agent.replay
    raise ValueError(
      f'samples_per_insert ({replay.samples_per_insert}) must give a'
      f' whole number of updates of {sizes.batch_size} samples after at most'
      f' {_MAX_ROLLOUTS} times {sizes.num_rows} trajectories; choose'
      f' {sizes.batch_size / sizes.num_rows:g}.'
    )
  return sizes
