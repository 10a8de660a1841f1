"""A recurrent network: embedding, core and heads as pure functions.

    observation, previous action, previous reward
      -> embedding     all T * B steps at once
      -> core          the only thing inside the loop over time
      -> policy head, value head, auxiliary heads of features

    observation -> torso -> auxiliary heads of observations

The core is exchangeable: any Haiku module that satisfies
`cores.RecurrentCore`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import distributions, types
from ftwax.networks import cores, embeddings, heads

# Makes an auxiliary head, called inside a Haiku transform.
MakeHead = Callable[[], Callable[[types.Array], types.ArrayTree]]


class ObservationHead(NamedTuple):
  """An auxiliary head of consecutive observations.

  Attributes:
    make: makes the head, which maps embeddings by the torso alone,
      [num_frames, B, num_features], to anything.
    num_frames: observations that it reads at a time.
  """

  make: MakeHead
  num_frames: int


def make_recurrent_network(
  environment_spec: types.EnvironmentSpec,
  *,
  make_core: Callable[[], cores.RecurrentCore],
  make_torso: Callable[[], Callable[[Any], types.Array]] | None = None,
  policy_hidden_sizes: Sequence[int] = (),
  value_hidden_sizes: Sequence[int] = (),
  reward_transform: Callable[[types.Array], types.Array] | None = jnp.tanh,
  make_feature_heads: Mapping[str, MakeHead] | None = None,
  observation_heads: Mapping[str, ObservationHead] | None = None,
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
    make_feature_heads: by name, auxiliary heads that map the core's features
      [B, num_features] to anything with leaves [B, ...].
    observation_heads: by name, auxiliary heads that read consecutive
      observations.
    example_hyperparameters: what the core is given while parameters are made.
      Parameters do not depend on it; only a core that reads some needs it.

  Returns:
    The network. Its `auxiliary` output is that of the core; its heads take
    features, or observations, with leaves [T, B, ...].

  Raises:
    ValueError: if an action is neither discrete nor a vector, or a mask does
      not fit it.
  """
  distributions.check_action_spec(environment_spec.actions)
  _check_action_mask(environment_spec)
  make_feature_heads = dict(make_feature_heads or {})
  observation_heads = dict(observation_heads or {})
  if example_hyperparameters is None:
    example_hyperparameters = _NoHyperparameters()

  def make_default_torso():
    return embeddings.ObservationEmbedding(environment_spec.observations)

  def make_functions():
    torso = (make_torso or make_default_torso)()
    actor_critic = _ActorCritic(
      torso=torso,
      embed=embeddings.InputEmbedding(
        torso, environment_spec.actions, reward_transform=reward_transform
      ),
      core=make_core(),
      policy_head=heads.PolicyHead(
        environment_spec.actions, policy_hidden_sizes
      ),
      value_head=heads.ValueHead(value_hidden_sizes),
      has_action_mask=_has_action_mask(environment_spec.observations),
    )
    feature_heads = {
      name: make_head() for name, make_head in make_feature_heads.items()
    }
    frame_heads = {
      name: actor_critic.make_frame_head(head.make())
      for name, head in observation_heads.items()
    }
    initial_state = actor_critic.core.initial_state

    def init():
      inputs = _zero_input(environment_spec)
      output, _ = actor_critic.step(
        inputs, initial_state(1), example_hyperparameters
      )
      for feature_head in feature_heads.values():
        feature_head(output.features)
      for name, frame_head in frame_heads.items():
        num_frames = observation_heads[name].num_frames
        frame_head(
          types.zeros_like_spec(environment_spec.observations, (num_frames, 1))
        )

    heads_by_name: dict[str, Callable[..., Any]] = {
      name: hk.BatchApply(head) for name, head in feature_heads.items()
    }
    heads_by_name |= frame_heads
    return init, _Functions(
      actor_critic.step, actor_critic.unroll, initial_state, heads_by_name
    )

  return _make_pure(hk.multi_transform(make_functions))


@dataclasses.dataclass(frozen=True)
class _ActorCritic:
  """How the parts hang together; lives inside a Haiku transform."""

  torso: Callable[[Any], types.Array]
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
    return types.NetworkOutput(logits, value, output.features, output.auxiliary)

  def make_frame_head(self, head):
    """Returns a head of observations, leaves [num_frames, B, ...]."""
    return lambda observation: head(hk.BatchApply(self.torso)(observation))


class _Functions(NamedTuple):
  """What a transform applies."""

  step: Callable[..., Any]
  unroll: Callable[..., Any]
  initial_state: Callable[..., Any]
  heads: dict[str, Callable[..., Any]]


def _make_pure(transformed: hk.MultiTransformed) -> types.RecurrentNetwork:
  """Brings a transform's functions into the order of the library's arguments.

  Args:
    transformed: of `_Functions`.
  """
  transformed_step, transformed_unroll, transformed_state, transformed_heads = (
    transformed.apply
  )

  def apply(params, hyperparameters, key, inputs, state):
    return transformed_step(params, key, inputs, state, hyperparameters)

  def unroll(params, hyperparameters, key, inputs, start, state):
    return transformed_unroll(
      params, key, inputs, start, state, hyperparameters
    )

  def initial_state(batch_size):
    no_params: types.Params = {}
    return transformed_state(no_params, None, batch_size)

  def make_head(transformed_head):
    return lambda params, inputs: transformed_head(params, None, inputs)

  return types.RecurrentNetwork(
    init=transformed.init,
    apply=apply,
    unroll=unroll,
    initial_state=initial_state,
    heads={k: make_head(head) for k, head in transformed_heads.items()},
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
