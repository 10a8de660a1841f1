"""acme's actor, around the functions of an `ActorCore`."""

import acme
import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.acme import adders
from ftwax.acme import variables as variables_lib
from ftwax.agents.actor_critic import acting


class Actor(acme.Actor):
  """Acts in one environment, or in several with a single call.

  With `num_environments=None` it is an acme actor for `acme.EnvironmentLoop`.
  With a number it has the same interface with a leading axis: timesteps,
  observations and actions have leaves [num_environments, ...], as those of
  `environments.vector.VectorEnvironment`.
  """

  def __init__(
    self,
    core: types.ActorCore,
    key: types.Key,
    variable_client: variables_lib.VariableClient,
    adder: adders.TrajectoryAdder | None = None,
    num_environments: int | None = None,
  ):
    """Makes an actor in its initial state.

    Args:
      core: the actor's functions.
      key: random key of the actor.
      variable_client: fetches parameters.
      adder: records timesteps and actions; None drops them, as in evaluation.
      num_environments: number of environments; None for a single one without
        the leading axis.
    """
    self._client = variable_client
    self._adder = adder
    self._single = num_environments is None
    self._select = jax.jit(core.select_action)
    self._get_extras = core.get_extras
    self._replace_action = jax.jit(core.replace_action)
    self._previous_action = jax.jit(acting.previous_action_of)
    self._selected: types.ArrayTree = None
    self._state: types.ActorState = jax.device_put(
      core.init(key, num_environments or 1), variable_client.sharding
    )
    self._timestep: dm_env.TimeStep | None = None

  def select_action(self, observation: types.ArrayTree) -> types.ArrayTree:
    """Returns actions for the last observed timestep, as NumPy arrays."""
    del observation  # The last observed timestep holds it too.
    if self._timestep is None:
      raise ValueError(
        'select_action must be called after observe_first, which was not'
        ' called; call observe_first with the first timestep of the episode.'
      )
    action, self._state = self._select(
      self._client.variables, self._timestep, self._state
    )
    action = jax.tree.map(np.asarray, action)
    if self._adder is not None:
      logits = self._get_extras(self._state)['logits']
      self._adder.add_choice(
        logits, self._client.steps, self._client.internal_rewards
      )
    if self._single:
      action = trees.take(action, 0)
    self._selected = action
    return action

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Observes the first timestep of an episode, or of each environment."""
    self._observe(timestep)

  def observe(
    self, action: types.ArrayTree, next_timestep: dm_env.TimeStep
  ) -> None:
    """Observes `action` and the timestep that follows, and records both.

    Args:
      action: the action that was taken; None for the last selected one. The
        learner treats any other action as if it was sampled from the policy:
        off-policy corrections use the policy's probability of it.
      next_timestep: the timestep after it.
    """
    # Comparing identities, not values, keeps the usual case free of cost.
    if action is not None and action is not self._selected:
      if self._single:
        action = jax.tree.map(lambda part: np.asarray(part)[None], action)
      self._state = self._replace_action(self._state, action)
    self._observe(next_timestep)

  def update(self, wait: bool = False) -> None:
    """Fetches variables at the start of each trajectory.

    Each trajectory thus comes from a single policy, and its age is well
    defined. Without an adder, every call fetches.

    Args:
      wait: ignored, since fetching always waits.
    """
    del wait
    if self._adder is None or self._adder.at_start:
      self._client.update()

  def _observe(self, timestep: dm_env.TimeStep) -> None:
    if self._single:
      num_events = len(self._client.internal_rewards)
      timestep = _with_batch_axis(timestep, num_events)
    self._timestep = timestep
    if self._adder is not None:
      extras, previous = self._get_extras(self._state), self._state.action
      if acting.is_first(timestep).any():
        previous = self._previous_action(timestep, previous)
      self._adder.add_timestep(
        timestep,
        previous,
        extras['recurrent_state'],
        extras['seed'],
      )


def _with_batch_axis(
  timestep: dm_env.TimeStep, num_events: int
) -> dm_env.TimeStep:
  """Returns `timestep` with leaves [1, ...] and missing fields filled in."""
  reward = timestep.reward
  if reward is None:
    reward = 0.0 if num_events == 1 else np.zeros(num_events)
  discount = 1.0 if timestep.discount is None else timestep.discount
  return dm_env.TimeStep(
    step_type=np.array([timestep.step_type], np.int32),
    reward=np.array([reward], np.float32),
    discount=np.array([discount], np.float32),
    observation=jax.tree.map(
      lambda x: np.asarray(x)[None], timestep.observation
    ),
  )
