"""A recurrent network: embedding, core and heads as pure functions.

    observation, previous action, previous reward
      -> embedding     all T * B steps at once
      -> core          the only thing inside the loop over time
      -> policy head, value head

The core is exchangeable: any Haiku module that satisfies
`cores.RecurrentCore`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import distributions, types
from ftwax.networks import cores, embeddings, heads


def make_recurrent_network(
  environment_spec: types.EnvironmentSpec,
  *,
  make_core: Callable[[], cores.RecurrentCore],
  make_torso: Callable[[], Callable[[Any], types.Array]] | None = None,
  policy_hidden_sizes: Sequence[int] = (),
  value_hidden_sizes: Sequence[int] = (),
  reward_transform: Callable[[types.Array], types.Array] | None = jnp.tanh,
  example_hyperparameters: types.Hyperparameters = None,
) -> types.RecurrentNetwork:
  """Makes a network for the observations and actions of an environment.

  Args:
    environment_spec: specs of the environment. If its observation is a dict
      with the entry `types.ACTION_MASK`, forbidden actions get probability
      zero.
    make_core: makes the core, called inside a Haiku transform.
    make_torso: makes what maps an observation, leaves [B, ...], to features
      [B, num_features]; by default `embeddings.ObservationEmbedding`.
    policy_hidden_sizes: layers of each branch of the policy head.
    value_hidden_sizes: layers of the value head.
    reward_transform: applied to the previous reward; None feeds it as it is.
    example_hyperparameters: what the core is given while parameters are made.
      Parameters do not depend on it; only a core that reads some needs it.

  Returns:
    The network. Its `auxiliary` output is that of the core.

  Raises:
    ValueError: if an action is not discrete or a mask does not fit it.
  """
  distributions.check_action_spec(environment_spec.actions)
  _check_action_mask(environment_spec)
  if example_hyperparameters is None:
    example_hyperparameters = _NoHyperparameters()
  num_actions = distributions.num_actions(environment_spec.actions)

  def make_default_torso():
    return embeddings.ObservationEmbedding(environment_spec.observations)

  def make_functions():
    actor_critic = _ActorCritic(
      embed=embeddings.InputEmbedding(
        (make_torso or make_default_torso)(),
        num_actions,
        reward_transform=reward_transform,
      ),
      core=make_core(),
      policy_head=heads.PolicyHead(num_actions, policy_hidden_sizes),
      value_head=heads.ValueHead(value_hidden_sizes),
      has_action_mask=_has_action_mask(environment_spec.observations),
    )
    initial_state = actor_critic.core.initial_state

    def init():
      inputs = _zero_input(environment_spec)
      actor_critic.step(inputs, initial_state(1), example_hyperparameters)

    return init, (actor_critic.step, actor_critic.unroll, initial_state)

  return _make_pure(hk.multi_transform(make_functions))


@dataclasses.dataclass(frozen=True)
class _ActorCritic:
  """How the parts hang together; lives inside a Haiku transform."""

  embed: embeddings.InputEmbedding
  core: cores.RecurrentCore
  policy_head: heads.PolicyHead
  value_head: heads.ValueHead
  has_action_mask: bool

  def step(self, inputs, state, hyperparameters):
    """Does one step, leaves [B, ...]."""
    output, state = self.core(self.embed(inputs), state, hyperparameters)
    return self._read(inputs, output), state

  def unroll(self, inputs, start, state, hyperparameters):
    """Does `T` steps, leaves [T, B, ...]."""
    embedding = hk.BatchApply(self.embed)(inputs)  # [T, B, num_features]
    output, state = self.core.unroll(embedding, start, state, hyperparameters)
    return self._read(inputs, output), state

  def _read(self, inputs, output):
    logits = self.policy_head(output.features)
    if self.has_action_mask:
      action_mask = inputs.observation[types.ACTION_MASK]
      logits = distributions.mask_logits(logits, action_mask)
    value = self.value_head(output.features)
    return types.NetworkOutput(logits, value, output.auxiliary)


def _make_pure(transformed: hk.MultiTransformed) -> types.RecurrentNetwork:
  """Brings a transform's functions into the order of the library's arguments.

  Args:
    transformed: applies one step, an unroll, and the state's initialization.
  """
  transformed_step, transformed_unroll, transformed_state = transformed.apply

  def apply(params, hyperparameters, key, inputs, state):
    return transformed_step(params, key, inputs, state, hyperparameters)

  def unroll(params, hyperparameters, key, inputs, start, state):
    return transformed_unroll(
      params, key, inputs, start, state, hyperparameters
    )

  def initial_state(batch_size):
    no_params: types.Params = {}
    return transformed_state(no_params, None, batch_size)

  return types.RecurrentNetwork(
    init=transformed.init,
    apply=apply,
    unroll=unroll,
    initial_state=initial_state,
  )


def _zero_input(environment_spec: types.EnvironmentSpec) -> types.NetworkInput:
  """Returns the input of one step in one environment, leaves [1, ...]."""
  return types.NetworkInput(
    observation=types.zeros_like_spec(environment_spec.observations, (1,)),
    previous_action=types.zeros_like_spec(environment_spec.actions, (1,)),
    previous_reward=jnp.zeros((1,)),
  )


class _NoHyperparameters:
  """Says what to do when a core reads hyperparameters that nobody gave."""

  def __getattr__(self, name: str) -> Any:
    raise AttributeError(
      f'hyperparameters.{name} is read by the core while its parameters are'
      ' made; pass example_hyperparameters=..., with any values, to'
      ' make_recurrent_network.'
    )


def _has_action_mask(observation: Any) -> bool:
  return isinstance(observation, Mapping) and types.ACTION_MASK in observation


def _check_action_mask(environment_spec: types.EnvironmentSpec) -> None:
  """Raises a ValueError if there is a mask that does not fit the action."""
  if not _has_action_mask(environment_spec.observations):
    return
  mask_spec = environment_spec.observations[types.ACTION_MASK]
  shapes = jax.tree.map(lambda leaf: leaf.shape, mask_spec)
  demanded = jax.tree.map(
    lambda num_actions: (num_actions,),
    distributions.num_actions(environment_spec.actions),
  )
  if shapes != demanded:
    raise ValueError(
      f'The shapes of observation_spec[{types.ACTION_MASK!r}] ({shapes}) must'
      f' be those of the logits, {demanded}; give one entry for each choice of'
      ' each part of the action.'
    )
