"""The auxiliary tasks of the family.

Each task sums its loss over time and batch and multiplies it by the
hyperparameter `<task>_cost`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ftwax import encodings, types
from ftwax.agents.actor_critic import auxiliary, batches
from ftwax.losses import (
  latent_kl,
  pixel_control,
  policy_loss,
  reward_prediction,
  value_replay,
  vtrace,
)
from ftwax.networks import embeddings

if TYPE_CHECKING:
  from ftwax.agents.actor_critic import actor_critic_config as config_lib

# Names of the tasks and of the heads that they read.
PIXEL_CONTROL = 'pixel_control'
REWARD_PREDICTION = 'reward_prediction'
VALUE_REPLAY = 'value_replay'
OFF_POLICY = 'off_policy'
LATENT_KL = 'latent_kl'


def make_tasks(
  config: config_lib.ActorCriticConfig,
) -> tuple[auxiliary.AuxiliaryTask, ...]:
  """Makes the tasks that the config asks for."""
  tasks: list[auxiliary.AuxiliaryTask] = []
  if config.use_pixel_control:
    tasks.append(pixel_control_task(config))
  if config.use_reward_prediction:
    tasks.append(reward_prediction_task(config.reward_prediction_threshold))
  if config.use_value_replay:
    tasks.append(value_replay_task())
  if config.use_off_policy:
    tasks.append(off_policy_task())
  return tuple(tasks)


def pixel_control_task(
  config: config_lib.ActorCriticConfig,
) -> auxiliary.AuxiliaryTask:
  """Makes pixel control on replayed trajectories; see `losses.pixel_control`.

  It uses the feature head `pixel_control` and the hyperparameters
  `pixel_control_cost` and `pixel_control_discount`.

  Args:
    config: gives the entry to control, `frame_entry`, and its cells.
  """

  def loss(
    inputs: auxiliary.TaskInputs,
  ) -> tuple[types.Array, dict[str, types.Array]]:
    assert inputs.replay is not None
    replay, hyperparameters = inputs.replay, inputs.hyperparameters
    action_values = inputs.heads[PIXEL_CONTROL](
      inputs.params, replay.output.features
    )
    frames = controlled_frames(
      config,
      replay.trajectory.timestep.observation,
      inputs.observation_spec,
    )
    losses = jax.vmap(
      functools.partial(
        pixel_control.pixel_control_loss,
        cell_size=config.cell_size,
        crop_size=config.crop_size,
      ),
      in_axes=(1, 1, batches.TRAJECTORY_AXIS, None),
    )(
      action_values,
      frames,
      replay.trajectory,
      hyperparameters.pixel_control_discount,
    )
    return hyperparameters.pixel_control_cost * replay.sum(losses), {
      'error': replay.mean(losses)
    }

  return auxiliary.AuxiliaryTask(PIXEL_CONTROL, auxiliary.REPLAY, loss)


def controlled_frames(
  config: config_lib.ActorCriticConfig,
  observation: types.ArrayTree,
  observation_spec: types.SpecTree = None,
) -> types.Array:
  """Returns the frames that pixel control acts on.

  Args:
    config: names the entry of the observation.
    observation: leaves [T + 1, B, ...].
    observation_spec: gives the bounds of frames other than uint8; None for
      frames that are in [0, 1] already.

  Returns:
    [T + 1, B, height, width] or [T + 1, B, height, width, channels], uint8 or
    in [0, 1]. A signal [length, channels] becomes an image whose square cells
    consist of `cell_size` samples of one channel each.
  """
  entry, size = config.frame_entry or '', config.cell_size
  frames: types.Array = embeddings.named_leaves(observation)[entry]
  if observation_spec is not None:
    frame_spec = embeddings.named_leaves(observation_spec)[entry]
    frames = embeddings.scale_image(frames, frame_spec)
  if config.controls_signal:
    # Repeating each channel makes cells square; a cell's mean change is still
    # that of its one channel.
    frames = jnp.repeat(frames, size, axis=3)
    # Drop the oldest samples, which do not fill a cell.
    return frames[:, :, frames.shape[2] % size :]
  return encodings.to_image(frames.shape[2:], frames)


def signal_grid_shape(
  shape: tuple[int, ...], cell_size: int, crop_size: tuple[int, int] | None
) -> tuple[int, int]:
  """Returns the number of cells along time and of channels of a signal.

  Raises:
    ValueError: if the shape is not [length, channels] with at least one cell,
      or a crop is requested.
  """
  if len(shape) != 2 or shape[0] < cell_size or crop_size is not None:
    raise ValueError(
      f'The signal of pixel control (shape {shape}) must be [length, channels]'
      f' and no shorter than cell_size ({cell_size}), and crop_size'
      f' ({crop_size}) None; choose another frame_entry or cell_size.'
    )
  return shape[0] // cell_size, shape[1]


def reward_prediction_task(threshold: float = 0.0) -> auxiliary.AuxiliaryTask:
  """Makes reward prediction; see `losses.reward_prediction`.

  It uses the observation head `reward_prediction` and the hyperparameter
  `reward_prediction_cost`.

  Args:
    threshold: absolute value up to which a reward counts as zero, the same as
      in the replay that samples the sequences.
  """

  def loss(
    inputs: auxiliary.TaskInputs,
  ) -> tuple[types.Array, dict[str, types.Array]]:
    batch = inputs.reward_prediction
    assert batch is not None
    logits = inputs.heads[REWARD_PREDICTION](inputs.params, batch.observation)
    losses = reward_prediction.reward_prediction_loss(
      logits, batch.reward, threshold
    )
    label = reward_prediction.reward_class(batch.reward, threshold)
    return inputs.hyperparameters.reward_prediction_cost * jnp.sum(losses), {
      'accuracy': jnp.mean(jnp.argmax(logits, axis=-1) == label),
    }

  return auxiliary.AuxiliaryTask(
    REWARD_PREDICTION, auxiliary.REWARD_PREDICTION, loss
  )


def value_replay_task() -> auxiliary.AuxiliaryTask:
  """Makes value replay; see `losses.value_replay`.

  It uses the hyperparameter `value_replay_cost`.
  """

  def loss(
    inputs: auxiliary.TaskInputs,
  ) -> tuple[types.Array, dict[str, types.Array]]:
    assert inputs.replay is not None
    hyperparameters = inputs.hyperparameters
    # Rewards are scaled like those of fresh trajectories, since both train one
    # value.
    transitions = _replayed_transitions(inputs)
    losses = jax.vmap(value_replay.value_replay_loss, in_axes=1)(transitions)
    return hyperparameters.value_replay_cost * inputs.replay.sum(losses), {
      'error': inputs.replay.mean(losses)
    }

  return auxiliary.AuxiliaryTask(VALUE_REPLAY, auxiliary.REPLAY, loss)


def off_policy_task() -> auxiliary.AuxiliaryTask:
  """Makes an actor-critic loss on replayed trajectories.

  V-trace corrects for the behaviour policies and bootstraps from the current
  values. The task uses the hyperparameters `off_policy_cost`, `baseline_cost`
  and `entropy_cost`.
  """

  def loss(
    inputs: auxiliary.TaskInputs,
  ) -> tuple[types.Array, dict[str, types.Array]]:
    assert inputs.replay is not None
    hyperparameters, total = inputs.hyperparameters, inputs.replay.sum
    losses = jax.vmap(vtrace.vtrace_loss, in_axes=(1, None))(
      _replayed_transitions(inputs), hyperparameters
    )
    loss = (
      total(losses.policy)
      + hyperparameters.baseline_cost * total(losses.value)
      - hyperparameters.entropy_cost * total(losses.entropy)
    )
    return hyperparameters.off_policy_cost * loss, {
      'rho': jnp.mean(losses.metrics['rho'])
    }

  return auxiliary.AuxiliaryTask(OFF_POLICY, auxiliary.REPLAY, loss)


def _replayed_transitions(
  inputs: auxiliary.TaskInputs,
) -> policy_loss.Transitions:
  """Converts replayed trajectories to transitions, leaves [T, B, ...]."""
  assert inputs.replay is not None
  return jax.vmap(
    policy_loss.make_transitions,
    in_axes=(1, batches.TRAJECTORY_AXIS, None, None),
    out_axes=1,
  )(
    inputs.replay.output,
    inputs.replay.trajectory,
    inputs.hyperparameters,
    inputs.return_scale,
  )


def latent_kl_task() -> auxiliary.AuxiliaryTask:
  """Makes the KL losses of a temporal hierarchy; see `losses.latent_kl`.

  The last timestep of a trajectory is left out, since it is the first of the
  next. The task uses the hyperparameters `kl_posterior_prior_cost` and
  `kl_prior_fixed_cost`.
  """

  def loss(
    inputs: auxiliary.TaskInputs,
  ) -> tuple[types.Array, dict[str, types.Array]]:
    hyperparameters = inputs.hyperparameters
    latents: Mapping[str, Any] = jax.tree.map(
      lambda leaf: leaf[:-1], inputs.fresh.output.auxiliary
    )
    kl = latent_kl.latent_kl(latents['loc'], latents['scale'], latents['tick'])
    counts = policy_loss.is_timestep(
      inputs.fresh.trajectory.timestep.step_type
    )[:-1]
    posterior_prior, prior_fixed = (
      jnp.sum(jnp.where(counts, part, 0.0)) for part in kl
    )
    num_steps = jnp.maximum(1.0, jnp.sum(counts))
    total = (
      hyperparameters.kl_posterior_prior_cost * posterior_prior
      + hyperparameters.kl_prior_fixed_cost * prior_fixed
    )
    return total, {
      'posterior_prior': posterior_prior / num_steps,
      'prior_fixed': prior_fixed / num_steps,
      'tick_fraction': jnp.mean(latents['tick'][-1].astype(jnp.float32)),
    }

  return auxiliary.AuxiliaryTask(LATENT_KL, auxiliary.TRAJECTORY, loss)
