"""The auxiliary tasks of the family, each a part of an agent.

    PPOConfig(tasks=('pixel_control', tasks.RewardPrediction(cost=0.1)))

Each task sums its loss over time and batch and multiplies it by its cost.
`NAMED` has them by name.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from ftwax import distributions, encodings, parts, registry, types
from ftwax.agents.actor_critic import auxiliary, batches
from ftwax.losses import (
  cloning,
  latent_kl,
  pixel_control,
  policy_loss,
  reward_prediction,
  v_trace,
  value_replay,
)
from ftwax.networks import auxiliary_heads, cores, embeddings, recurrent
from ftwax.replay import trajectories

AnyTask = TypeVar('AnyTask', bound='Task')


class Task(parts.Part):
  """Base of the tasks; see `auxiliary.AuxiliaryTask`.

  A subclass has the field `name`, which tells tasks of a kind apart.

  Attributes:
    name: name of the task, of its head and of its metrics.
    source: what it learns from.
    learns_offline: whether recorded games suffice.
  """

  name: str
  learns_offline: ClassVar[bool] = True
  source: ClassVar[str] = auxiliary.REPLAY

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    raise NotImplementedError

  @property
  def needs_value(self) -> bool:
    """Whether a value must be learned, offline as well."""
    return False

  def make_heads(
    self, environment_spec: types.EnvironmentSpec
  ) -> recurrent.MakeHeads:
    """Returns the heads that the task reads, by its name."""
    del environment_spec
    return {}

  @property
  def frame_entry(self) -> str | None:
    """Path of the observation entry that it learns to control, if any."""
    return None

  def agree_with(self, torsos: Mapping[str, str]) -> Any:
    """Returns a copy for which entries are what they are for their torsos.

    Args:
      torsos: names of torsos by entry; see `torsos.Torso.entries`.
    """
    del torsos
    return self

  def check(self, agent: Any) -> None:
    """Raises a ValueError if the task does not go with the rest of an agent.

    Args:
      agent: the config, an `ActorCriticConfig`, some of whose parts may not be
        checked yet.
    """


@registry.register('task.pixel_control')
@dataclasses.dataclass(frozen=True)
class PixelControl(Task):
  """Learns to change the pixels of a frame, from replayed trajectories.

  See `losses.pixel_control`. Frames may be signals, [length, channels].

  Attributes:
    cost: weight of the loss.
    discount: discount of the pseudo-rewards.
    entry: path of the observation entry to control, such as 'camera/left'; None
      if the observation is a single array.
    cell_size: height and width of a cell, in pixels; its length in a signal.
    crop_size: (height, width) of the central crop that the cells cover, or
      (length,) of a signal; None covers as much of the frame as whole cells
      can.
    is_signal: whether the entry is a signal; None if it is one for its torso,
      `Torso(entries={'prices': 'signal'})`, or by its shape
      (`encodings.is_signal`).
    name: name of the task.
  """

  cost: parts.Scalar = 0.05
  discount: parts.Scalar = parts.scalar(0.9, high=1.0)
  entry: str | None = None
  cell_size: int = parts.option(4, low=1)
  crop_size: tuple[int, ...] | None = parts.option(None, low=1)
  is_signal: bool | None = None
  name: str = 'pixel_control'

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    assert inputs.replay is not None
    replay = inputs.replay
    action_values = inputs.heads[self.name](
      inputs.params, replay.output.features
    )
    frames = self.frames(
      replay.trajectory.timestep.observation, inputs.observation_spec
    )
    losses = jax.vmap(
      functools.partial(
        pixel_control.pixel_control_loss,
        cell_size=self.cell_size,
        crop_size=self.crop_size,
        is_signal=self._has_signal(frames.shape[2:]),
      ),
      in_axes=(1, 1, batches.TRAJECTORY_AXIS, None),
    )(
      action_values,
      frames,
      replay.trajectory,
      self.discount,
    )
    return self.cost * jnp.sum(losses), {'error': replay.mean(losses)}

  def frames(
    self, observation: types.ArrayTree, observation_spec: types.SpecTree = None
  ) -> types.Array:
    """Returns the frames to control.

    Args:
      observation: leaves [T + 1, B, ...].
      observation_spec: gives the bounds of frames other than uint8; None for
        frames that are in [0, 1] already.

    Returns:
      [T + 1, B, height, width] or [T + 1, B, height, width, channels], uint8
      or in [0, 1]; signals are [T + 1, B, length, channels].
    """
    entry = self.entry or ''
    frames: types.Array = embeddings.named_leaves(observation)[entry]
    if observation_spec is not None:
      frame_spec = embeddings.named_leaves(observation_spec)[entry]
      frames = embeddings.scale_image(frames, frame_spec)
    return encodings.to_image(frames.shape[2:], frames)

  def make_heads(
    self, environment_spec: types.EnvironmentSpec
  ) -> recurrent.MakeHeads:
    """Returns a head with action values for each cell.

    Raises:
      ValueError: if the entry does not suit pixel control.
    """
    observations = environment_spec.observations
    spec = embeddings.named_leaves(observations).get(self.entry or '')
    shape = encodings.image_shape(getattr(spec, 'shape', ()))
    is_signal = self._has_signal(shape)
    if len(shape) not in ((1, 2) if is_signal else (2, 3)):
      raise ValueError(
        f'entry ({self.entry!r}) of PixelControl must name an image or a signal'
        f' of the observation ({observations!r}); choose an entry, or leave the'
        ' task out if there is none.'
      )
    head = functools.partial(
      auxiliary_heads.PixelControlHead,
      distributions.num_actions(environment_spec.actions),
      pixel_control.grid_shape(
        shape, self.cell_size, self.crop_size, is_signal
      ),
    )
    return {self.name: head}

  @property
  def frame_entry(self) -> str | None:
    """Path of the observation entry that it learns to control."""
    return self.entry or ''

  def agree_with(self, torsos: Mapping[str, str]) -> 'PixelControl':
    """Returns a copy for which the entry is what it is for its torso."""
    name = torsos.get(self.entry or '', 'mlp')
    if self.is_signal is not None or name == 'mlp':
      return self
    return self.replace(is_signal=name == 'signal')

  def _has_signal(self, shape: Sequence[int]) -> bool:
    if self.is_signal is not None:
      return self.is_signal
    return encodings.is_signal(shape)


@registry.register('task.reward_prediction')
@dataclasses.dataclass(frozen=True)
class RewardPrediction(Task):
  """Learns to predict the sign of the next reward from a few frames.

  See `losses.reward_prediction`.

  Attributes:
    cost: weight of the loss.
    length: number of observations in a sequence.
    period: timesteps between the ends of two sequences.
    threshold: absolute value up to which a reward counts as zero.
    capacity: minimum number of sequences that are kept, separately for zero and
      for nonzero rewards.
    name: name of the task.
  """

  learns_offline: ClassVar[bool] = False

  source: ClassVar[str] = auxiliary.REWARD_PREDICTION

  cost: parts.Scalar = 1.0
  length: int = parts.option(3, low=1, high=parts.MAX_UNROLLED)
  period: int = parts.option(1, low=1)
  threshold: float = parts.option(0.0, low=0)
  capacity: int = parts.option(800, low=1)
  name: str = 'reward_prediction'

  def check(self, agent: Any) -> None:
    """Raises a ValueError if trajectories are shorter than a sequence."""
    if self.length > agent.sequence_length:
      raise ValueError(
        f'length ({self.length}) of RewardPrediction must not be above'
        f' sequence_length ({agent.sequence_length}), from which its frames'
        ' are taken; choose a smaller one.'
      )

  @property
  def sequences(self) -> trajectories.Sequences:
    """The sequences that the replay keeps."""
    return trajectories.Sequences(self.length, self.period, self.threshold)

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    batch = inputs.reward_prediction
    assert batch is not None
    logits = inputs.heads[self.name](inputs.params, batch.observation)
    losses = reward_prediction.reward_prediction_loss(
      logits, batch.reward, self.threshold
    )
    label = reward_prediction.reward_class(batch.reward, self.threshold)
    return self.cost * jnp.sum(losses), {
      'accuracy': jnp.mean(jnp.argmax(logits, axis=-1) == label),
    }

  def make_heads(
    self, environment_spec: types.EnvironmentSpec
  ) -> recurrent.MakeHeads:
    """Returns a head with logits for each sign of the reward."""
    del environment_spec
    head = recurrent.ObservationHead(
      auxiliary_heads.RewardPredictionHead, self.length
    )
    return {self.name: head}


@registry.register('task.value_replay')
@dataclasses.dataclass(frozen=True)
class ValueReplay(Task):
  """Trains the value on replayed trajectories; see `losses.value_replay`.

  Attributes:
    cost: weight of the loss.
    name: name of the task.
  """

  cost: parts.Scalar = 1.0
  name: str = 'value_replay'

  def check(self, agent: Any) -> None:
    """Raises a ValueError if the agent has no value of its own."""
    _check_policy(self, agent)

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    assert inputs.replay is not None
    # Rewards are scaled like those of fresh trajectories, since both train one
    # value.
    transitions = _replayed_transitions(inputs)
    losses = jax.vmap(value_replay.value_replay_loss, in_axes=1)(transitions)
    error = inputs.replay.mean(losses)
    return self.cost * jnp.sum(losses), {'error': error}


@registry.register('task.off_policy')
@dataclasses.dataclass(frozen=True)
class OffPolicy(Task):
  """Trains policy and value on replayed trajectories.

  V-trace corrects for the behaviour policies and bootstraps from the current
  values. The agent's `baseline_cost` and `entropy_cost` weight its terms.

  Attributes:
    cost: weight of the loss.
    name: name of the task.
  """

  learns_offline: ClassVar[bool] = False

  cost: parts.Scalar = 1.0
  name: str = 'off_policy'

  def check(self, agent: Any) -> None:
    """Raises a ValueError if something else learns the same value."""
    _check_policy(self, agent)
    if any(isinstance(task, ValueReplay) for task in agent.tasks):
      raise ValueError(
        f'tasks ({agent.tasks}) must not have value_replay with off_policy,'
        ' which learns the value from the same trajectories; choose one.'
      )

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    assert inputs.replay is not None
    total: Any = jnp.sum
    agent = inputs.agent
    losses = jax.vmap(
      lambda stream: v_trace.vtrace_loss(stream, agent), in_axes=1
    )(_replayed_transitions(inputs))
    loss = (
      total(losses.policy)
      + agent.baseline_cost * total(losses.value)
      - agent.entropy_cost * total(losses.entropy)
    )
    return self.cost * loss, {'rho': jnp.mean(losses.metrics['rho'])}


@registry.register('task.clone')
@dataclasses.dataclass(frozen=True)
class Clone(Task):
  """Learns to act as recorded games did; see `losses.cloning`.

  The games are those of the experiment's `demonstrations`.

  Attributes:
    cost: weight of the loss; to let a run go beyond its teacher, anneal it:
      `LinearDecay(names=('tasks.clone.cost',))`.
    value_cost: weight of the value's error on recorded games.
    advantage_scale: how much more actions count that led to more than the
      value expected; 0 for all alike.
    burn_in: first steps of a sequence that only prepare the core's state,
      unless an episode begins there.
    name: name of the task.
  """

  source: ClassVar[str] = auxiliary.DEMONSTRATIONS

  cost: parts.Scalar = 1.0
  value_cost: parts.Scalar = 0.0
  advantage_scale: parts.Scalar = 0.0
  burn_in: int = parts.option(0, low=0)
  name: str = 'clone'

  @property
  def needs_value(self) -> bool:
    """Whether actions are weighted by advantages over the value."""
    return bool(self.advantage_scale != 0)

  def check(self, agent: Any) -> None:
    """Raises a ValueError if no step is left, or others are learned from."""
    if agent.learns_action_values:
      raise ValueError(
        f'tasks ({agent.tasks}) must not have clone in an agent that learns'
        ' action values, and no policy beside them; leave it out, or choose'
        ' another agent.'
      )
    _check_burn_in(self, agent)

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    recorded = inputs.demonstrations
    assert recorded is not None
    transitions = policy_loss.make_transitions(
      recorded.output, recorded.trajectory, inputs.agent, inputs.return_scale
    )
    mask = transitions.mask_tm1 * _is_prepared(
      recorded.trajectory, self.burn_in
    )
    errors = jax.vmap(value_replay.value_errors, in_axes=1, out_axes=1)(
      transitions
    )
    log_prob = policy_loss.log_prob_tm1(transitions)
    losses = cloning.cloning_loss(log_prob, errors, mask, self.advantage_scale)
    value = 0.5 * jnp.sum(mask * jnp.square(errors))
    count = jnp.maximum(1.0, jnp.sum(mask))
    return self.cost * jnp.sum(losses) + self.value_cost * value, {
      'log_prob': jnp.sum(jnp.where(mask != 0, log_prob, 0.0)) / count,
    }


@registry.register('task.stay_close')
@dataclasses.dataclass(frozen=True)
class StayClose(Task):
  """Keeps the policy close to a frozen one, that of an earlier run.

  The loss is KL(frozen || learner) at the steps of the learner's own
  trajectories; offline, of recorded ones. It has the gradient of the cross
  entropy of Kickstarting (Schmitt et al., 2018, arXiv:1803.03835, equation 2),
  in which the learner covers all that its teacher does.

  The frozen core begins each trajectory with the state zero, unless an episode
  begins there; `burn_in` leaves out the steps that it needs to catch up. Only
  training reads the run.

  Attributes:
    cost: weight of the loss; to go beyond the frozen policy, anneal it:
      `LinearDecay(names=('tasks.stay_close.cost',))`.
    run: directory of the run, or of shared agents.
    member: index of the agent in its population.
    step: step of the checkpoint; None for the newest.
    burn_in: first steps of a trajectory that only prepare the frozen core.
    name: name of the task.
  """

  source: ClassVar[str] = auxiliary.FROZEN

  cost: parts.Scalar = 0.1
  run: str = ''
  member: int = parts.option(0, low=0)
  step: int | None = parts.option(None, low=0)
  burn_in: int = parts.option(0, low=0)
  name: str = 'stay_close'

  def check(self, agent: Any) -> None:
    """Raises a ValueError if the agent has no policy, or no step is left."""
    _check_policy(self, agent)
    _check_burn_in(self, agent)

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    if self.name not in inputs.frozen:
      raise ValueError(
        f'tasks ({self.name}) must have its frozen policy in the batch, and'
        ' there is none; train it by ftwax.run, which reads one.'
      )
    trajectory = inputs.fresh.trajectory
    own = jax.tree.map(lambda x: x[:-1], inputs.fresh.output.logits)
    kl = distributions.kl_divergence(inputs.frozen[self.name], own)
    mask = policy_loss.make_mask(trajectory.timestep) * _is_prepared(
      trajectory, self.burn_in
    )
    total = jnp.sum(jnp.where(mask != 0, kl, 0.0))
    return self.cost * total, {'kl': total / jnp.maximum(1.0, jnp.sum(mask))}


@registry.register('task.latent_kl')
@dataclasses.dataclass(frozen=True)
class LatentKL(Task):
  """The KL losses of the latents of a temporal hierarchy; see `latent_kl`.

  The last timestep of a trajectory is left out, since it is the first of the
  next.

  Attributes:
    posterior_prior_cost: weight of KL(posterior || prior).
    prior_fixed_cost: weight of KL(prior || N(0, 0.1^2)).
    name: name of the task.
  """

  source: ClassVar[str] = auxiliary.TRAJECTORY

  posterior_prior_cost: parts.Scalar = 1e-8
  prior_fixed_cost: parts.Scalar = 1e-8
  name: str = 'latent_kl'

  def check(self, agent: Any) -> None:
    """Raises a ValueError if the core has no latents."""
    if not cores.as_part(agent.core).has_latents:
      raise ValueError(
        f'core ({agent.core!r}) must have latents for the task latent_kl;'
        ' choose core=cores.RPTH(), or leave the task out of tasks.'
      )

  def loss(self, inputs: auxiliary.TaskInputs) -> auxiliary.Loss:
    """Returns the weighted loss, float32 [], and its metrics."""
    auxiliary = jax.tree.map(lambda x: x[:-1], inputs.fresh.output.auxiliary)
    found = list(_find_latents(auxiliary))
    if not found:
      raise ValueError(
        f'tasks ({self!r}) must not have the KL losses of latents without a'
        ' core that has latents; choose core=cores.RPTH(), or leave them out.'
      )
    kls = [latent_kl.latent_kl(*latents) for latents in found]
    step_type = inputs.fresh.trajectory.timestep.step_type
    counts = policy_loss.is_timestep(step_type)[:-1]
    sums = [
      latent_kl.Divergences(*(jnp.sum(jnp.where(counts, x, 0.0)) for x in kl))
      for kl in kls
    ]
    total = sum(
      self.posterior_prior_cost * kl.posterior_prior
      + self.prior_fixed_cost * kl.prior_fixed
      for kl in sums
    )
    num_steps = jnp.maximum(1.0, jnp.sum(counts))
    (_, _, tick), kl = found[0], sums[0]
    return jnp.asarray(total), {
      'posterior_prior': kl.posterior_prior / num_steps,
      'prior_fixed': kl.prior_fixed / num_steps,
      'tick_fraction': jnp.mean(tick[-1].astype(jnp.float32)),
    }


def _check_policy(task: Task, agent: Any) -> None:
  """Raises a ValueError if an agent has action values."""
  if agent.learns_action_values:
    raise ValueError(
      f'tasks ({task.name}) must not train the policy and value of'
      f' {agent.name}, which has action values, from which both follow; leave'
      ' it out.'
    )


def _check_burn_in(task: Any, agent: Any) -> None:
  """Raises a ValueError if burn-in leaves no step of a sequence."""
  if task.burn_in >= agent.sequence_length:
    raise ValueError(
      f'burn_in ({task.burn_in}) of {type(task).__name__} must be below'
      f' sequence_length ({agent.sequence_length}), or nothing is learned from;'
      ' choose a smaller one.'
    )


def _is_prepared(trajectory: types.Trajectory, burn_in: int) -> types.Array:
  """Returns where a core that began with zero has caught up, bool [T, B]."""
  step_type = trajectory.timestep.step_type[:-1]
  begins = jnp.cumsum(step_type == types.FIRST, axis=0) > 0
  return begins | (jnp.arange(len(step_type))[:, None] >= burn_in)


def _find_latents(auxiliary: Any) -> Iterator[tuple[Any, Any, Any]]:
  """Yields means, deviations and ticks of each hierarchy in a core."""
  if isinstance(auxiliary, Mapping):
    if 'loc' in auxiliary:
      yield auxiliary['loc'], auxiliary['scale'], auxiliary['tick']
    else:
      for inner in auxiliary.values():
        yield from _find_latents(inner)


# The tasks by name, with small costs.
NAMED: Mapping[str, Task] = {
  task.name: task
  for task in (
    PixelControl(),
    RewardPrediction(),
    ValueReplay(),
    OffPolicy(),
    LatentKL(),
    Clone(),
    StayClose(),
  )
}

find = functools.partial(parts.find, 'tasks', known=NAMED)


def _replayed_transitions(
  inputs: auxiliary.TaskInputs,
) -> policy_loss.Transitions:
  """Converts replayed trajectories to transitions, leaves [T, B, ...]."""
  assert inputs.replay is not None
  return policy_loss.make_transitions(
    inputs.replay.output,
    inputs.replay.trajectory,
    inputs.agent,
    inputs.return_scale,
  )
