"""Acting and learning in turn as one pure function (Hessel et al., 2021).

    iteration = rollouts with one policy, then updates from what they gathered

One call does several iterations in a `lax.scan`, but for observations that are
images: XLA on the CPU makes the gradient of a convolution inside a rolled loop
10 to 80 times slower, so there a call is one iteration and its updates are
unrolled.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ftwax import types
from ftwax.environments import functional
from ftwax.runtime.device import auxiliary_replay, rollout

# Steps that a call shall have, about: many for the price of a call, few enough
# that progress is seen and an interrupt is not waited for.
_STEPS_PER_CALL = 8192


# `(state, replay, trajectories) -> (state, replay, (metrics, skipped))`; see
# `learn`.
Learn = Callable[
  [types.TrainingState, Any, types.Trajectory],
  tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]],
]


class LoopState(NamedTuple):
  """All that changes in a run on the device; a checkpoint holds just this.

  Attributes:
    training: the learner's state.
    rollout: where acting is.
    replay: what auxiliary tasks learn from, `()` if there are none that do.
  """

  training: types.TrainingState
  rollout: rollout.RolloutState
  replay: Any = ()


class Report(NamedTuple):
  """What came of a call of `K` iterations.

  Attributes:
    metrics: of each update, [K, updates].
    episodes: leaves [K, rollouts, T, B].
    skipped_in_a_row: int32 [K, updates], updates whose gradient was not
      finite, up to each.
  """

  metrics: types.Metrics
  episodes: rollout.Episodes
  skipped_in_a_row: types.Array


class Sizes(NamedTuple):
  """How an iteration is made up.

  Attributes:
    sequence_length: T, steps of a rollout.
    num_environments: E, rows of a rollout.
    batch_size: B, trajectories of an update.
    unroll: whether updates may not stand in a rolled loop.
  """

  sequence_length: int
  num_environments: int
  batch_size: int
  unroll: bool

  @property
  def num_rollouts(self) -> int:
    """Rollouts of an iteration, all with the same policy."""
    return max(1, self.batch_size // self.num_environments)

  @property
  def num_updates(self) -> int:
    """Updates of an iteration."""
    return max(1, self.num_environments // self.batch_size)

  @property
  def steps_per_iteration(self) -> int:
    """Steps of all environments together, those that reset included."""
    return self.num_rollouts * self.sequence_length * self.num_environments

  def num_iterations(self, max_num_steps: int) -> int:
    """Returns K, iterations of a call in a run of `max_num_steps`."""
    if self.unroll:
      return 1
    num_steps = min(_STEPS_PER_CALL, max_num_steps)
    return max(1, num_steps // self.steps_per_iteration)


def make_sizes(
  environment_spec: types.EnvironmentSpec,
  sequence_length: int,
  num_environments: int,
  batch_size: int,
  has_convolutions: bool = False,
) -> Sizes:
  """Checks that rollouts and batches fit each other.

  Args:
    environment_spec: tells whether there are images.
    sequence_length: T.
    num_environments: E.
    batch_size: B.
    has_convolutions: whether there are some where no image is.

  Returns:
    The sizes of an iteration.

  Raises:
    ValueError: if neither of `num_environments` and `batch_size` divides the
      other.
  """
  low, high = sorted((num_environments, batch_size))
  if high % low:
    raise ValueError(
      f'num_environments ({num_environments}) must divide batch_size'
      f' ({batch_size}) or be a multiple of it, so that each trajectory is used'
      f' once; choose num_environments={batch_size}.'
    )
  # Height, width and channels.
  unroll = has_convolutions or any(
    len(leaf.shape) > 2
    for leaf in jax.tree.leaves(environment_spec.observations)
  )
  return Sizes(sequence_length, num_environments, batch_size, unroll)


def make_init(
  environment: functional.FunctionalEnvironment,
  actor: types.ActorCore,
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  num_environments: int,
) -> Callable[[types.Key], LoopState]:
  """Returns `init(key) -> state`, which starts learner, actor, environments.

  Args:
    environment: E environments side by side, see `functional.vectorize`.
    actor: acts in them.
    learner: learns from them.
    replay: for auxiliary tasks; None if they need none.
    num_environments: E.
  """

  def init(key):
    learner_key, actor_key, environment_key, replay_key = jax.random.split(
      key, 4
    )
    environment_state, timestep = environment.reset(environment_key)
    actor_state = actor.init(actor_key, num_environments)
    return LoopState(
      training=learner.init(learner_key),
      rollout=rollout.start(environment_state, timestep, actor_state),
      replay=() if replay is None else replay.init(replay_key),
    )

  return init


def make_call(
  environment: functional.FunctionalEnvironment,
  actor: types.ActorCore,
  learn: Learn,
  sizes: Sizes,
  num_iterations: int,
) -> Callable[[LoopState], tuple[LoopState, Report]]:
  """Returns `call(state) -> (state, report)`; jit it with the state donated.

  Args:
    environment: E environments side by side, see `functional.vectorize`.
    actor: acts in them.
    learn: see `make_learn`.
    sizes: of an iteration.
    num_iterations: K.
  """
  return functools.partial(
    repeat, environment.step, actor.select_action, learn, sizes, num_iterations
  )


def make_learn(
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  sizes: Sizes,
) -> Learn:
  """Returns what does the updates of an iteration; see `learn`."""
  return functools.partial(
    learn, learner, replay, sizes.num_updates, sizes.unroll
  )


def repeat(
  step: rollout.Step,
  select_action: types.SelectAction,
  learn: Learn,
  sizes: Sizes,
  num_iterations: int,
  state: LoopState,
) -> tuple[LoopState, Report]:
  """Does K iterations.

  Args:
    step: of the environments.
    select_action: of the actor.
    learn: does the updates of an iteration.
    sizes: of an iteration.
    num_iterations: K.
    state: where to go on from.

  Returns:
    The state after them and what came of them.
  """

  def act(variables, rollout_state):
    rollout_state, trajectory, episodes = rollout.rollout(
      step, select_action, variables, rollout_state, sizes.sequence_length
    )
    return rollout_state, (trajectory, episodes)

  def iterate(state):
    variables = types.actor_variables(state.training)
    rollout_state, (trajectories, episodes) = _repeat(
      functools.partial(act, variables),
      state.rollout,
      sizes.num_rollouts,
      unroll=False,
    )
    training, replay, (metrics, skipped) = learn(
      state.training, state.replay, trajectories
    )
    report = Report(metrics, episodes, skipped)
    return LoopState(training, rollout_state, replay), report

  return _repeat(iterate, state, num_iterations, sizes.unroll)


def learn(
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  num_updates: int,
  unroll: bool,
  state: types.TrainingState,
  replay_state: Any,
  trajectories: types.Trajectory,
) -> tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]]:
  """Learns from rollouts, each trajectory once.

  Args:
    learner: its functions.
    replay: for auxiliary tasks; None if they need none.
    num_updates: U, which divides R * E.
    unroll: whether the updates may not stand in a rolled loop.
    state: the learner's.
    replay_state: that of `replay`; not read without one.
    trajectories: R rollouts, leaves [R, T + 1 or T, E, ...], and the recurrent
      state [R, E, ...].

  Returns:
    The new states; metrics and updates skipped in a row, [U].
  """
  if replay is not None:
    for index in range(trajectories.timestep.reward.shape[0]):
      replay_state = replay.add(
        replay_state,
        jax.tree.map(operator.itemgetter(index), trajectories),
        state.internal_rewards,
      )

  def step(carry, trajectory):
    state, replay_state = carry
    batch = types.LearnerBatch(trajectory)
    if replay is not None:
      replay_state, past, prediction = replay.sample(replay_state)
      batch = types.LearnerBatch(trajectory, past, prediction)
    state, metrics = learner.update(state, batch)
    return (state, replay_state), (metrics, state.skipped_in_a_row)

  (state, replay_state), rows = jax.lax.scan(
    step,
    (state, replay_state),
    _make_batches(trajectories, num_updates),
    unroll=_scan_unroll(num_updates, unroll),
  )
  return state, replay_state, rows


def _make_batches(
  trajectories: types.Trajectory, num_batches: int
) -> types.Trajectory:
  """Cuts rollouts, leaves [R, T, E, ...], into batches [U, T, R * E / U, ...].

  The recurrent state, [R, E, ...], becomes [U, R * E / U, ...].
  """

  def cut(leaf):  # [R, E, ...]
    # No -1: a state's leaf may be empty.
    num_columns = leaf.shape[0] * leaf.shape[1] // num_batches
    return leaf.reshape(num_batches, num_columns, *leaf.shape[2:])

  cut_each = jax.vmap(cut, in_axes=1, out_axes=1)  # [R, T, E, ...]
  steps = jax.tree.map(cut_each, trajectories._replace(recurrent_state=()))
  return steps._replace(
    recurrent_state=jax.tree.map(cut, trajectories.recurrent_state)
  )


def _repeat(
  function: Callable[[Any], tuple[Any, Any]],
  state: Any,
  num_times: int,
  unroll: bool,
) -> tuple[Any, Any]:
  """Applies `function` so many times, and stacks what it returns beside."""
  return jax.lax.scan(
    lambda carry, _: function(carry),
    state,
    length=num_times,
    unroll=_scan_unroll(num_times, unroll),
  )


def _scan_unroll(length: int, unroll: bool) -> int:
  """Returns `unroll` of a `lax.scan` that shall be no loop, or a loop."""
  # More than the length: `True`, or the length itself, leave a scan of one
  # step a loop of one trip, in which gradients of convolutions are slow, too.
  return length + 1 if unroll else 1
