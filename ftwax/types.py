"""Data structures and protocols of the whole library.

Axes, in this order: `N` population members, `T` time, `B` sequences or
environments. The shapes below are those of a single member: a population is
`vmap` over them. Shapes of actions and logits are those of discrete parts; see
`distributions` for continuous ones.

Time index. A `dm_env.TimeStep` at `t` holds the observation at `t` together
with the reward and discount of the transition that led to it. The action that
led to it is `previous_action` at `t`.
"""

import dataclasses
import types as python_types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import dm_env
import jax
import numpy as np
import numpy.typing as npt

from ftwax import suggestions

# Letters of a value in a short `repr`.
_MAX_REPR = 60

# An array or any nesting of tuples, lists and dicts of arrays.
ArrayTree = Any
Array = jax.Array
NumpyArray = np.ndarray[Any, Any]
Floats = npt.NDArray[np.float64]
SpecTree = Any  # Shapes, dtypes and bounds: an array spec or a nesting of them.

# A uint32 key of shape [2]; `jax.random.split` gives keys of shape [n, 2].
Key = jax.Array

# Parameters of a network, as `hk.Params`.
Params = Any

# State of a core: a pytree of arrays [B, ...], zero at the start of an episode.
RecurrentState = Any

# Weights of events, float32 [num_events]; see `ftwax.internal_rewards`.
InternalRewards = Array

# Scalars by name, for the log.
Metrics = Mapping[str, Array]

# Plain integers, since comparing NumPy arrays with an enumeration is slow.
FIRST = int(dm_env.StepType.FIRST)
MID = int(dm_env.StepType.MID)
LAST = int(dm_env.StepType.LAST)

# Step type of a seat without a decision, which is out of its game or waits; see
# `ftwax.environments.absences`.
ABSENT = 3

# Previous action at the first step of an episode; its one-hot code is zero.
NO_ACTION = -1

# Optional entry of a dict observation, in the action's structure with an axis
# of actions added to each part: nonzero where an action is allowed.
ACTION_MASK = 'action_mask'

# Optional entry of a dict observation: a value network of its own sees it, and
# nothing else does (`separate_value` in the config of an agent).
PRIVILEGED = 'privileged_state'


def without_privileged(observation: Any) -> Any:
  """Returns an observation, or its specs, without the entry `PRIVILEGED`."""
  if not isinstance(observation, Mapping) or PRIVILEGED not in observation:
    return observation
  return {
    name: entry for name, entry in observation.items() if name != PRIVILEGED
  }


def see_public(observation: Any, specs: Any) -> Any:
  """Returns what a policy sees of an observation, as its specs have it.

  A single entry of a dict and an array alone stand for each other: a game with
  the entry `PRIVILEGED` is the same for a policy as that without.

  Args:
    observation: of a game with or without that entry.
    specs: those of the policy, without it; see `EnvironmentSpec.public`.
  """
  seen = without_privileged(observation)
  is_dict, are_dict = isinstance(seen, Mapping), isinstance(specs, Mapping)
  if are_dict and not is_dict and len(specs) == 1:
    return {next(iter(specs)): seen}
  if is_dict and not are_dict and len(seen) == 1:
    return next(iter(seen.values()))
  return seen


class Hyperparameters(Protocol):
  """A tree of NamedTuples of scalar arrays; see `ftwax.hyperparameters`."""

  @property
  def _fields(self) -> tuple[str, ...]: ...

  def _asdict(self) -> dict[str, Any]: ...

  def _replace(self, **values: Any) -> 'Hyperparameters': ...

  def __getattr__(self, name: str) -> Any: ...


class EnvironmentSpec(NamedTuple):
  """Specs of an environment, from which agents and networks are made.

  Attributes:
    observations: specs of the observation, an array or a nesting of arrays.
    actions: specs of the action; each leaf is discrete or a vector of floats.
    rewards: spec of the reward: a scalar, or a vector [num_events] of the
      events of a step, which an agent's internal rewards weight.
    discounts: spec of the discount.
    absences: whether a row may be `ABSENT`.
  """

  observations: SpecTree
  actions: SpecTree
  rewards: SpecTree
  discounts: SpecTree
  absences: bool = False

  @property
  def public(self) -> 'EnvironmentSpec':
    """The specs that a policy reads, without the entry `PRIVILEGED`."""
    public = without_privileged(self.observations)
    return self._replace(observations=public)

  def is_played_like(self, other: 'EnvironmentSpec') -> bool:
    """Returns whether a policy for these specs acts in those; `see_public`."""
    own, others = self.public, other.public
    seen = see_public(others.observations, own.observations)
    return own == others._replace(observations=seen)


def make_environment_spec(environment: dm_env.Environment) -> EnvironmentSpec:
  """Returns the specs of `environment`."""
  return EnvironmentSpec(
    observations=environment.observation_spec(),
    actions=environment.action_spec(),
    rewards=environment.reward_spec(),
    discounts=environment.discount_spec(),
    absences=getattr(environment, 'absences', False),
  )


class NetworkInput(NamedTuple):
  """Inputs of a network; leaves are [B, ...] or [T, B, ...].

  Attributes:
    observation: an array or a nesting of arrays, in the environment's dtypes.
    previous_action: int32 [...] for each part of the action; `NO_ACTION` at the
      first step of an episode.
    previous_reward: float32 [...], the agent's own (events weighted by internal
      rewards); zero at the first step of an episode.
  """

  observation: ArrayTree
  previous_action: ArrayTree
  previous_reward: Array


class NetworkOutput(NamedTuple):
  """Outputs of a network; leaves are [B, ...] or [T, B, ...].

  Attributes:
    logits: float32 [..., num_actions], one array for each part of the action,
      in the action's structure.
    value: float32 [...].
    features: float32 [..., num_features], the input of all heads.
    auxiliary: arrays of the core that losses use, by name.
  """

  logits: ArrayTree
  value: Array
  features: Array
  auxiliary: Mapping[str, ArrayTree]


class NetworkInit(Protocol):
  """Initializes a network's parameters."""

  def __call__(self, key: Key) -> Params: ...


class NetworkApply(Protocol):
  """Applies a network to one step of `B` sequences, leaves [B, ...].

  `seeds`, int32 [B], determine the network's noise; see `networks.noise`. With
  None the network is deterministic: weights have no noise, and latents are
  their means.
  """

  def __call__(
    self,
    params: Params,
    hyperparameters: Hyperparameters,
    seeds: Array | None,
    inputs: NetworkInput,
    state: RecurrentState,
  ) -> tuple[NetworkOutput, RecurrentState]: ...


class NetworkUnroll(Protocol):
  """Applies a network to `T` steps of `B` sequences, leaves [T, B, ...].

  `start`, bool [T, B], is true at the first step of an episode, before which
  the state is reset to zero. `state` [B, ...] is the state before the first
  step. `seeds` [T, B] are those of each step, as in `NetworkApply`.
  """

  def __call__(
    self,
    params: Params,
    hyperparameters: Hyperparameters,
    seeds: Array | None,
    inputs: NetworkInput,
    start: Array,
    state: RecurrentState,
  ) -> tuple[NetworkOutput, RecurrentState]: ...


class InitialState(Protocol):
  """Makes the zero state [batch_size, ...] of a recurrent core."""

  def __call__(self, batch_size: int) -> RecurrentState: ...


class NetworkHead(Protocol):
  """Applies an auxiliary head to features or observations, [T, B, ...]."""

  def __call__(self, params: Params, inputs: ArrayTree) -> ArrayTree: ...


class RecurrentNetwork(NamedTuple):
  """A recurrent network as pure functions.

  `hyperparameters` are an argument because networks use some of them (the
  period of a slow core, the scale of a gradient) and a population may change
  any.

  Attributes:
    init: initializes parameters, including those of the heads.
    apply: applies one step, for acting.
    unroll: applies many steps, for learning.
    initial_state: makes the zero state.
    heads: auxiliary heads, by name; only losses apply them.
  """

  init: NetworkInit
  apply: NetworkApply
  unroll: NetworkUnroll
  initial_state: InitialState
  heads: Mapping[str, NetworkHead] = {}


class Trajectory(NamedTuple):
  """`T + 1` consecutive timesteps of one environment and the actions taken.

  A trajectory crosses episode boundaries: a `LAST` timestep is followed by a
  `FIRST` one, and no action leads from one to the other. The last timestep of a
  trajectory is the first of the next one.

  Timesteps without a decision (`ABSENT`) are left out: those after them move
  up, and the end is filled with `LAST`, which no loss sees; see
  `replay.trajectories.compact`.

  Attributes:
    timestep: leaves [T + 1, ...]; at `FIRST`, reward is 0 and discount is 1.
      The reward is a scalar or a vector of events [T + 1, num_events].
    previous_action: int32 [T + 1] for each part of the action; `NO_ACTION` at
      `FIRST`. The action taken at `t` is `previous_action[t + 1]`.
    logits: float32 [T, num_actions] for each part of the action, of the
      behaviour policy at `t`; zero where `timestep` is `LAST`.
    recurrent_state: state of the behaviour policy's core before the first
      timestep, without a time axis.
    seed: int32 [T + 1], seeds of the behaviour policy's noise at each timestep;
      None if it acted without noise.
    value: float32 [T + 1], the critic's at the behaviour policy's parameters,
      for a learner that still has them; None if it may have others.
  """

  timestep: dm_env.TimeStep
  previous_action: ArrayTree
  logits: ArrayTree
  recurrent_state: RecurrentState
  seed: ArrayTree = None
  value: ArrayTree = None


class Streams(NamedTuple):
  """K streams of recorded steps, which cross the ends of episodes.

  Attributes:
    timestep: leaves [L, K, ...].
    previous_action: leaves [L, K, ...]; see `Trajectory`.
  """

  timestep: dm_env.TimeStep
  previous_action: ArrayTree

  @property
  def shape(self) -> tuple[int, int]:
    """L and K."""
    length, count = self.timestep.step_type.shape
    return length, count


class ReplayBatch(NamedTuple):
  """Past trajectories, sampled from a replay.

  Attributes:
    trajectory: leaves [T + 1 or T, B, ...].
    is_live: bool [], false while the replay is empty and this is all zeros.
  """

  trajectory: Trajectory
  is_live: ArrayTree


class RewardPredictionBatch(NamedTuple):
  """Short sequences of observations and the reward that followed each.

  Half of them precede nonzero rewards, the other half rewards of zero.

  Attributes:
    observation: leaves [num_frames, B, ...].
    reward: float32 [B] or [B, num_events], for the action after the last frame.
    is_live: bool [], false while there is no sequence and this is all zeros.
  """

  observation: ArrayTree
  reward: ArrayTree
  is_live: ArrayTree


class LearnerBatch(NamedTuple):
  """Data of one update.

  Attributes:
    trajectory: what policy or action values learn from, leaves
      [T + 1 or T, B, ...]: fresh trajectories, each used once, or sampled ones.
    replay: past trajectories; None if no auxiliary task uses them.
    reward_prediction: frames before a reward; None if no task uses them.
    burn_in: trajectories before sampled ones, from the earliest to the last,
      which refresh their recurrent states.
    weight: float32 [B], importance weights of sampled trajectories; None for
      weights of one.
    demonstrations: recorded games; None if no auxiliary task uses them.
    frozen: logits of frozen policies at the steps of `trajectory`, leaves
      [T, B, ...], by the names of the tasks that use them.
  """

  trajectory: Trajectory
  replay: ReplayBatch | None = None
  reward_prediction: RewardPredictionBatch | None = None
  burn_in: tuple[Trajectory, ...] = ()
  weight: Array | None = None
  demonstrations: ReplayBatch | None = None
  frozen: Mapping[str, ArrayTree] = {}


class FrozenPolicy(Protocol):
  """A policy that does not learn; a pytree whose leaves are its variables."""

  def unroll(self, trajectory: Trajectory) -> ArrayTree:
    """Returns its logits along the trajectories of others.

    Args:
      trajectory: leaves [T + 1 or T, B, ...], with the rewards of the
        environment.

    Returns:
      Leaves [T, B, ...].
    """


class Sources(NamedTuple):
  """What members learn from beside their own games: one copy for all.

  Attributes:
    demonstrations: sequences of recorded games, leaves [T + 1 or T, S, ...];
      None if no auxiliary task uses them.
    frozen: frozen policies by the names of the tasks that use them.
  """

  demonstrations: Trajectory | None = None
  frozen: Mapping[str, FrozenPolicy] = {}


class ActorVariables(NamedTuple):
  """The part of a learner's state that actors use.

  Attributes:
    params: parameters of the network.
    hyperparameters: the agent's hyperparameters, some of which the network
      uses.
    internal_rewards: float32 [num_events], for the network's input, which holds
      the agent's own reward.
    steps: int32 [], number of updates that led to `params`.
    observation_statistics: see `TrainingState`.
  """

  params: Params
  hyperparameters: Hyperparameters
  internal_rewards: InternalRewards
  steps: Array
  observation_statistics: Any = ()


class TrainingState(NamedTuple):
  """State of a learner: everything that changes and that a checkpoint holds.

  Attributes:
    params: parameters of the network.
    opt_state: state of the optimizer.
    hyperparameters: a tree of scalar arrays; see `ftwax.hyperparameters`.
    internal_rewards: float32 [num_events], reward for each event.
    key: random key; each update folds `steps` into it.
    steps: int32 [], updates done, including skipped ones.
    skipped: int32 [], updates skipped because their gradient was not finite.
    skipped_in_a_row: int32 [], updates skipped since the last good one.
    observation_statistics: statistics for normalizing observations; `()` if
      they are not normalized.
    return_statistics: statistics for scaling rewards; `()` if not scaled.
    target_params: older parameters, of which the targets of action values are
      computed; `()` for agents without.
  """

  params: Params
  opt_state: Any
  hyperparameters: Hyperparameters
  internal_rewards: InternalRewards
  key: Key
  steps: Array
  skipped: Array
  skipped_in_a_row: Array
  observation_statistics: Any = ()
  return_statistics: Any = ()
  target_params: Any = ()


class LearnerInit(Protocol):
  """Makes the initial state of a learner."""

  def __call__(self, key: Key) -> TrainingState: ...


class LearnerCore(NamedTuple):
  """A learner as pure functions, which every runtime uses.

  Attributes:
    init: makes the initial state.
    update: does one update on a batch.
  """

  init: LearnerInit
  update: Callable[[TrainingState, LearnerBatch], tuple[TrainingState, Metrics]]


class ActorState(NamedTuple):
  """State of an actor in `B` environments.

  Attributes:
    key: random key of the next step.
    recurrent_state: state of the network's core, leaves [B, ...].
    action: int32 [B] for each part, the action selected last.
    logits: float32 [B, num_actions] for each part, of the policy that chose it.
    value: float32 [B], the critic's value of the timestep that it was chosen
      at.
    seed: int32 [B], seed of the network's noise in the next step.
  """

  key: Key
  recurrent_state: RecurrentState
  action: ArrayTree
  logits: ArrayTree
  value: Array
  seed: Array


class ActorInit(Protocol):
  """Makes the initial state of an actor in `batch_size` environments."""

  def __call__(self, key: Key, batch_size: int) -> ActorState: ...


class SelectAction(Protocol):
  """Selects actions in `B` environments, given their timesteps [B, ...].

  Rows whose timestep is `FIRST` start from the zero state. Those whose timestep
  is `ABSENT` keep their state, and their action is ignored.
  """

  def __call__(
    self,
    variables: ActorVariables,
    timestep: dm_env.TimeStep,
    state: ActorState,
  ) -> tuple[ArrayTree, ActorState]: ...


class ActorCore(NamedTuple):
  """An actor as pure functions, batched over environments.

  Attributes:
    init: makes the initial state.
    select_action: selects actions, given timesteps.
    get_extras: returns, by name, what the learner needs about the last selected
      action.
    replace_action: replaces the action selected last by another one, [B, ...].
      The network sees it as previous action, and trajectories hold it.
  """

  init: ActorInit
  select_action: SelectAction
  get_extras: Callable[[ActorState], Mapping[str, ArrayTree]]
  replace_action: Callable[[ActorState, ArrayTree], ActorState]


def actor_variables(state: TrainingState) -> ActorVariables:
  """Returns the part of a learner's state that actors need."""
  return ActorVariables(
    *(getattr(state, name) for name in ActorVariables._fields)
  )


_Config = TypeVar('_Config', bound='Config')


class InvalidTypeError(TypeError, ValueError):
  """A value of the user's that is of another type than it must be."""


# What values of these classes are called, and what is as good.
_CLASSES: Mapping[Any, tuple[str, tuple[type, ...]]] = {
  int: ('an integer', (int, np.integer)),
  float: ('a number', (int, float, np.number)),
  str: ('a string', (str,)),
  bool: ('True or False', (bool, np.bool_)),
}


def check_type(name: str, value: Any, annotation: Any) -> None:
  """Raises a TypeError if a user's value is not of a class.

  Args:
    name: name of the value.
    value: the value.
    annotation: a class, or a union of classes; anything else is not checked.
  """
  kinds: tuple[Any, ...] = (annotation,)
  if isinstance(annotation, python_types.UnionType):
    kinds = typing.get_args(annotation)
  if not all(map(_is_class, kinds)):
    return
  admitted = tuple(part for kind in kinds for part in _classes(kind))
  is_bool = isinstance(value, bool) and bool not in kinds
  if isinstance(value, admitted) and not is_bool:
    return
  kind: Any = kinds[0]
  kind_name = kind.__name__
  words, remedy = f'a {kind_name}', f'give a {kind_name}'
  if kind in _CLASSES:
    words = _CLASSES[kind][0]
    try:
      remedy = f'choose {kind(value)!r}'
    except (TypeError, ValueError):
      remedy = f'give {words}'
  elif dataclasses.is_dataclass(kind):
    first = dataclasses.fields(kind)[0].name
    remedy = f'choose {kind_name}({first}={value!r})'
  raise InvalidTypeError(f'{name} ({value!r}) must be {words}; {remedy}.')


def _is_class(kind: Any) -> bool:
  return (
    isinstance(kind, type)
    and typing.get_origin(kind) is None
    and not getattr(kind, '_is_protocol', False)
  )


def _classes(kind: type) -> tuple[type, ...]:
  return _CLASSES[kind][1] if kind in _CLASSES else (kind,)


def _short_repr(value: Any) -> str:
  text = getattr(value, '__qualname__', None) or repr(value)
  if len(text) <= _MAX_REPR or isinstance(value, Config):
    return text
  return f'{text[: _MAX_REPR - 3]}...'


class Config:
  """Base of configurations: a misspelt field gets a suggestion."""

  def __init_subclass__(cls, **options: Any) -> None:
    """Keeps the short `repr`, which `dataclass` would replace."""
    super().__init_subclass__(**options)
    cls.__repr__ = Config.__repr__  # type: ignore[method-assign]

  def __new__(cls, *args: Any, **fields: Any) -> Any:
    """Makes an object whose fields the dataclass sets.

    Raises:
      TypeError: if there is no such field; names the nearest one.
    """
    del args
    known = getattr(cls, '__dataclass_fields__', {})
    for name in fields:
      if name not in known:
        meant = suggestions.suggest(name, known)
        meant = '; leave it out.' if meant == '.' else meant
        raise InvalidTypeError(f'{cls.__name__} has no field {name!r}{meant}')
    return super().__new__(cls)

  def __repr__(self) -> str:
    """Returns the class and the fields that differ from their defaults."""
    config: Any = self
    parts = []
    for field in dataclasses.fields(config):
      value, default = getattr(self, field.name), field.default
      if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
      if value is not default and repr(value) != repr(default):
        parts.append(f'{field.name}={_short_repr(value)}')
    return f'{type(self).__name__}({", ".join(parts)})'

  def check_types(self) -> None:
    """Raises a TypeError if a field is not of its annotated class."""
    self.take_scalars()
    config: Any = self
    for field in dataclasses.fields(config):
      check_type(field.name, getattr(self, field.name), field.type)

  def take_scalars(self) -> None:
    """Makes numbers of scalar arrays, such as `jnp.float32(1e-3)`."""
    config: Any = self
    for field in dataclasses.fields(config):
      value = getattr(self, field.name)
      is_array = isinstance(value, jax.Array | np.ndarray)
      # A traced one is the value that a part has in a computation.
      is_given = is_array and not isinstance(value, jax.core.Tracer)
      if is_given and value.ndim == 0:
        object.__setattr__(self, field.name, value.item())

  def replace(self: _Config, **changes: Any) -> _Config:
    """Returns a copy with some fields changed."""
    config: Any = self
    return dataclasses.replace(config, **changes)
