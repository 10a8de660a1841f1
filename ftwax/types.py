"""Shapes and protocols that all rooms share.

Axes, in this order: `N` population members, `T` time, `B` sequences or
environments. The shapes below are those of a single member: a population is
`vmap` over them.

Time index. A `dm_env.TimeStep` at `t` holds the observation at `t` together
with the reward and discount of the transition that led to it. The action that
led to it is `previous_action` at `t`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import numpy as np

# An array or any nesting of tuples, lists and dicts of arrays.
ArrayTree = Any
Array = jax.Array
NumpyArray = np.ndarray[Any, Any]

# Shapes, dtypes and bounds: an array spec or any nesting of such.
SpecTree = Any

# A uint32 key of shape [2]; `jax.random.split` gives keys of shape [n, 2].
Key = jax.Array

# Learned parameters of a network, as `hk.Params`.
Params = Any

# State of a core: a pytree of arrays [B, ...], zero where an episode starts.
RecurrentState = Any

# A NamedTuple of scalar arrays; see `ftwax.hyperparameters`.
Hyperparameters = Any

# Weights of events, float32 [num_events]; see `ftwax.internal_rewards`.
InternalRewards = Array

# Scalars by name, for the log.
Metrics = Mapping[str, Array]

# As plain numbers: comparing NumPy arrays with an enumeration is slow.
FIRST = int(dm_env.StepType.FIRST)
MID = int(dm_env.StepType.MID)
LAST = int(dm_env.StepType.LAST)

# Previous action at the first step of an episode; its one-hot code is zero.
NO_ACTION = -1

# A dict observation may hold this entry, of the action's structure with an
# axis of actions added to each part: non-zero where an action is allowed.
ACTION_MASK = 'action_mask'


class EnvironmentSpec(NamedTuple):
  """Specs of an environment, from which agents and networks are made.

  Attributes:
    observations: specs of the observation, an array or a nesting of arrays.
    actions: specs of the action; each leaf is a `dm_env.specs.DiscreteArray`.
    rewards: spec of the reward: a scalar, or a vector [num_events] of the
      events of a step, which an agent's internal rewards weigh.
    discounts: spec of the discount.
  """

  observations: SpecTree
  actions: SpecTree
  rewards: SpecTree
  discounts: SpecTree


def make_environment_spec(environment: dm_env.Environment) -> EnvironmentSpec:
  """Returns the specs of `environment`."""
  return EnvironmentSpec(
    observations=environment.observation_spec(),
    actions=environment.action_spec(),
    rewards=environment.reward_spec(),
    discounts=environment.discount_spec(),
  )


class NetworkInput(NamedTuple):
  """Inputs of a network at a step; leaves are [B, ...] or [T, B, ...].

  Attributes:
    observation: an array or a nesting of arrays, in the environment's dtypes.
    previous_action: int32, one array for each part of the action; `NO_ACTION`
      at the first step of an episode.
    previous_reward: float32, the agent's own (events weighed by its internal
      rewards); zero at the first step of an episode.
  """

  observation: ArrayTree
  previous_action: ArrayTree
  previous_reward: Array


class NetworkOutput(NamedTuple):
  """Outputs of a network at a step; leaves are [B, ...] or [T, B, ...].

  Attributes:
    logits: float32 [..., num_actions], one array for each part of the action,
      in the action's structure.
    value: float32 [...].
    features: float32 [..., num_features], the input of all heads.
    auxiliary: arrays of the core that losses read, by name.
  """

  logits: ArrayTree
  value: Array
  features: Array
  auxiliary: Mapping[str, ArrayTree]


class NetworkInit(Protocol):
  """Draws a network's parameters."""

  def __call__(self, key: Key) -> Params: ...


class NetworkApply(Protocol):
  """Applies a network to one step of `B` sequences, leaves [B, ...].

  `key` draws all noise of the network. With None there is none: weights have
  no noise, nothing is dropped, and latents are their means.
  """

  def __call__(
    self,
    params: Params,
    hyperparameters: Hyperparameters,
    key: Key | None,
    inputs: NetworkInput,
    state: RecurrentState,
  ) -> tuple[NetworkOutput, RecurrentState]: ...


class NetworkUnroll(Protocol):
  """Applies a network to `T` steps of `B` sequences, leaves [T, B, ...].

  `start` [T, B] is true at the first step of an episode; there the state is
  set to zero before the step. `state` [B, ...] is that before the first step.
  `key` is as in `NetworkApply`.
  """

  def __call__(
    self,
    params: Params,
    hyperparameters: Hyperparameters,
    key: Key | None,
    inputs: NetworkInput,
    start: Array,
    state: RecurrentState,
  ) -> tuple[NetworkOutput, RecurrentState]: ...


class InitialState(Protocol):
  """Makes the zero state [batch_size, ...] of a recurrent core."""

  def __call__(self, batch_size: int) -> RecurrentState: ...


class NetworkHead(Protocol):
  """An auxiliary head: reads features or observations, leaves [T, B, ...]."""

  def __call__(self, params: Params, inputs: ArrayTree) -> ArrayTree: ...


class RecurrentNetwork(NamedTuple):
  """A recurrent network as pure functions.

  `hyperparameters` are an argument because some are read by networks (the
  period of a slow core, the scale of a gradient) and because a population
  may change every one of them.

  Attributes:
    init: draws parameters, those of the heads included.
    apply: one step, for acting.
    unroll: many steps, for learning.
    initial_state: the zero state.
    heads: auxiliary heads, by name; only losses apply them.
  """

  init: NetworkInit
  apply: NetworkApply
  unroll: NetworkUnroll
  initial_state: InitialState
  heads: Mapping[str, NetworkHead] = {}


class Trajectory(NamedTuple):
  """`T + 1` consecutive timesteps of one environment and the actions taken.

  A trajectory runs across the ends of episodes: a timestep that is `LAST` is
  followed by one that is `FIRST`, and no action leads from one to the other.
  The last timestep of a trajectory is the first of the next one.

  Attributes:
    timestep: leaves [T + 1, ...]; at `FIRST` reward is 0 and discount 1. The
      reward is a scalar or a vector of events [T + 1, num_events].
    previous_action: int32 [T + 1] for each part of the action; `NO_ACTION` at
      `FIRST`. The action taken at `t` is `previous_action[t + 1]`.
    logits: float32 [T, num_actions] for each part of the action, of the
      behaviour policy at `t`; zero where `timestep` is `LAST`.
    recurrent_state: state of the behaviour policy's core before the first
      timestep, without a time axis.
  """

  timestep: dm_env.TimeStep
  previous_action: ArrayTree
  logits: ArrayTree
  recurrent_state: RecurrentState


class ReplayBatch(NamedTuple):
  """Past trajectories, drawn from a replay.

  Attributes:
    trajectory: leaves [T + 1 or T, B, ...].
    is_live: bool [], false while the replay is empty and these are zeros.
    weights: float32 [B], importance weights that correct fully; None where
      draws are uniform.
    slots: leaves [B], where priorities are kept; None where there are none.
  """

  trajectory: Trajectory
  is_live: ArrayTree
  weights: ArrayTree | None = None
  slots: ArrayTree | None = None


class RewardPredictionBatch(NamedTuple):
  """Short sequences of observations and the reward that followed each.

  One half precedes rewards that are not zero, the other half rewards of zero.

  Attributes:
    observation: leaves [num_frames, B, ...].
    reward: float32 [B] or [B, num_events], for the action after the last frame.
    is_live: bool [], false while there is no sequence and these are zeros.
  """

  observation: ArrayTree
  reward: ArrayTree
  is_live: ArrayTree


class LearnerBatch(NamedTuple):
  """Data of one update.

  Attributes:
    trajectory: fresh trajectories, each used once, leaves [T + 1 or T, B, ...].
    replay: past trajectories; None if no auxiliary task reads them.
    reward_prediction: frames before a reward; None if no task reads them.
  """

  trajectory: Trajectory
  replay: ReplayBatch | None = None
  reward_prediction: RewardPredictionBatch | None = None


class ActorVariables(NamedTuple):
  """The part of a learner's state that actors read.

  Attributes:
    params: parameters of the network.
    hyperparameters: the agent's, since the network reads some of them.
    internal_rewards: float32 [num_events], since the network's input has the
      agent's own reward.
    steps: int32, updates that led to `params`.
    observation_statistics: see `TrainingState`.
  """

  params: Params
  hyperparameters: Hyperparameters
  internal_rewards: InternalRewards
  steps: Array
  observation_statistics: Any = ()


class TrainingState(NamedTuple):
  """State of a learner: all that changes, and all that a checkpoint holds.

  Attributes:
    params: parameters of the network.
    opt_state: state of the optimizer.
    hyperparameters: a NamedTuple of scalar arrays.
    internal_rewards: float32 [num_events], worth of each event.
    key: for what updates draw; each folds its number in `steps` into it.
    steps: int32, updates done, skipped ones included.
    skipped: int32, updates skipped because their gradient was not finite.
    skipped_in_a_row: int32, updates skipped since the last good one.
    observation_statistics: those that observations are normalized by; `()` if
      they are not.
    return_statistics: those that rewards are scaled by; `()` if they are not.
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


class LearnerInit(Protocol):
  """Makes the first state of a learner."""

  def __call__(self, key: Key) -> TrainingState: ...


class LearnerUpdate(Protocol):
  """One update from a batch."""

  def __call__(
    self, state: TrainingState, batch: LearnerBatch
  ) -> tuple[TrainingState, Metrics]: ...


class LearnerCore(NamedTuple):
  """A learner as pure functions, which every runtime calls."""

  init: LearnerInit
  update: LearnerUpdate


class ActorState(NamedTuple):
  """State of an actor in `B` environments.

  Attributes:
    key: key for what the next step draws.
    recurrent_state: state of the network's core, leaves [B, ...].
    action: int32 [B] for each part, the action chosen last.
    logits: float32 [B, num_actions] for each part, of the policy that chose it.
  """

  key: Key
  recurrent_state: RecurrentState
  action: ArrayTree
  logits: ArrayTree


class ActorInit(Protocol):
  """Makes the first state of an actor in `batch_size` environments."""

  def __call__(self, key: Key, batch_size: int) -> ActorState: ...


class SelectAction(Protocol):
  """Chooses actions in `B` environments, given their timesteps [B, ...].

  Rows whose timestep is `FIRST` start from the zero state.
  """

  def __call__(
    self,
    variables: ActorVariables,
    timestep: dm_env.TimeStep,
    state: ActorState,
  ) -> tuple[ArrayTree, ActorState]: ...


class GetExtras(Protocol):
  """Returns the arrays that the learner needs of the last choice, by name."""

  def __call__(self, state: ActorState) -> Mapping[str, ArrayTree]: ...


class ReplaceAction(Protocol):
  """Puts another action [B, ...] in place of the one chosen last.

  The network sees it as the previous action, and trajectories hold it.
  """

  def __call__(self, state: ActorState, action: ArrayTree) -> ActorState: ...


class ActorCore(NamedTuple):
  """An actor as pure functions, batched over environments."""

  init: ActorInit
  select_action: SelectAction
  get_extras: GetExtras
  replace_action: ReplaceAction


def actor_variables(state: TrainingState) -> ActorVariables:
  """Returns the part of a learner's state that actors need."""
  return ActorVariables(
    *(getattr(state, name) for name in ActorVariables._fields)
  )
