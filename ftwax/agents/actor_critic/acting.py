"""Acting as pure functions, batched over environments."""

import functools
from collections.abc import Mapping

import dm_env
import jax
import jax.numpy as jnp

from ftwax import distributions, types
from ftwax import internal_rewards as internal_rewards_lib
from ftwax.networks import cores

# A plain number, since NumPy compares with an enumeration slowly.
_FIRST = int(dm_env.StepType.FIRST)


def make_actor_core(
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  greedy: bool = False,
) -> types.ActorCore:
  """Makes the functions of an actor.

  Args:
    network: chooses by its logits.
    environment_spec: tells the parts of the action.
    greedy: takes the most probable action instead of drawing one, and
      applies the network without a key, so without noise.

  Returns:
    The actor's functions.
  """
  distributions.check_action_spec(environment_spec.actions)
  return types.ActorCore(
    init=functools.partial(_init, network, environment_spec.actions),
    select_action=functools.partial(
      _select_action, network, environment_spec.actions, greedy
    ),
    get_extras=_get_extras,
  )


def make_network_input(
  timestep: dm_env.TimeStep, previous_action: types.ArrayTree
) -> types.NetworkInput:
  """Returns what the network sees, the same to the actor and the learner.

  Args:
    timestep: leaves [...]; its reward is the agent's own, a scalar.
    previous_action: [...] for each part, that of no action at `FIRST`.

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
  """Puts the agent's own reward, [...], in place of the environment's."""
  return timestep._replace(
    reward=internal_rewards_lib.reward(internal_rewards, timestep)
  )


def is_first(timestep: dm_env.TimeStep) -> types.Array:
  """Returns where an episode starts, bool [...]."""
  return timestep.step_type == _FIRST


def previous_action_of(
  timestep: dm_env.TimeStep, action: types.ArrayTree
) -> types.ArrayTree:
  """Returns the action that led to `timestep`: none at `FIRST`."""
  start = is_first(timestep)

  def of_part(part):
    mask = start.reshape(start.shape + (1,) * (part.ndim - start.ndim))
    return jnp.where(mask, distributions.none_of(part), part)

  return jax.tree.map(of_part, action)


def _init(
  network: types.RecurrentNetwork,
  action_spec: types.SpecTree,
  key: types.Key,
  batch_size: int,
) -> types.ActorState:
  return types.ActorState(
    key=key,
    recurrent_state=network.initial_state(batch_size),
    action=jax.tree.map(
      jnp.asarray, distributions.no_action(action_spec, (batch_size,))
    ),
    logits=jax.tree.map(
      jnp.asarray, distributions.zero_logits(action_spec, (batch_size,))
    ),
  )


def _select_action(
  network: types.RecurrentNetwork,
  action_spec: types.SpecTree,
  greedy: bool,
  variables: types.ActorVariables,
  timestep: dm_env.TimeStep,
  state: types.ActorState,
) -> tuple[types.ArrayTree, types.ActorState]:
  key, network_key, sample_key = jax.random.split(state.key, 3)
  timestep = with_own_reward(variables.internal_rewards, timestep)
  output, recurrent_state = network.apply(
    variables.params,
    variables.hyperparameters,
    None if greedy else network_key,
    make_network_input(timestep, previous_action_of(timestep, state.action)),
    cores.reset_state(is_first(timestep), state.recurrent_state),
  )
  if greedy:
    action = distributions.mode(output.logits)
  else:
    action = distributions.sample(sample_key, output.logits)
  state = types.ActorState(key, recurrent_state, action, output.logits)
  return distributions.to_environment(action_spec, action), state


def _get_extras(state: types.ActorState) -> Mapping[str, types.ArrayTree]:
  return {'logits': state.logits, 'recurrent_state': state.recurrent_state}
