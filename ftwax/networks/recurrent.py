"""A recurrent network: embedding, core and heads as pure functions.

    observation, previous action, previous reward
      -> embedding     all T * B steps at once
      -> core          the only thing inside the loop over time
      -> policy head, value head, auxiliary heads of features

    observation -> torso -> auxiliary heads of observations

The core can be any Haiku module that implements `recurrence.RecurrentCore`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import distributions, trees, types
from ftwax.networks import (
  core_parts,
  embeddings,
  heads,
  noise,
  recurrence,
)

# Makes an auxiliary head, called inside a Haiku transform.
MakeHead = Callable[[], Callable[[types.Array], types.ArrayTree]]


class ObservationHead(NamedTuple):
  """An auxiliary head on consecutive observations.

  Attributes:
    make: makes the head, which maps the torso's embeddings [num_frames, B,
      num_features] to any output.
    num_frames: number of observations that the head uses at a time.
  """

  make: MakeHead
  num_frames: int


# Auxiliary heads by name; others than on observations map the core's features
# [B, num_features] to any output with leaves [B, ...].
MakeHeads = Mapping[str, MakeHead | ObservationHead]


def make_recurrent_network(
  environment_spec: types.EnvironmentSpec,
  *,
  core: Any,
  make_torso: Callable[[], Callable[[Any], types.Array]] | None = None,
  head_options: heads.Heads | None = None,
  separate_value: 'SeparateValue | bool | None' = None,
  previous: embeddings.Previous = embeddings.Previous(),  # noqa: B008
  auxiliary_heads: MakeHeads | None = None,
) -> types.RecurrentNetwork:
  """Makes a network for the observations and actions of an environment.

  Args:
    environment_spec: specs of the environment. If its observation is a dict
      with the entry `types.ACTION_MASK`, forbidden actions get probability
      zero.
    core: a part of `networks.cores`, or a function that makes a core inside a
      Haiku transform. A part has the numbers of the hyperparameters that the
      network is called with, or its own if these are None.
    make_torso: makes the function from an observation, leaves [B, ...], to
      features [B, num_features]; by default `embeddings.ObservationEmbedding`.
      It gets no entry `types.PRIVILEGED`.
    head_options: options of the policy and value heads.
    separate_value: whether the value has its own torso and core, which alone
      see the entry `types.PRIVILEGED`, or which these are. Features
      and auxiliary outputs are then those of the policy.
    previous: which of previous action and reward the core reads.
    auxiliary_heads: heads of auxiliary tasks.

  Returns:
    The network. Its `auxiliary` output is the core's; its heads take features,
    or observations, with leaves [T, B, ...].

  Raises:
    ValueError: if an action is neither discrete nor a vector, or the action
      mask does not fit it. Its `init` and `unroll` raise one if the core
      returns another kind of state than it takes.
  """
  distributions.check_action_spec(environment_spec.actions)
  _check_action_mask(environment_spec)
  specs = environment_spec.observations
  public = functools.partial(
    embeddings.ObservationEmbedding, types.without_privileged(specs)
  )
  whole = functools.partial(embeddings.ObservationEmbedding, specs)
  value = separate_value
  if isinstance(value, bool):
    value = SeparateValue(make_torso or whole) if value else None
  architecture = _Architecture(
    environment_spec,
    core_parts.as_part(core),
    make_torso or public,
    head_options or heads.Heads(),
    value,
    previous,
    auxiliary_heads or {},
  )
  network = _make_pure(hk.multi_transform(architecture.functions))
  # Makes the modules, so that options which do not fit raise here.
  jax.eval_shape(lambda: network.initial_state(1))
  return network


class SeparateValue(NamedTuple):
  """What a value with a torso and a core of its own has.

  Attributes:
    make_torso: as for the policy. Where the observation lacks the entry
      `types.PRIVILEGED` of the specs, as one of an agent in use may, this torso
      gets zeros there, and the value means nothing.
    core: the recurrent core; None for one as that of the policy.
  """

  make_torso: Callable[[], Callable[[Any], types.Array]]
  core: core_parts.Core | None = None


class SeparateState(NamedTuple):
  """State of a network whose value has its own core, leaves [B, ...].

  Attributes:
    policy: state of the policy's core.
    value: state of the value's core.
  """

  policy: types.RecurrentState
  value: types.RecurrentState


class _Path(NamedTuple):
  """A path from the inputs to the features that a head uses.

  Attributes:
    torso: maps observations, leaves [B, ...], to [B, num_features].
    embed: applies the torso and appends previous action and reward.
    core: the recurrent core.
  """

  torso: Callable[[Any], types.Array]
  embed: embeddings.InputEmbedding
  core: recurrence.RecurrentCore

  def step(
    self,
    inputs: types.NetworkInput,
    state: types.RecurrentState,
  ) -> tuple[recurrence.CoreOutput, types.RecurrentState]:
    """Does one step, leaves [B, ...]."""
    return self.core(self.embed(inputs), state)

  def unroll(
    self,
    inputs: types.NetworkInput,
    start: types.Array,
    state: types.RecurrentState,
  ) -> tuple[recurrence.CoreOutput, types.RecurrentState]:
    """Does `T` steps, leaves [T, B, ...]."""
    recurrence.check_unroll('unroll', inputs, start, state)
    # [T, B, num_features]
    embedding = recurrence.batch_apply(self.embed)(inputs)
    output, after = self.core.unroll(embedding, start, state)
    _check_state('unroll', state, after)
    return output, after


@dataclasses.dataclass(frozen=True)
class _Architecture:
  """What a network is made of, which each of its functions makes anew.

  Attributes: see `make_recurrent_network`.
  """

  spec: types.EnvironmentSpec
  core: core_parts.Core
  make_torso: Callable[[], Callable[[Any], types.Array]]
  head_options: heads.Heads
  separate_value: SeparateValue | None
  previous: embeddings.Previous
  auxiliary_heads: MakeHeads

  def functions(self) -> tuple[Callable[[], None], '_Functions']:
    """Returns functions to be called within a Haiku transform."""
    return self._init, _Functions(
      self._step,
      self._unroll,
      lambda batch_size: self._make().initial_state(batch_size),
      {name: self._head(name) for name in self.auxiliary_heads},
    )

  def _make(
    self, bind: Callable[[core_parts.Core], core_parts.Core] = lambda core: core
  ) -> '_ActorCritic':
    """Makes the modules.

    Args:
      bind: returns a copy of a core with values of its hyperparameters.
    """
    spec, options, core = self.spec, self.head_options, bind(self.core)
    value_path = None
    policy_path = self._make_path(
      core, self.make_torso, types.without_privileged
    )
    if (value := self.separate_value) is not None:
      own = core
      if value.core is not None:
        own = bind(value.core)
      value_path = self._make_path(own, value.make_torso, self._complete)
    return _ActorCritic(
      policy_path=policy_path,
      value_path=value_path,
      policy_head=options.make_policy_head(spec.actions),
      value_head=options.make_value_head(),
      options=options,
      has_action_mask=_has(spec.observations, types.ACTION_MASK),
      auxiliary_heads={
        name: head.make() if isinstance(head, ObservationHead) else head()
        for name, head in self.auxiliary_heads.items()
      },
    )

  def _complete(self, observation: Any) -> Any:
    """Returns an observation with all entries of the specs."""
    own = self.spec.observations
    if not _has(own, types.PRIVILEGED) or types.PRIVILEGED in observation:
      return observation
    batch_size = len(jax.tree.leaves(observation)[0])
    hidden = trees.zeros_like_spec(own[types.PRIVILEGED], (batch_size,))
    return {**observation, types.PRIVILEGED: hidden}

  def _make_path(
    self,
    core: core_parts.Core,
    make_torso: Callable[[], Callable[[Any], types.Array]],
    see: Callable[[Any], Any],
  ) -> '_Path':
    seeing = make_torso()
    embeddings.check_torso(seeing)

    def torso(observation: Any) -> types.Array:
      return seeing(see(observation))

    made = core.make()
    has_memory = bool(jax.tree.leaves(made.initial_state(1)))
    embed = embeddings.InputEmbedding(
      torso, self.spec.actions, self.previous.resolve(has_memory)
    )
    return _Path(torso, embed, made)

  def _init(self) -> None:
    modules = self._make(lambda core: core.bound(core.example_values()))
    inputs, state = _zero_input(self.spec), modules.initial_state(1)
    output, after = modules.step(inputs, state)
    _check_state('step', state, after)
    frames = {
      name: trees.zeros_like_spec(self.spec.observations, (head.num_frames, 1))
      for name, head in self.auxiliary_heads.items()
      if isinstance(head, ObservationHead)
    }
    for name in [one for one in self.auxiliary_heads if one not in frames]:
      modules.auxiliary_heads[name](output.features)
    for name, observation in frames.items():
      modules.frame_head(name)(observation)

  def _step(self, seeds: Any, hyperparameters: Any, *args: Any) -> Any:
    with noise.seeded(seeds):
      return self._make(_binder(hyperparameters)).step(*args)

  def _unroll(self, seeds: Any, hyperparameters: Any, *args: Any) -> Any:
    with noise.seeded(seeds):
      return self._make(_binder(hyperparameters)).unroll(*args)

  def _head(self, name: str) -> Callable[[Any], types.ArrayTree]:
    def apply(inputs: Any) -> types.ArrayTree:
      modules = self._make()
      if isinstance(self.auxiliary_heads[name], ObservationHead):
        return modules.frame_head(name)(inputs)
      head = recurrence.batch_apply(modules.auxiliary_heads[name])
      return head(inputs)

    return apply


@dataclasses.dataclass(frozen=True)
class _ActorCritic:
  """All parts of a network except for auxiliary heads, in a Haiku transform."""

  policy_path: _Path
  value_path: _Path | None
  policy_head: heads.PolicyHead
  value_head: heads.ValueHead
  options: heads.Heads
  has_action_mask: bool
  auxiliary_heads: Mapping[str, Callable[[types.Array], types.ArrayTree]]

  def initial_state(self, batch_size: int) -> types.RecurrentState:
    """Returns the zero state."""
    state = self.policy_path.core.initial_state(batch_size)
    if self.value_path is None:
      return state
    return SeparateState(state, self.value_path.core.initial_state(batch_size))

  def step(
    self,
    inputs: types.NetworkInput,
    state: types.RecurrentState,
  ) -> tuple[types.NetworkOutput, types.RecurrentState]:
    """Does one step, leaves [B, ...]."""
    return self._apply_paths(
      lambda path, state: path.step(inputs, state),
      inputs,
      state,
    )

  def unroll(
    self,
    inputs: types.NetworkInput,
    start: types.Array,
    state: types.RecurrentState,
  ) -> tuple[types.NetworkOutput, types.RecurrentState]:
    """Does `T` steps, leaves [T, B, ...]."""
    return self._apply_paths(
      lambda path, state: path.unroll(inputs, start, state),
      inputs,
      state,
    )

  def _apply_paths(
    self,
    apply: Callable[
      [_Path, types.RecurrentState],
      tuple[recurrence.CoreOutput, types.RecurrentState],
    ],
    inputs: types.NetworkInput,
    state: types.RecurrentState,
  ) -> tuple[types.NetworkOutput, types.RecurrentState]:
    """Applies the paths, then the heads."""
    if self.value_path is None:
      output, state = apply(self.policy_path, state)
      return self._apply_heads(inputs, output, output), state
    output, policy_state = apply(self.policy_path, state.policy)
    value_output, value_state = apply(self.value_path, state.value)
    return (
      self._apply_heads(inputs, output, value_output),
      SeparateState(policy_state, value_state),
    )

  def _apply_heads(
    self,
    inputs: types.NetworkInput,
    output: recurrence.CoreOutput,
    value_output: recurrence.CoreOutput,
  ) -> types.NetworkOutput:
    read = functools.partial(_read_layer, self.options)

    def mask(logits: types.ArrayTree) -> types.ArrayTree:
      if not self.has_action_mask:
        return logits
      return distributions.mask_logits(
        logits, inputs.observation[types.ACTION_MASK]
      )

    # [..., B, num_actions] and [..., B]
    logits, value = self.options.join(
      self.policy_head(read('policy_layer', output)),
      lambda: self.value_head(read('value_layer', value_output)),
      mask,
    )
    return types.NetworkOutput(logits, value, output.features, output.auxiliary)

  def frame_head(self, name: str) -> Callable[[Any], types.ArrayTree]:
    """Returns a head on observations, leaves [num_frames, B, ...]."""
    # The policy's own torso, so that the auxiliary task shapes it too.
    torso = recurrence.batch_apply(self.policy_path.torso)
    head = self.auxiliary_heads[name]
    return lambda observation: head(torso(observation))


def _read_layer(
  options: heads.Heads, name: str, output: recurrence.CoreOutput
) -> types.Array:
  """Returns what a head reads of a core, [..., B, num_features].

  Args:
    options: options of the heads.
    name: the option that has the layer.
    output: output of the core.

  Raises:
    ValueError: if the core does not have the layer.
  """
  layer = getattr(options, name)
  if layer is None:
    return output.features
  layers = output.auxiliary.get('layers', ())
  if layer >= len(layers):
    demand = f'below {len(layers)}, the number of layers of the core'
    if not layers:
      demand = 'None for a core that does not output its layers'
    raise ValueError(
      f'{name} ({layer}) of Heads must be {demand}; choose a smaller one, or'
      ' core=cores.StackedLSTM(hidden_sizes=...) with as many layers.'
    )
  features: types.Array = layers[layer]
  return features


class _Functions(NamedTuple):
  """Functions for a Haiku transform to make pure; `heads` are by name."""

  step: Callable[..., Any]
  unroll: Callable[..., Any]
  initial_state: Callable[..., Any]
  heads: dict[str, Callable[..., Any]]


def _make_pure(transformed: hk.MultiTransformed) -> types.RecurrentNetwork:
  """Reorders the arguments of `_Functions` as in `RecurrentNetwork`."""
  step, unroll, initial_state, heads_by_name = transformed.apply

  def make_head(head: Callable[..., Any]) -> types.NetworkHead:
    return lambda params, inputs: head(params, None, inputs)

  return types.RecurrentNetwork(
    init=transformed.init,
    apply=lambda params, hyperparameters, seeds, inputs, state: step(
      params, None, seeds, hyperparameters, inputs, state
    ),
    unroll=lambda params, hyperparameters, seeds, inputs, start, state: unroll(
      params, None, seeds, hyperparameters, inputs, start, state
    ),
    initial_state=lambda batch_size: initial_state({}, None, batch_size),
    heads={name: make_head(head) for name, head in heads_by_name.items()},
  )


def _zero_input(environment_spec: types.EnvironmentSpec) -> types.NetworkInput:
  """Returns a zero input for one step of one environment, leaves [1, ...]."""
  return types.NetworkInput(
    observation=trees.zeros_like_spec(environment_spec.observations, (1,)),
    previous_action=trees.zeros_like_spec(environment_spec.actions, (1,)),
    previous_reward=jnp.zeros((1,)),
  )


def _check_state(
  what: str, before: types.RecurrentState, after: types.RecurrentState
) -> None:
  """Raises a ValueError if structure, shapes or dtypes changed."""
  kinds = [
    jax.tree.map(
      lambda leaf: f'{jnp.result_type(leaf)}{list(jnp.shape(leaf))}', state
    )
    for state in (before, after)
  ]
  if kinds[0] != kinds[1]:
    raise ValueError(
      f'The state that the {what} of the core returns ({kinds[1]}) must be of'
      f' the kind that it takes, {kinds[0]}, the one of initial_state; return'
      ' the same structure, shapes and dtypes.'
    )


def _has(observation: Any, entry: str) -> bool:
  return isinstance(observation, Mapping) and entry in observation


def _binder(values: Any) -> Callable[[core_parts.Core], core_parts.Core]:
  def bind(core: core_parts.Core) -> core_parts.Core:
    bound = core.bound(values)
    bound.check_bound()
    return bound

  return bind


def _check_action_mask(environment_spec: types.EnvironmentSpec) -> None:
  """Raises a ValueError if there is an action mask of wrong shapes."""
  if not _has(environment_spec.observations, types.ACTION_MASK):
    return
  mask_spec = environment_spec.observations[types.ACTION_MASK]
  distributions.split_mask(
    distributions.part_sizes(environment_spec.actions),
    trees.zeros_like_spec(mask_spec, ()),
  )
