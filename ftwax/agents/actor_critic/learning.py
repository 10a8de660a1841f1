"""Learning as pure functions: a joint loss and its optimizer steps.

An update takes one step on the whole batch or, as in PPO, several epochs of
steps on minibatches. Minibatches are whole sequences with their stored states,
or transitions of a network without memory.

No function closes over a hyperparameter: the traced update makes its optimizer
from the hyperparameters in the state. Changing one thus does not trigger a
recompilation, and a population is `jax.vmap` of `init` and `update`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import flatten_util

from ftwax import internal_rewards as internal_rewards_lib
from ftwax import parts, scans, trees, types
from ftwax.agents.actor_critic import (
  auxiliary,
  batches,
  joint_loss,
  normalization,
  optimization,
)
from ftwax.replay import auxiliary_replay, prioritized_replay
from ftwax.replay import demonstrations as demonstrations_lib

# What tells the key of their samples from others of the state.
_DEMONSTRATIONS = 7


class _Static(NamedTuple):
  """Static arguments of `init` and `update`."""

  objective: joint_loss.Objective
  num_events: int
  internal_rewards_prior: internal_rewards_lib.Priors
  normalized_entries: dict[str, tuple[int, ...]]
  shuffles_transitions: bool

  @property
  def config(self) -> Any:
    """The agent."""
    return self.objective.config


class _Learned(NamedTuple):
  """The part of the state that an optimizer step changes."""

  params: types.Params
  opt_state: Any


class _StepInputs(NamedTuple):
  """Inputs of an optimizer step, in the order of `joint_loss.joint_loss`."""

  batch: types.LearnerBatch
  targets: types.ArrayTree
  return_scale: types.Array | None


def make_learner_core(
  network: types.RecurrentNetwork,
  config: Any,
  num_events: int = 1,
  observation_spec: types.SpecTree = None,
  offline: bool = False,
) -> types.LearnerCore:
  """Makes the functions of a learner.

  Args:
    network: the network that learns.
    config: the agent, an `ActorCriticConfig`.
    num_events: length of the environment's reward vector, 1 for a scalar.
    observation_spec: specs of the observations; they hold the bounds of frames
      for auxiliary tasks and the entries for `normalize_observations`.
    offline: whether trajectories are recorded games; see `joint_loss`.

  Returns:
    `init(key) -> state` and `update(state, batch) -> (state, metrics)`.

  Raises:
    ValueError: if the config does not allow the number of events, there is
      nothing to normalize, or minibatches do not suit the network.
  """
  objective = joint_loss.Objective(network, config, observation_spec, offline)
  prior = config.make_internal_rewards_prior(num_events)
  entries: dict[str, tuple[int, ...]] = {}
  if config.normalize_observations:
    kept = auxiliary.frame_entries(config.all_tasks)
    entries = normalization.find_entries(observation_spec, kept)
  has_memory = bool(
    jax.tree.leaves(jax.eval_shape(lambda: network.initial_state(1)))
  )
  static = _Static(
    objective,
    num_events,
    prior,
    entries,
    config.shuffles_transitions(has_memory),
  )
  return types.LearnerCore(
    init=functools.partial(_init, static),
    update=functools.partial(_update, static),
  )


def _init(static: _Static, key: types.Key) -> types.TrainingState:
  key, params_key, hyperparameters_key, rewards_key = jax.random.split(
    trees.raw_key(key), 4
  )
  params = static.objective.network.init(params_key)
  hyperparameters = static.config.sample_hyperparameters(hyperparameters_key)
  optimizer = _make_optimizer(static, hyperparameters)
  zero = jnp.zeros((), jnp.int32)
  return types.TrainingState(
    params=params,
    opt_state=optimizer.init(flatten_util.ravel_pytree(params)[0]),
    hyperparameters=hyperparameters,
    internal_rewards=internal_rewards_lib.sample(
      rewards_key, static.internal_rewards_prior, static.num_events
    ),
    key=key,
    steps=zero,
    skipped=zero,
    skipped_in_a_row=zero,
    observation_statistics=normalization.init_observations(
      static.normalized_entries
    ),
    return_statistics=(
      normalization.init_returns() if static.config.normalize_returns else ()
    ),
    # A copy, since a state that is donated must not hold a buffer twice.
    target_params=(
      () if static.config.target is None else jax.tree.map(jnp.copy, params)
    ),
  )


def _update(
  static: _Static, state: types.TrainingState, batch: types.LearnerBatch
) -> tuple[types.TrainingState, types.Metrics]:
  hyperparameters = optimization.decay(
    static.config.decay,
    state.hyperparameters,
    state.steps,
    static.config.schedules,
  )
  take_steps = _gradient_step
  if static.config.steps_per_update > 1:
    key = jax.random.fold_in(state.key, state.steps)
    take_steps = functools.partial(_several_steps, key)
  seen = batches.with_normalized_observations(
    state.observation_statistics,
    batches.with_own_rewards(state.internal_rewards, batch),
  )
  return_statistics = normalization.update_returns(
    state.return_statistics,
    seen.trajectory,
    parts.bind(static.config, hyperparameters),
  )
  return_scale = normalization.return_scale(return_statistics)
  learned, metrics = take_steps(
    static,
    hyperparameters,
    _Learned(state.params, state.opt_state),
    _make_inputs(static, state, hyperparameters, seen, return_scale),
  )
  if return_scale is not None:
    metrics['return_scale'] = return_scale
  # Of several steps the mean, which is finite if all of them are.
  skipped = jnp.where(jnp.isfinite(metrics['gradient_norm']), 0, 1)
  new_state = state._replace(
    params=learned.params,
    opt_state=learned.opt_state,
    steps=state.steps + 1,
    skipped=state.skipped + skipped,
    skipped_in_a_row=skipped * (state.skipped_in_a_row + 1),
    observation_statistics=normalization.update_observations(
      state.observation_statistics, batch.trajectory.timestep
    ),
    return_statistics=return_statistics,
  )
  if static.config.target is not None:
    target = parts.bind(static.config, hyperparameters).target
    new_state = new_state._replace(
      target_params=target.update(
        state.target_params, new_state.params, new_state.steps
      )
    )
  return new_state, {
    **metrics,
    'learning_rate': hyperparameters.learning_rate,  # As it is annealed.
    'skipped_updates': new_state.skipped,
  }


def _make_inputs(
  static: _Static,
  state: types.TrainingState,
  hyperparameters: types.Hyperparameters,
  batch: types.LearnerBatch,
  return_scale: types.Array | None,
) -> _StepInputs | joint_loss.Steps:
  """Returns the inputs of optimizer steps, with their targets."""
  objective = static.objective
  if objective.offline:  # There is no loss that has targets.
    return _StepInputs(batch, None, return_scale)
  if static.config.target is not None:
    online, target = (
      (objective, params, hyperparameters, batch)
      for params in (state.params, state.target_params)
    )
    return _StepInputs(
      joint_loss.refresh_state(*online),
      joint_loss.make_q_targets(*target),
      return_scale,
    )
  old = objective, state.params, hyperparameters, batch.trajectory
  if static.shuffles_transitions:
    return joint_loss.make_steps(*old, return_scale)
  return _StepInputs(
    batch, joint_loss.make_targets(*old, return_scale), return_scale
  )


def _several_steps(
  key: types.Key,
  static: _Static,
  hyperparameters: types.Hyperparameters,
  learned: _Learned,
  inputs: _StepInputs | joint_loss.Steps,
) -> tuple[_Learned, dict[str, types.Array]]:
  """Takes epochs of minibatch steps, reshuffled in each epoch."""
  config = static.config
  names: list[str] = []  # Only known when traced.

  def step(
    learned: _Learned, chosen: types.Array
  ) -> tuple[_Learned, types.Array]:
    learned, metrics = _gradient_step(
      static, hyperparameters, learned, _take(inputs, chosen)
    )
    names[:] = metrics
    # One array is stacked, not one for each metric.
    return learned, jnp.stack([*metrics.values()])

  _, order_key, _ = jax.random.split(key, 3)
  # [num_epochs, B]: whole sequences are shuffled where the network is
  # recurrent; else [num_epochs, T * B].
  order = jax.vmap(jax.random.permutation, in_axes=(0, None))(
    jax.random.split(order_key, config.num_epochs), _count(inputs)
  )
  # Minibatches are the rows of [num_steps, B / num_minibatches].
  learned, metrics = scans.scan(
    step, learned, order.reshape(config.steps_per_update, -1)
  )
  return learned, dict(zip(names, jnp.mean(metrics, axis=0), strict=True))


def _count(inputs: _StepInputs | joint_loss.Steps) -> int:
  """Returns the number of sequences, or of transitions without order."""
  if isinstance(inputs, joint_loss.Steps):
    return inputs.transitions.mask_tm1.shape[0]
  return inputs.batch.trajectory.timestep.reward.shape[1]


def _take(
  inputs: _StepInputs | joint_loss.Steps, chosen: types.Array
) -> _StepInputs | joint_loss.Steps:
  """Takes some sequences, or transitions without order, by their indices."""
  if isinstance(inputs, joint_loss.Steps):
    steps: joint_loss.Steps = trees.take(inputs, chosen)
    return steps
  return inputs._replace(
    batch=batches.take_columns(inputs.batch, chosen),
    targets=jax.tree.map(lambda x: jnp.take(x, chosen, axis=1), inputs.targets),
  )


def _gradient_step(
  static: _Static,
  hyperparameters: types.Hyperparameters,
  learned: _Learned,
  inputs: _StepInputs | joint_loss.Steps,
) -> tuple[_Learned, dict[str, types.Array]]:
  """Takes one optimizer step, which is skipped if its gradient is not finite.

  Returns:
    The parameters and optimizer state, and metrics.
  """
  loss: Any = joint_loss.joint_loss
  args: tuple[Any, ...] = tuple(inputs)
  if isinstance(inputs, joint_loss.Steps):
    loss, args = joint_loss.steps_loss, (inputs,)
  gradients, metrics = jax.grad(loss, 1, has_aux=True)(
    static.objective, learned.params, hyperparameters, *args
  )
  optimizer = _make_optimizer(static, hyperparameters)
  # One vector, since each operation on a leaf costs as much as on all of them
  # where networks are small.
  gradient, unravel = flatten_util.ravel_pytree(gradients)
  update, opt_state = optimizer.update(gradient, learned.opt_state)
  gradient_norm = optax.tree.norm(gradient)
  finite = jnp.isfinite(gradient_norm)
  # Applied here, since the optimizer's own learning rate is one.
  rate = hyperparameters.learning_rate
  params = optax.apply_updates(learned.params, unravel(rate * update))
  # The optimizer's state too, whose moving averages would stay NaN.
  learned = jax.tree.map(
    lambda new, old: jnp.where(finite, new, old),
    _Learned(params, opt_state),
    learned,
  )
  return learned, {**metrics, 'gradient_norm': gradient_norm}


def _make_optimizer(
  static: _Static, hyperparameters: types.Hyperparameters
) -> optax.GradientTransformation:
  agent = parts.bind(static.config, hyperparameters)
  return optimization.make_optimizer(agent.optimizer, agent.max_gradient_norm)


def learn(
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  num_updates: int,
  state: types.TrainingState,
  replay_state: Any,
  trajectories: types.Trajectory,
  sources: types.Sources = types.Sources(),  # noqa: B008 It is immutable.
  actors: types.Array | None = None,
) -> tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]]:
  """Learns from rollouts, using each trajectory once.

  Args:
    learner: functions of the learner.
    replay: replay for auxiliary tasks; None if they need none.
    num_updates: U, which divides R * M.
    state: state of the learner.
    replay_state: state of `replay`; unused without one.
    trajectories: R rollouts of the state's parameters, leaves
      [R, T + 1 or T, M, ...], with a recurrent state [R, M, ...].
    sources: recorded games, of which each update draws as many sequences as it
      has trajectories, and frozen policies.
    actors: int32 [R], index of the actor that wrote each rollout, if `replay`
      has streams of several; None if it has those of one.

  Returns:
    The new states, and the metrics and numbers of updates skipped in a row,
    leaves [U].
  """
  if replay is not None:
    rollouts = trajectories._replace(value=None)
    for index in range(rollouts.timestep.reward.shape[0]):
      past = trees.take(rollouts, index)
      reward_class = replay.classify(past, state.internal_rewards)
      writer = () if actors is None else (actors[index],)
      replay_state = replay.add(replay_state, past, reward_class, *writer)
    if replay.feeds_policy:
      return _learn_by_priority(
        learner, replay, num_updates, state, replay_state
      )
  if num_updates > 1:
    # Later updates have other parameters.
    trajectories = trajectories._replace(value=None)

  def step(
    carry: tuple[types.TrainingState, Any], trajectory: types.Trajectory
  ) -> tuple[
    tuple[types.TrainingState, Any], tuple[types.Metrics, types.Array]
  ]:
    state, replay_state = carry
    batch = types.LearnerBatch(trajectory)
    if replay is not None:
      replay_state, past, prediction = replay.sample(replay_state)
      batch = types.LearnerBatch(trajectory, past, prediction)
    if sources.demonstrations is not None:
      num_sequences = trajectory.timestep.step_type.shape[1]
      drawn = _draw(state, sources, num_sequences)
      batch = batch._replace(demonstrations=drawn)
    state, metrics = learner.update(state, _with_frozen(batch, sources))
    return (state, replay_state), (metrics, state.skipped_in_a_row)

  (state, replay_state), rows = jax.lax.scan(
    step,
    (state, replay_state),
    _make_batches(trajectories, num_updates),
  )
  return state, replay_state, rows


def learn_offline(
  learner: types.LearnerCore,
  num_updates: int,
  state: types.TrainingState,
  sources: types.Sources,
  batch_size: int,
) -> tuple[types.TrainingState, tuple[types.Metrics, types.Array]]:
  """Learns from recorded games alone.

  Args:
    learner: functions of the learner, made for it.
    num_updates: U.
    state: state of the learner.
    sources: recorded games, of which each update draws as in `learn`, and more.
    batch_size: B, sequences of an update.

  Returns:
    The new state, and the metrics and numbers of updates skipped in a row,
    leaves [U].
  """

  def step(
    state: types.TrainingState, _: None
  ) -> tuple[types.TrainingState, tuple[types.Metrics, types.Array]]:
    drawn = _draw(state, sources, batch_size)
    batch = _with_frozen(types.LearnerBatch(drawn.trajectory), sources)
    state, metrics = learner.update(state, batch)
    return state, (metrics, state.skipped_in_a_row)

  state, rows = jax.lax.scan(step, state, length=num_updates)
  return state, rows


def _draw(
  state: types.TrainingState, sources: types.Sources, batch_size: int
) -> types.ReplayBatch:
  """Returns recorded sequences for the next update."""
  assert sources.demonstrations is not None
  # Not every update changes the key.
  key = jax.random.fold_in(state.key, _DEMONSTRATIONS)
  return demonstrations_lib.sample(
    jax.random.fold_in(key, state.steps), sources.demonstrations, batch_size
  )


def _with_frozen(
  batch: types.LearnerBatch, sources: types.Sources
) -> types.LearnerBatch:
  """Returns a batch with what frozen policies would do in its trajectories."""
  logits = {
    name: policy.unroll(batch.trajectory)
    for name, policy in sources.frozen.items()
  }
  return batch._replace(frozen=logits)


def _learn_by_priority(
  learner: types.LearnerCore,
  replay: Any,
  num_updates: int,
  state: types.TrainingState,
  replay_state: Any,
) -> tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]]:
  """Learns from a prioritized replay; see `learn`.

  Until the replay has its minimum size, updates change nothing but their count.
  """

  def step(
    carry: tuple[types.TrainingState, Any], _: None
  ) -> tuple[
    tuple[types.TrainingState, Any], tuple[types.Metrics, types.Array]
  ]:
    state, replay_state = carry
    numbers = state.hyperparameters.replay
    replay_state, drawn = replay.draw(replay_state, numbers)

    def update() -> tuple[types.TrainingState, Any]:
      return learner.update(state, drawn.batch)

    def wait() -> tuple[types.TrainingState, Any]:
      _, metrics = jax.eval_shape(update)
      nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
      return state._replace(steps=state.steps + 1), nothing

    state, metrics = jax.lax.cond(drawn.is_ready, update, wait)
    metrics = dict(metrics)
    priorities = metrics.pop(joint_loss.PRIORITIES)
    replay_state = jax.lax.cond(
      drawn.is_ready,
      lambda: replay.update_priorities(
        replay_state, drawn, priorities, numbers
      ),
      lambda: replay_state,
    )
    size = replay.replay.total_size(replay_state.replay)
    metrics['replay_size'] = size.astype(jnp.float32)
    return (state, replay_state), (metrics, state.skipped_in_a_row)

  (state, replay_state), rows = jax.lax.scan(
    step, (state, replay_state), length=num_updates
  )
  return state, replay_state, rows


def learn_from_sample(
  learner: types.LearnerCore,
  state: types.TrainingState,
  batch: types.LearnerBatch,
  probability: types.Array,
) -> tuple[types.TrainingState, types.Metrics, types.Array]:
  """Learns from trajectories that another replay has sampled by priority.

  Args:
    learner: functions of the learner.
    state: state of the learner.
    batch: the trajectories, and those before them.
    probability: float32 [B], with which each was sampled.

  Returns:
    The new state, metrics, and the priorities of the trajectories, float32 [B],
    in proportion to which they are to be sampled.
  """
  numbers = state.hyperparameters.replay
  weight = prioritized_replay.importance_weights(probability, numbers)
  new_state, metrics = learner.update(state, batch._replace(weight=weight))
  metrics = dict(metrics)
  priorities = metrics.pop(joint_loss.PRIORITIES)
  return (
    new_state,
    metrics,
    prioritized_replay.raise_priorities(priorities, numbers),
  )


def _make_batches(
  trajectories: types.Trajectory, num_batches: int
) -> types.Trajectory:
  """Cuts rollouts, leaves [R, T, M, ...], into batches [U, T, R * M / U, ...].

  The recurrent state, [R, M, ...], becomes [U, R * M / U, ...].
  """

  def cut(leaf: types.Array) -> types.Array:  # [R, M, ...]
    # Not -1, since a leaf of the recurrent state may be empty.
    num_columns = leaf.shape[0] * leaf.shape[1] // num_batches
    return leaf.reshape(num_batches, num_columns, *leaf.shape[2:])

  cut_each = jax.vmap(cut, in_axes=1, out_axes=1)  # [R, T, M, ...]
  steps: types.Trajectory = jax.tree.map(
    cut_each, trajectories._replace(recurrent_state=())
  )
  return steps._replace(
    recurrent_state=jax.tree.map(cut, trajectories.recurrent_state)
  )
