"""Acting as pure functions, batched over environments."""

import functools
from collections.abc import Callable, Mapping

import dm_env
import jax
import jax.numpy as jnp

from ftwax import distributions, trees, types
from ftwax import internal_rewards as internal_rewards_lib
from ftwax.agents.actor_critic import normalization
from ftwax.networks import recurrence

# Chooses actions, given a random key, the network's logits [B, num_actions] for
# each part, and the agent's hyperparameters.
Choose = Callable[
  [types.Key, types.ArrayTree, types.Hyperparameters], types.ArrayTree
]


def make_actor_core(
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  greedy: bool = False,
  choose: Choose | None = None,
) -> types.ActorCore:
  """Makes the functions of an actor.

  Args:
    network: computes the logits of the policy.
    environment_spec: its action spec defines the parts of the action.
    greedy: takes the most probable action instead of sampling one, and
      applies the network without seeds, hence without noise.
    choose: chooses actions otherwise; by default they are sampled from the
      policy.

  Returns:
    The actor's functions.
  """
  distributions.check_action_spec(environment_spec.actions)
  return types.ActorCore(
    init=functools.partial(_init, network, environment_spec.actions),
    select_action=functools.partial(
      _select_action, network, environment_spec, greedy, choose or _sample
    ),
    get_extras=_get_extras,
    replace_action=functools.partial(_replace_action, environment_spec.actions),
  )


def make_network_input(
  timestep: dm_env.TimeStep, previous_action: types.ArrayTree
) -> types.NetworkInput:
  """Makes the network's input, identically for actor and learner.

  Args:
    timestep: leaves [...]; its reward is the agent's own, a scalar.
    previous_action: [...] for each part; at `FIRST`, the code for no action.

  Returns:
    The network's input, leaves [...].
  """
  return types.NetworkInput(
    observation=timestep.observation,
    previous_action=previous_action,
    previous_reward=timestep.reward,
  )


def with_own_reward(
  internal_rewards: types.InternalRewards, timestep: dm_env.TimeStep
) -> dm_env.TimeStep:
  """Replaces the environment's reward by the agent's own, float32 [...]."""
  return timestep._replace(
    reward=internal_rewards_lib.reward(internal_rewards, timestep)
  )


def is_first(timestep: dm_env.TimeStep) -> types.Array:
  """Returns whether each timestep starts an episode, bool [...]."""
  return timestep.step_type == types.FIRST


def previous_action_of(
  timestep: dm_env.TimeStep,
  action: types.ArrayTree,
  where: Callable[..., types.ArrayTree] = trees.where_rows,
) -> types.ArrayTree:
  """Returns the action that led to `timestep`; at `FIRST`, no action."""
  # The state still holds the action selected at `LAST`, which was not taken.
  none = jax.tree.map(distributions.none_of, action)
  return where(is_first(timestep), none, action)


def _init(
  network: types.RecurrentNetwork,
  action_spec: types.SpecTree,
  key: types.Key,
  batch_size: int,
) -> types.ActorState:
  key = trees.raw_key(key)
  return types.ActorState(
    key=key,
    recurrent_state=network.initial_state(batch_size),
    action=jax.tree.map(
      jnp.asarray, distributions.no_action(action_spec, (batch_size,))
    ),
    logits=jax.tree.map(
      jnp.asarray, distributions.zero_logits(action_spec, (batch_size,))
    ),
    value=jnp.zeros((batch_size,)),
    seed=(
      jax.random.bits(jax.random.fold_in(key, 0), (batch_size,)) >> 1
    ).astype(jnp.int32),
  )


def as_specified(
  timestep: dm_env.TimeStep, environment_spec: types.EnvironmentSpec
) -> dm_env.TimeStep:
  """Returns a timestep of a game that may tell a critic more or less."""
  seen, own = timestep.observation, environment_spec.observations
  if all(isinstance(x, Mapping) and types.PRIVILEGED in x for x in (seen, own)):
    return timestep
  public = types.without_privileged(own)
  return timestep._replace(observation=types.see_public(seen, public))


def _sample(
  key: types.Key,
  logits: types.ArrayTree,
  hyperparameters: types.Hyperparameters,
) -> types.ArrayTree:
  del hyperparameters
  return distributions.sample(key, logits)


def _select_action(
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  greedy: bool,
  choose: Choose,
  variables: types.ActorVariables,
  timestep: dm_env.TimeStep,
  state: types.ActorState,
) -> tuple[types.ArrayTree, types.ActorState]:
  key = state.key
  if not greedy:
    key, _, sample_key = jax.random.split(key, 3)
  timestep = normalization.with_normalized_observation(
    variables.observation_statistics,
    with_own_reward(
      variables.internal_rewards, as_specified(timestep, environment_spec)
    ),
  )
  output, recurrent_state = network.apply(
    variables.params,
    variables.hyperparameters,
    None if greedy else state.seed,
    make_network_input(timestep, previous_action_of(timestep, state.action)),
    # Before the step, as in the learner's unroll, not after `LAST`.
    recurrence.reset_state(is_first(timestep), state.recurrent_state),
  )
  if greedy:
    action = distributions.mode(output.logits)
  else:
    action = choose(sample_key, output.logits, variables.hyperparameters)
  if getattr(environment_spec, 'absences', False):  # Acme's has none.
    # The last decision is the one before the next.
    recurrent_state, action = trees.where_rows(
      timestep.step_type == types.ABSENT,
      (state.recurrent_state, state.action),
      (recurrent_state, action),
    )
  state = types.ActorState(
    key,
    recurrent_state,
    action,
    output.logits,
    output.value,
    state.seed + 1,
  )
  return distributions.to_environment(environment_spec.actions, action), state


def _replace_action(
  action_spec: types.SpecTree, state: types.ActorState, action: types.ArrayTree
) -> types.ActorState:
  """Replaces the selected action by the one that was actually taken.

  A sampled part may lie beyond the bounds that `to_environment` clips it to. If
  the taken part equals what the environment would receive for the selected one,
  the raw sample is kept, so that its log-probability stays exact.
  """
  taken = jax.tree.map(jnp.asarray, action)
  shapes = [jax.tree.map(jnp.shape, tree) for tree in (taken, state.action)]
  if shapes[0] != shapes[1]:
    raise ValueError(
      f'action (shapes {shapes[0]}) must have the structure and shapes of the'
      f" actor's own actions, {shapes[1]}; pass one action of action_spec for"
      ' each environment.'
    )
  return state._replace(
    action=jax.tree.map(
      lambda drawn, sent, new, raw: jnp.where(sent == new, drawn, raw),
      state.action,
      distributions.to_environment(action_spec, state.action),
      taken,
      distributions.from_environment(action_spec, taken),
    )
  )


def _get_extras(state: types.ActorState) -> Mapping[str, types.ArrayTree]:
  return {
    'logits': state.logits,
    'recurrent_state': state.recurrent_state,
    'seed': state.seed,
  }
