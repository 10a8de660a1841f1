"""Past trajectories on the device, for auxiliary tasks.

They are kept in a functional replay whose step is a whole trajectory, once for
all tasks: replayed trajectories are drawn uniformly, and short sequences for
reward prediction by class of the reward that comes next, one half not zero
(Jaderberg et al., 2017, arXiv:1611.05397, section 3.2). Both come from the same
last trajectories.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import internal_rewards as internal_rewards_lib
from ftwax import types
from ftwax.agents.actor_critic import auxiliary
from ftwax.replay import functional, trajectories


class Stored(NamedTuple):
  """What the replay holds of one trajectory.

  Attributes:
    trajectory: leaves [T + 1 or T, ...].
    reward_class: int8 [T]; see `trajectories.classify`.
  """

  trajectory: types.Trajectory
  reward_class: types.Array


class AuxiliaryState(NamedTuple):
  """The replay and the key for what is drawn from it."""

  replay: functional.ReplayState
  key: types.Key


class AuxiliaryReplay(NamedTuple):
  """The functions of a replay for auxiliary tasks.

  Attributes:
    init: `(key) -> state`, which is empty.
    add: `(state, trajectories, internal_rewards) -> state`; leaves are
      [T + 1 or T, E, ...].
    sample: `(state) -> (state, replay, reward_prediction)`, batches as in
      `types.LearnerBatch`.
  """

  init: Callable[[types.Key], AuxiliaryState]
  add: Callable[
    [AuxiliaryState, types.Trajectory, types.InternalRewards], AuxiliaryState
  ]
  sample: Callable[
    [AuxiliaryState],
    tuple[
      AuxiliaryState,
      types.ReplayBatch | None,
      types.RewardPredictionBatch | None,
    ],
  ]


def make_auxiliary_replay(
  sources: frozenset[str],
  config: Any,
  environment_spec: types.EnvironmentSpec,
  actor: types.ActorCore,
  num_environments: int,
) -> AuxiliaryReplay | None:
  """Makes the replay that auxiliary tasks need, if they need one.

  Args:
    sources: what they learn from; see `actor_critic.auxiliary`.
    config: an `ActorCriticConfig`; of its capacities the larger one counts, in
      trajectories.
    environment_spec: gives the shape of a trajectory.
    actor: gives the recurrent state of a trajectory.
    num_environments: E, rows of a rollout.

  Returns:
    The functions, or None.
  """
  replays = auxiliary.REPLAY in sources
  predicts = auxiliary.REWARD_PREDICTION in sources
  if not (replays or predicts):
    return None
  length = config.sequence_length
  capacity = max(
    config.replay_capacity if replays else 1,
    -(-config.reward_prediction_capacity // length) if predicts else 1,
  )
  replay_config = functional.ReplayConfig(
    num_environments=num_environments,
    max_length=-(-capacity // num_environments),
    batch_size=config.batch_size,
  )
  reward_class: Any = np.zeros(length, np.int8)
  state = jax.eval_shape(lambda: actor.init(jax.random.PRNGKey(0), 1))
  stored = Stored(
    trajectories.make_template(environment_spec, state.recurrent_state, length),
    reward_class,
  )
  replay = functional.make_replay(stored, replay_config)
  num_frames = config.reward_prediction_length
  return AuxiliaryReplay(
    init=lambda key: AuxiliaryState(replay.init(), key),
    add=functools.partial(
      _add,
      replay,
      trajectories.Sequences(
        num_frames,
        config.reward_prediction_period,
        config.reward_prediction_threshold,
      ),
    ),
    sample=functools.partial(
      _sample,
      replay if replays else None,
      functools.partial(
        _sample_reward_prediction, config.batch_size, num_frames
      )
      if predicts
      else None,
    ),
  )


def _rows(trajectory: types.Trajectory) -> types.Trajectory:
  """Returns leaves [E, T, ...] of leaves [T, E, ...]."""
  swapped = jax.tree.map(
    lambda leaf: jnp.swapaxes(leaf, 0, 1),
    trajectory._replace(recurrent_state=()),
  )
  return swapped._replace(recurrent_state=trajectory.recurrent_state)


def _add(
  replay: functional.Replay,
  sequences: trajectories.Sequences,
  state: AuxiliaryState,
  trajectory: types.Trajectory,
  internal_rewards: types.InternalRewards,
) -> AuxiliaryState:
  timestep = trajectory.timestep
  reward_class = trajectories.classify(
    timestep.step_type,
    internal_rewards_lib.reward(internal_rewards, timestep),
    sequences,
  )
  rows = Stored(_rows(trajectory), jnp.swapaxes(reward_class, 0, 1))
  return state._replace(replay=replay.add(state.replay, rows))


def _sample(
  replay: functional.Replay | None,
  sample_reward_prediction: Callable[..., Any] | None,
  state: AuxiliaryState,
) -> tuple[
  AuxiliaryState, types.ReplayBatch | None, types.RewardPredictionBatch | None
]:
  key, replay_key, prediction_key = jax.random.split(state.key, 3)
  batch, prediction = None, None
  if replay is not None:
    sample = replay.sample(state.replay, replay_key)
    stored = jax.tree.map(lambda leaf: leaf[0], sample.data)
    batch = types.ReplayBatch(
      _rows(stored.trajectory), jnp.all(sample.info.is_valid)
    )
  if sample_reward_prediction is not None:
    stored = state.replay.ring.data  # [E, L, ...]
    prediction = sample_reward_prediction(prediction_key, stored)
  return state._replace(key=key), batch, prediction


def _sample_reward_prediction(
  batch_size: int, num_frames: int, key: types.Key, stored: Stored
) -> types.RewardPredictionBatch:
  """Draws sequences, each one alike, from stored leaves [E, L, ...].

  Where there are none of one class, its half is drawn from the other.
  """
  num_nonzero = -(-batch_size // 2)
  nonzero, zero = (
    jnp.cumsum((stored.reward_class == wanted).reshape(-1))
    for wanted in (trajectories.NONZERO, trajectories.ZERO)
  )
  draws = []
  for (own, other), num_draws, class_key in zip(
    ((nonzero, zero), (zero, nonzero)),
    (num_nonzero, batch_size - num_nonzero),
    jax.random.split(key),
    strict=True,
  ):
    total = jnp.where(own[-1] > 0, own, other)
    rank = jax.random.randint(
      class_key, (num_draws,), 0, jnp.maximum(total[-1], 1)
    )
    index = jnp.searchsorted(total, rank, side='right')
    draws.append(jnp.minimum(index, total.size - 1))
  environment, slot, end = jnp.unravel_index(
    jnp.concatenate(draws), stored.reward_class.shape
  )
  environment, slot, end = environment[None], slot[None], end[None]
  steps = end + jnp.arange(1 - num_frames, 1)[:, None]  # [num_frames, B]
  timestep = stored.trajectory.timestep
  return types.RewardPredictionBatch(
    observation=jax.tree.map(
      lambda leaf: leaf[environment, slot, steps], timestep.observation
    ),
    reward=timestep.reward[environment, slot, end + 1][0],
    is_live=(nonzero[-1] > 0) | (zero[-1] > 0),
  )
