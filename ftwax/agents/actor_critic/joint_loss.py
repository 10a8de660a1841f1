"""The loss of an agent: policy, value, entropy and auxiliary tasks, summed."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import parts, trees, types
from ftwax.agents.actor_critic import acting, auxiliary, batches
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import q_learning, value_replay

# The entry of metrics with the priorities of the sequences, float32 [B], if the
# loss has any; the others are scalars.
PRIORITIES = 'priorities'


class Objective(NamedTuple):
  """The static parts of the loss.

  Attributes:
    network: the network that learns.
    config: the agent.
    observation_spec: specs of the observations, for auxiliary tasks.
    offline: whether trajectories are recorded games, from which the policy
      learns by tasks alone.
  """

  network: types.RecurrentNetwork
  config: Any
  observation_spec: types.SpecTree = None
  offline: bool = False


def joint_loss(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  batch: types.LearnerBatch,
  targets: types.ArrayTree = None,
  return_scale: types.Array | None = None,
) -> tuple[types.Array, dict[str, Any]]:
  """Computes the loss of a batch and its metrics.

  Offline there is no policy gradient and no entropy bonus, since nobody knows
  with which probabilities recorded actions were taken. The value learns from
  recorded rewards if a task weighs actions by advantages.

  Args:
    objective: static.
    params: parameters of the network.
    hyperparameters: the agent's hyperparameters.
    batch: a batch whose rewards are the agent's own.
    targets: leaves [T, B, ...], from `make_targets`.
    return_scale: see `policy_loss.make_transitions`.

  Returns:
    The loss, float32 [], and metrics.
  """
  trajectories = [batch.trajectory]
  is_live = {}
  if batch.replay is not None:
    trajectories.append(batch.replay.trajectory)
    is_live[auxiliary.REPLAY] = batch.replay.is_live
  if batch.demonstrations is not None:
    trajectories.append(batch.demonstrations.trajectory)
    is_live[auxiliary.DEMONSTRATIONS] = batch.demonstrations.is_live
  if batch.reward_prediction is not None:
    is_live[auxiliary.REWARD_PREDICTION] = batch.reward_prediction.is_live
  unrolled = _unroll(objective.network, params, hyperparameters, trajectories)
  replayed = None
  recorded = None if batch.demonstrations is None else unrolled[-1]
  if objective.offline:
    replayed = recorded = unrolled[0]
    always = jnp.bool_(True)
    is_live |= {auxiliary.REPLAY: always, auxiliary.DEMONSTRATIONS: always}
  elif batch.replay is not None:
    replayed = unrolled[1]
  elif objective.config.learns_from_replay:
    # What the action values learn from is past trajectories already.
    replayed = unrolled[0]
    is_live[auxiliary.REPLAY] = jnp.bool_(True)
  agent = parts.bind(objective.config, hyperparameters)
  transitions = policy_loss_lib.make_transitions(
    unrolled[0].output, batch.trajectory, agent, return_scale
  )._replace(targets=targets)
  if objective.offline:
    loss, metrics = _offline_loss(objective.config, agent, transitions)
  else:
    loss, metrics = _policy_loss(agent, transitions)
  inputs = auxiliary.TaskInputs(
    params=params,
    heads=objective.network.heads,
    agent=agent,
    fresh=unrolled[0],
    replay=replayed,
    reward_prediction=batch.reward_prediction,
    demonstrations=recorded,
    observation_spec=objective.observation_spec,
    return_scale=return_scale,
    frozen=batch.frozen,
  )
  auxiliary_loss, auxiliary_metrics = auxiliary.sum_losses(
    agent.all_tasks, inputs, is_live
  )
  loss += auxiliary_loss
  # The mean, as in A2C and PPO, or the sum, as in IMPALA and FTW.
  if agent.loss_reduction == 'mean':
    # Auxiliary losses are divided by the same count, so that their weight
    # relative to the policy's does not depend on the reduction.
    loss /= _count(transitions)
  is_timestep = policy_loss_lib.is_timestep(batch.trajectory.timestep.step_type)
  value = jnp.where(is_timestep, unrolled[0].output.value, 0.0)
  value = jnp.sum(value) / jnp.maximum(1.0, jnp.sum(is_timestep))
  metrics = {**metrics, **auxiliary_metrics}
  return loss, {'loss': loss, 'value': value, **metrics}


class Steps(NamedTuple):
  """Transitions without order, leaves [n, ...].

  Attributes:
    inputs: of the network, before each action.
    seed: of the network's noise; None without.
    transitions: with targets; logits and values are those before the first
      optimizer step.
  """

  inputs: types.NetworkInput
  seed: types.ArrayTree
  transitions: policy_loss_lib.Transitions


def make_steps(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  trajectory: types.Trajectory,
  return_scale: types.Array | None = None,
) -> Steps:
  """Takes a batch apart into its transitions, leaves [T * B, ...].

  Args:
    objective: static; it has targets, and a network without memory.
    params: parameters before the first optimizer step on the batch.
    hyperparameters: the agent's hyperparameters.
    trajectory: see `make_targets`.
    return_scale: see `policy_loss.make_transitions`.
  """
  transitions = _old_transitions(
    objective, params, hyperparameters, trajectory, return_scale
  )
  inputs = acting.make_network_input(
    trajectory.timestep, trajectory.previous_action
  )
  inputs, seed = trees.take((inputs, trajectory.seed), slice(None, -1))
  steps: Steps = jax.tree.map(
    lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
    Steps(inputs, seed, transitions),
  )
  return steps


def steps_loss(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  steps: Steps,
) -> tuple[types.Array, dict[str, Any]]:
  """Computes the loss of transitions without order, and its metrics.

  Args:
    objective: static, as for `make_steps`.
    params: parameters of the network.
    hyperparameters: the agent's hyperparameters.
    steps: leaves [n, ...].

  Returns:
    The loss, float32 [], and metrics.
  """
  num_steps = steps.transitions.mask_tm1.shape[0]
  output, _ = objective.network.apply(
    params,
    hyperparameters,
    steps.seed,
    steps.inputs,
    objective.network.initial_state(num_steps),
  )
  transitions = steps.transitions._replace(
    logits_tm1=output.logits, v_tm1=output.value
  )
  # One stream, [n, 1, ...].
  stream = jax.tree.map(lambda leaf: leaf[:, None], transitions)
  agent = parts.bind(objective.config, hyperparameters)
  loss, metrics = _policy_loss(agent, stream)
  if agent.loss_reduction == 'mean':
    loss /= _count(transitions)
  mask = transitions.mask_tm1
  value = jnp.sum(mask * output.value) / _count(transitions)
  return loss, {'loss': loss, 'value': value, **metrics}


def make_targets(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  trajectory: types.Trajectory,
  return_scale: types.Array | None = None,
) -> types.ArrayTree:
  """Computes the targets of a batch, leaves [T, B, ...]; None without any.

  Args:
    objective: static.
    params: parameters before the first optimizer step on the batch.
    hyperparameters: the agent's hyperparameters.
    trajectory: its rewards are the agent's own; with values, `params` are those
      that acted.
    return_scale: see `policy_loss.make_transitions`.

  Returns:
    The targets, with gradients stopped.
  """
  if objective.config.targets_fn is None:
    return None
  return _old_transitions(
    objective, params, hyperparameters, trajectory, return_scale
  ).targets


def refresh_state(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  batch: types.LearnerBatch,
) -> types.LearnerBatch:
  """Replaces recurrent states of a batch by those after its burn-in.

  A trajectory that does not continue the one before it, as after a restart of
  its environment or an absence, keeps the state that it was stored with.

  Args:
    objective: static.
    params: those that the states are computed with.
    hyperparameters: the agent's hyperparameters.
    batch: its rewards are the agent's own.

  Returns:
    The batch without burn-in; no gradient flows through the states.
  """
  sequence = (*batch.burn_in, batch.trajectory)
  state = sequence[0].recurrent_state
  for past, present in itertools.pairwise(sequence):
    steps = past._replace(recurrent_state=(), logits=())
    # The last timestep is the first of the next trajectory.
    steps = trees.take(steps, slice(None, -1))
    _, after = objective.network.unroll(
      params,
      hyperparameters,
      steps.seed,
      acting.make_network_input(steps.timestep, steps.previous_action),
      acting.is_first(steps.timestep),
      state,
    )
    # Each decision of a stream has the next seed.
    continues = past.seed[-1] == present.seed[0]
    state = trees.where_rows(continues, after, present.recurrent_state)
  trajectory = batch.trajectory._replace(
    recurrent_state=jax.lax.stop_gradient(state)
  )
  return batch._replace(trajectory=trajectory, burn_in=())


def make_q_targets(
  objective: Objective,
  target_params: types.Params,
  hyperparameters: types.Hyperparameters,
  batch: types.LearnerBatch,
) -> q_learning.QTargets:
  """Computes what the target network gives to the loss, leaves [T, B, ...].

  Args:
    objective: static.
    target_params: parameters of the target network, which refresh the states
      that it starts from.
    hyperparameters: the agent's hyperparameters.
    batch: its rewards are the agent's own.
  """
  batch = refresh_state(objective, target_params, hyperparameters, batch)
  (unrolled,) = _unroll(
    objective.network, target_params, hyperparameters, [batch.trajectory]
  )
  shape = batch.trajectory.timestep.reward[1:].shape
  weight = jnp.ones(shape[1:]) if batch.weight is None else batch.weight
  targets: q_learning.QTargets = jax.lax.stop_gradient(
    q_learning.QTargets(
      trees.take(unrolled.output.logits, slice(1, None)),
      jnp.broadcast_to(weight, shape),
    )
  )
  return targets


def _old_transitions(
  objective: Objective,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  trajectory: types.Trajectory,
  return_scale: types.Array | None,
) -> policy_loss_lib.Transitions:
  """Returns transitions at the parameters before the first optimizer step.

  They have targets, and no gradients.
  """
  agent = parts.bind(objective.config, hyperparameters)
  if trajectory.value is None:
    (unrolled,) = _unroll(
      objective.network, params, hyperparameters, [trajectory]
    )
    output = unrolled.output
  else:
    # At equal parameters the network would compute what it did in acting. No
    # action was chosen at the last timestep.
    logits = jax.tree.map(
      lambda leaf: jnp.concatenate([leaf, leaf[-1:]]), trajectory.logits
    )
    unused: Any = ()
    output = types.NetworkOutput(logits, trajectory.value, unused, {})
  transitions = policy_loss_lib.make_transitions(
    output, trajectory, agent, return_scale
  )
  targets = agent.targets_fn(transitions, agent)
  old: policy_loss_lib.Transitions = jax.lax.stop_gradient(
    # No step that is taken out of order has another after it.
    transitions._replace(targets=targets, logits_t=None)
  )
  return old


def _unroll(
  network: types.RecurrentNetwork,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  trajectories: list[types.Trajectory],
) -> list[auxiliary.Unrolled]:
  """Unrolls the network once over all trajectories, leaves [T + 1, sum(B)]."""
  joined = types.Trajectory(
    *(
      jax.tree.map(lambda *x, axis=axis: jnp.concatenate(x, axis), *leaves)
      for axis, *leaves in zip(
        batches.TRAJECTORY_AXIS,
        # Values are computed here, and replayed trajectories have none.
        *(each._replace(value=None) for each in trajectories),
        strict=True,
      )
    )
  )
  output, _ = network.unroll(
    params,
    hyperparameters,
    joined.seed,
    acting.make_network_input(joined.timestep, joined.previous_action),
    acting.is_first(joined.timestep),
    joined.recurrent_state,
  )
  unrolled, begin = [], 0
  for trajectory in trajectories:
    end = begin + trajectory.timestep.reward.shape[1]
    # [T + 1, B, ...] of one source.
    part = jax.tree.map(lambda x, b=begin, e=end: x[:, b:e], output)
    unrolled.append(auxiliary.Unrolled(trajectory, part))
    begin = end
  return unrolled


def _offline_loss(
  config: Any, agent: Any, transitions: policy_loss_lib.Transitions
) -> tuple[types.Array, dict[str, Any]]:
  """Computes the summed loss of the value, if a task needs it, and metrics.

  `config` is the agent whose hyperparameters have no values yet.
  """
  if not any(getattr(task, 'needs_value', False) for task in config.all_tasks):
    return jnp.zeros(()), {}
  losses = jax.vmap(value_replay.value_replay_loss, in_axes=1)(transitions)
  total = jnp.sum(losses)
  return agent.baseline_cost * total, {
    'value_loss': total / _count(transitions)
  }


def _policy_loss(
  agent: Any, transitions: policy_loss_lib.Transitions
) -> tuple[types.Array, dict[str, Any]]:
  """Computes the summed loss of policy, value and entropy, and its metrics."""
  losses = jax.vmap(
    lambda stream: agent.loss_fn(stream, agent),
    in_axes=1,
    axis_name=policy_loss_lib.STREAMS,
  )(transitions)
  sums = {'value_loss': jnp.sum(losses.value)}
  loss = agent.baseline_cost * sums['value_loss']
  if losses.policy is not None:
    sums['policy_loss'] = jnp.sum(losses.policy)
    loss = sums['policy_loss'] + loss
  if losses.entropy is not None:
    sums['entropy'] = jnp.sum(losses.entropy)
    loss = loss - agent.entropy_cost * sums['entropy']
  num_transitions = _count(transitions)
  counts = jnp.sum(transitions.mask_tm1, axis=0)  # [B]
  metrics = {
    **{name: total / num_transitions for name, total in sums.items()},
    # Streams count by their numbers of actions.
    **{
      name: jnp.sum(metric * counts) / num_transitions
      for name, metric in losses.metrics.items()
    },
  }
  if losses.priority is not None:
    metrics[PRIORITIES] = losses.priority
  return loss, metrics


def _count(transitions: policy_loss_lib.Transitions) -> types.Array:
  return jnp.maximum(1.0, jnp.sum(transitions.mask_tm1))
