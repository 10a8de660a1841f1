"""Images of the agent's observations and of its auxiliary tasks' predictions.

They show the first trajectory of a batch; for a population, that of the first
member. There are images of its last frame; for pixel control, of the greatest
action value and of the last change of each cell; and for reward prediction, of
the frames. The predicted probabilities of the sign of the reward that follows
these frames are logged as numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ftwax import encodings, types
from ftwax.agents.actor_critic import acting, auxiliary, batches, tasks
from ftwax.losses import pixel_control
from ftwax.networks import embeddings
from ftwax.records import loggers

# Names of the classes, in the order of `reward_prediction.reward_class`.
_CLASSES = ('zero', 'negative', 'positive')


class ImageWriter:
  """Logs images every `image_period` updates."""

  def __init__(
    self,
    network: types.RecurrentNetwork,
    control: tasks.PixelControl,
    logger: loggers.Logger,
  ):
    """Makes a writer.

    Args:
      network: the learner's network.
      control: gives the period and the frames.
      logger: receives the images, uint8 [height, width, 3].
    """
    self._look = jax.jit(_make_look(network, control))
    self._period = control.image_period
    self._logger = logger

  def write_if_due(
    self, num_steps: int, state: types.TrainingState, batch: types.LearnerBatch
  ) -> None:
    """Logs images if `num_steps`, updates done, is a multiple of the period."""
    if num_steps % self._period:
      return
    seen = jax.device_get(self._look(state, batch))
    self._logger.write({**_to_images(seen), 'learner_steps': num_steps})


def make_writer(
  agent_tasks: auxiliary.Tasks,
  network: types.RecurrentNetwork,
  logger_fn: loggers.LoggerFactory,
) -> ImageWriter | None:
  """Returns a writer that logs as `images`; None if no task asks for images."""
  for task in agent_tasks:
    if isinstance(task, tasks.PixelControl) and task.image_period:
      logger = logger_fn('images', 'learner_steps', None)
      return ImageWriter(network, task, logger)
  return None


def _make_look(
  network: types.RecurrentNetwork, control: tasks.PixelControl
) -> Callable[[types.TrainingState, types.LearnerBatch], dict[str, Any]]:
  """Returns a function from a state and a batch to the arrays to show."""

  def look(
    state: types.TrainingState, batch: types.LearnerBatch
  ) -> dict[str, Any]:
    if state.steps.ndim:  # A population: show its first member.
      state = jax.tree.map(lambda leaf: leaf[0], state)
      # Batches of a population of one have no member axis.
      if batch.trajectory.timestep.step_type.ndim > 2:
        batch = jax.tree.map(lambda leaf: leaf[0], batch)
    batch = batches.take_columns(batch, jnp.zeros(1, jnp.int32))
    batch = batches.with_normalized_observations(
      state.observation_statistics,
      batches.with_own_rewards(state.internal_rewards, batch),
    )
    observation = batch.trajectory.timestep.observation
    frames = _frames(control, observation)
    seen: dict[str, types.Array] = {}
    if frames is not None:
      seen['frame'] = frames[-1, 0]
      if control.name in network.heads:
        controlled = control.frames(observation)
        seen |= _look_at_cells(
          network, control, state, batch.trajectory, controlled[-2:, 0]
        )
    prediction = batch.reward_prediction
    if prediction is not None:
      logits = network.heads[tasks.RewardPrediction.name](
        state.params, prediction.observation
      )
      seen['probabilities'] = jax.nn.softmax(logits[0])
      frames = _frames(control, prediction.observation)
      if frames is not None:
        seen['reward_prediction'] = jnp.concatenate(list(frames[:, 0]), axis=1)
    return seen

  return look


def _look_at_cells(
  network: types.RecurrentNetwork,
  control: tasks.PixelControl,
  state: types.TrainingState,
  trajectory: types.Trajectory,
  frames: types.Array,
) -> dict[str, types.Array]:
  """Returns the values and changes of cells at the second of two frames."""
  timestep = trajectory.timestep
  output, _ = network.unroll(
    state.params,
    state.hyperparameters,
    trajectory.seed,
    acting.make_network_input(timestep, trajectory.previous_action),
    acting.is_first(timestep),
    trajectory.recurrent_state,
  )
  values = network.heads[control.name](state.params, output.features[-1:])
  best = [jnp.max(part[0, 0], axis=-1) for part in jax.tree.leaves(values)]
  changes = pixel_control.pseudo_rewards(
    frames, control.cell_size, control.crop_size
  )
  # The Kronecker product enlarges each cell to its size in the frame.
  cell = np.ones((control.cell_size, control.cell_size), np.float32)
  return {
    'pixel_control': jnp.kron(sum(best) / len(best), cell),
    'pixel_change': jnp.kron(changes[0], cell),
  }


def _frames(
  control: tasks.PixelControl, observation: Any
) -> types.Array | None:
  """Returns the images [..., height, width, 1 or 3]; None if there are none.

  Other numbers of channels are averaged into one.
  """
  leaves = embeddings.named_leaves(observation)
  frames: types.Array | None = leaves.get(control.entry or '')
  if frames is None or frames.ndim not in (4, 5, 6):
    return None
  frames = encodings.to_image(frames.shape[2:], frames)
  frames = frames[..., None] if frames.ndim == 4 else frames
  if frames.shape[-1] in (1, 3):
    return frames
  return jnp.mean(frames.astype(jnp.float32), axis=-1, keepdims=True)


def _to_images(seen: Mapping[str, Any]) -> dict[str, Any]:
  """Converts arrays to images, and probabilities to one number per class."""
  images: dict[str, Any] = {}
  for name, leaf in seen.items():
    if name == 'probabilities':
      images |= {
        f'probability_{kind}': leaf[i] for i, kind in enumerate(_CLASSES)
      }
    else:
      images[name] = _to_pixels(leaf)
  return images


def _to_pixels(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
  """Returns uint8 [height, width, 3]; scales other dtypes to their range."""
  image = image[..., None] if image.ndim == 2 else image
  if image.dtype != np.uint8:
    low, high = image.min(), image.max()
    scaled = (image - low) / max(high - low, 1e-9)
    image = np.rint(255 * scaled).astype(np.uint8)
  return np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))
