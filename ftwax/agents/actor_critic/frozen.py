"""A policy that does not learn, evaluated along the trajectories of others."""

import functools
from typing import Any

import jax

from ftwax import trees, types
from ftwax.agents.actor_critic import acting, normalization

# `(variables, trajectory) -> logits`, leaves [T, B, ...].
Unroll = Any


@jax.tree_util.register_pytree_node_class
class FrozenPolicy:
  """A policy whose variables are data; see `types.FrozenPolicy`.

  It is a pytree of its variables, so that computations have them as arguments,
  one copy for all members, and compile in nothing of them.
  """

  def __init__(self, unroll: Unroll, variables: types.ActorVariables):
    """Wraps what `make` made."""
    self._unroll = unroll
    self.variables = variables

  def unroll(self, trajectory: types.Trajectory) -> types.ArrayTree:
    """Returns its logits, leaves [T, B, ...], without gradients.

    Its core begins each trajectory with the state zero, as what it would have
    remembered is known to no learner.

    Args:
      trajectory: leaves [T + 1 or T, B, ...], with the rewards of the
        environment.
    """
    return jax.lax.stop_gradient(self._unroll(self.variables, trajectory))

  def tree_flatten(self) -> tuple[tuple[types.ActorVariables], Unroll]:
    """Returns the variables, and the rest, which is compared by identity."""
    return (self.variables,), self._unroll

  @classmethod
  def tree_unflatten(cls, unroll: Unroll, children: Any) -> 'FrozenPolicy':
    """Returns a policy of what `tree_flatten` returned."""
    return cls(unroll, *children)


def make(
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  variables: types.ActorVariables,
) -> FrozenPolicy:
  """Makes a policy that does not learn.

  Args:
    network: its network, which is applied without noise.
    environment_spec: the specs that it was trained with; it sees nothing else.
    variables: its variables, without a member axis.
  """
  unroll = functools.partial(_unroll, network, environment_spec)
  return FrozenPolicy(unroll, variables)


def _unroll(
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  variables: types.ActorVariables,
  trajectory: types.Trajectory,
) -> types.ArrayTree:
  # No action is taken at the last step.
  timestep, previous_action = trees.take(
    (trajectory.timestep, trajectory.previous_action), slice(None, -1)
  )
  timestep = normalization.with_normalized_observation(
    variables.observation_statistics,
    acting.with_own_reward(
      variables.internal_rewards,
      acting.as_specified(timestep, environment_spec),
    ),
  )
  output, _ = network.unroll(
    variables.params,
    variables.hyperparameters,
    None,
    acting.make_network_input(timestep, previous_action),
    acting.is_first(timestep),
    network.initial_state(timestep.step_type.shape[1]),
  )
  return output.logits
