"""The numbers of steps, rows and updates in iterations, calls and rounds."""

from typing import NamedTuple

import jax

from ftwax import types

# Steps of a call, about: enough to hide its overhead, few enough that progress
# is shown and interrupts are answered at once.
_STEPS_PER_CALL = 8192


class Sizes(NamedTuple):
  """Sizes of an iteration.

  Attributes:
    sequence_length: T, steps of a rollout.
    num_rows: M, rows of a member's rollout.
    batch_size: B, trajectories in an update.
    num_members: N.
    unroll: whether updates are compiled outside of loops.
  """

  sequence_length: int
  num_rows: int
  batch_size: int
  num_members: int
  unroll: bool

  @property
  def num_rollouts(self) -> int:
    """R, rollouts of an iteration, all with the same policy."""
    return max(1, self.batch_size // self.num_rows)

  @property
  def num_updates(self) -> int:
    """U, updates of an iteration."""
    return max(1, self.num_rows // self.batch_size)

  @property
  def steps_per_iteration(self) -> int:
    """Steps of all members in all rows, resets included."""
    steps = self.num_rollouts * self.sequence_length
    return steps * self.num_rows * self.num_members

  def iterations_per_round(self, steps_per_round: int) -> int:
    """Returns the iterations of a round, a whole number of calls.

    Args:
      steps_per_round: steps of each game, at the least.
    """
    num_steps = self.num_rollouts * self.sequence_length
    num_iterations = -(-steps_per_round // num_steps)
    per_call = self._per_call(num_iterations)
    return -(-num_iterations // per_call) * per_call

  def iterations_per_call(
    self, iterations_per_round: int, max_num_steps: int
  ) -> int:
    """Returns K, which divides `iterations_per_round`.

    Args:
      iterations_per_round: see there.
      max_num_steps: of the run, so that short ones do not end late.
    """
    most = max(1, max_num_steps // self.steps_per_iteration)
    num_iterations = self._per_call(iterations_per_round)
    while num_iterations > most or iterations_per_round % num_iterations:
      num_iterations -= 1
    return num_iterations

  def _per_call(self, num_iterations: int) -> int:
    """Returns the size of calls that exceed `num_iterations` the least."""
    if self.unroll:
      return 1
    most = max(1, _STEPS_PER_CALL // self.steps_per_iteration)
    if num_iterations <= most:
      return num_iterations
    # Of sizes that exceed by the same number, the largest.
    return min(
      range(most, most // 2, -1), key=lambda size: -num_iterations % size
    )


def make_sizes(
  environment_spec: types.EnvironmentSpec,
  sequence_length: int,
  num_rows: int,
  batch_size: int,
  num_members: int = 1,
  has_convolutions: bool = False,
) -> Sizes:
  """Checks that rollouts and batches fit together.

  XLA on the CPU makes the gradient of a convolution inside of a rolled loop 10
  to 80 times slower. So updates are unrolled where there are images or
  convolutions.

  Args:
    environment_spec: has the observations.
    sequence_length: T.
    num_rows: M, the environments or seats of each member.
    batch_size: B.
    num_members: N.
    has_convolutions: whether the network has some without images.

  Raises:
    ValueError: if neither of `num_rows` and `batch_size` divides the other.
  """
  low, high = sorted((num_rows, batch_size))
  if high % low:
    raise ValueError(
      f'num_environments, which gives each member {num_rows} rows, must divide'
      f' batch_size ({batch_size}) or be a multiple of it, so that each'
      ' trajectory is used once; choose num_environments or batch_size so that'
      f' there are {batch_size} rows.'
    )
  # Images have height, width and channels.
  unroll = has_convolutions or any(
    len(leaf.shape) > 2
    for leaf in jax.tree.leaves(environment_spec.observations)
  )
  return Sizes(sequence_length, num_rows, batch_size, num_members, unroll)
