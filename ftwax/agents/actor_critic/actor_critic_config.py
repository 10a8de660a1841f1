"""The config of an agent, from which all of its functions are made.

An agent is composed of parts: a core, a torso, heads, auxiliary tasks, an
optimizer. Each part has its own options and hyperparameters; see `ftwax.parts`.
Options, such as sizes, are static. Hyperparameters are data in the training
state, so that a population may change them: a field holds a number or a prior,
from which the learner samples its initial value.
"""

import copy
import dataclasses
import fractions
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import jax

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import internal_rewards, parts, types
from ftwax.agents.actor_critic import (
  acting,
  auxiliary,
  learning,
  optimization,
)
from ftwax.agents.actor_critic import tasks as tasks_lib
from ftwax.losses import policy_loss
from ftwax.networks import (
  core_parts,
  cores,
  embeddings,
  entry_torsos,
  recurrence,
  recurrent,
  torsos,
)
from ftwax.networks import heads as heads_lib
from ftwax.replay import replay_options

Scalar = parts.Scalar
Integer = parts.Integer

InternalRewardsPrior = internal_rewards.Priors

# Makes a network from the specs of an environment and the agent's config.
NetworkFactory = Callable[
  [types.EnvironmentSpec, 'ActorCriticConfig'], types.RecurrentNetwork
]

_Config = TypeVar('_Config', bound='ActorCriticConfig')


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig(parts.Part):
  """An agent; a named agent sets its own defaults and loss.

  Attributes:
    learning_rate: step size of the optimizer at the first update.
    max_gradient_norm: maximum global norm of the gradients; larger ones are
      scaled down to it. It applies to the gradient of all losses together,
      after `loss_reduction`. The logged `gradient_norm` is the norm before
      clipping.
    discount: factor that multiplies the environment's discount.
    max_abs_reward: rewards are clipped to this magnitude in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the entropy bonus.
    core: the recurrent core: a part or a name of `networks.cores`, or a
      function that makes a core of your own, a `recurrence.RecurrentCore`.
    torso: what observations pass through before the core: a part or a name of
      `networks.torsos`, or a function that makes a torso of your own, which
      maps an observation, leaves [B, ...], to features [B, num_features]. The
      network may append the previous action and reward to these.
    heads: options of the policy and value heads.
    previous_action: whether the core reads the previous action; None: if it has
      memory.
    previous_reward: the same for the previous reward, the agent's own.
    skip_connection: whether heads read the core's inputs as well as its
      features; see `recurrence.SkipConnection`.
    separate_value: whether the value has its own torso and core, which alone
      see what an environment tells the learner (`types.PRIVILEGED`).
    value_core: the core of a separate value; None for one as `core`.
    network: makes a network that replaces all of these; see `NetworkFactory`.
    loss: replaces the agent's policy loss.
    tasks: auxiliary tasks: parts or names of `actor_critic.tasks`, or tasks of
      your own, `auxiliary.AuxiliaryTask`.
    internal_rewards_prior: prior of the agent's reward for each event, or a
      tuple with one prior for each event; a scalar reward is one event. None:
      uniform in [-1, 1] for a vector of events, as in the FTW paper, and 1 for
      a scalar reward, whose sign a single agent could not learn.
    sequence_length: T, transitions in a trajectory.
    batch_size: B, trajectories in an update.
    num_epochs: passes over the batch in each update.
    num_minibatches: optimizer steps in an epoch, each on an equal share of the
      batch.
    shuffle: of what minibatches are drawn: `sequences`, whole ones with their
      recurrent states, or `transitions`, which are less alike; None:
      transitions for a core without memory and a loss that computes its targets
      before the first step, as PPO does, without tasks.
    normalize_observations: whether to normalize each element of float entries
      to mean 0 and variance 1 by running statistics. Images and the entry that
      pixel control acts on are exempt; see `actor_critic.normalization`.
    normalize_returns: whether to divide rewards in the losses by the running
      root mean square of returns, so that the reward scale affects neither the
      policy nor the value loss.
    normalize_advantages: whether to normalize the advantages of fresh
      trajectories to mean 0 and variance 1 over the batch.
    optimizer: a part or a name of `actor_critic.optimization`.
    decay: which hyperparameters are annealed, and over how many updates.
    schedules: other shapes than a linear decay; see `scheduled`.
    loss_reduction: `sum` or `mean` over the transitions of an optimizer step;
      `max_gradient_norm` must suit it.
    replay: past trajectories for auxiliary tasks.
    queue: fresh trajectories, where actors and learners do not alternate.
  """

  # Name of the agent.
  name: ClassVar[str] = 'actor_critic'
  is_nested: ClassVar[bool] = False
  # Whether it learns from a prioritized replay, not from fresh trajectories.
  learns_from_replay: ClassVar[bool] = False
  # Whether it has action values, and no policy beside them.
  learns_action_values: ClassVar[bool] = False
  # Its target parameters, a part of `target_parameters`.
  target: ClassVar[Any] = None

  learning_rate: Scalar = 2e-3
  max_gradient_norm: Scalar = parts.scalar(0.5, unlimited=True)
  discount: Scalar = parts.scalar(0.99, high=1.0)
  max_abs_reward: Scalar = parts.scalar(math.inf, unlimited=True)
  baseline_cost: Scalar = 0.5
  entropy_cost: Scalar = 0.01

  # Network.
  core: str | cores.MakeCore = 'lstm'
  torso: str | torsos.Torso | Callable[[], entry_torsos.Torso] = torsos.Torso()  # noqa: RUF009
  heads: heads_lib.Heads = heads_lib.Heads()  # noqa: RUF009
  previous_action: bool | None = None
  previous_reward: bool | None = None
  skip_connection: bool = True
  separate_value: bool = False
  value_core: str | cores.MakeCore | None = None
  network: NetworkFactory | None = None

  # Losses.
  loss: policy_loss.PolicyLoss | None = None
  tasks: tuple[str | tasks_lib.Task | auxiliary.AuxiliaryTask, ...] = ()
  internal_rewards_prior: InternalRewardsPrior | None = (
    hyperparameters_lib.Constant(1.0)
  )

  # Trajectories.
  sequence_length: int = parts.option(32, low=1)
  batch_size: int = parts.option(4, low=1)
  num_epochs: int = parts.option(1, low=1, high=1024)
  num_minibatches: int = parts.option(1, low=1, high=2**16)
  shuffle: str | None = parts.option(None, choices=('sequences', 'transitions'))

  # Normalization.
  normalize_observations: bool = False
  normalize_returns: bool = False
  normalize_advantages: bool = False

  # Optimizer.
  optimizer: str | optimization.Optimizer = optimization.Adam()  # noqa: RUF009
  decay: optimization.LinearDecay = optimization.LinearDecay()  # noqa: RUF009
  schedules: tuple[optimization.Schedule, ...] = ()
  loss_reduction: str = parts.option('mean', choices=('sum', 'mean'))

  # Replay.
  replay: replay_options.Replay = replay_options.Replay()  # noqa: RUF009
  queue: replay_options.Queue = replay_options.Queue()  # noqa: RUF009

  def __post_init__(self) -> None:
    """Finds parts by name, and checks options and their combinations."""
    for name, found in (
      ('core', cores.find(self.core)),
      ('value_core', self.value_core and cores.find(self.value_core)),
      ('torso', torsos.find(self.torso)),
      ('tasks', tuple(map(tasks_lib.find, self.tasks))),
      ('optimizer', optimization.find(self.optimizer)),
    ):
      object.__setattr__(self, name, found)
    super().__post_init__()
    for name, kind in (
      ('heads', heads_lib.Heads),
      ('decay', optimization.LinearDecay),
      ('replay', replay_options.Replay),
      ('queue', replay_options.Queue),
    ):
      if not isinstance(value := getattr(self, name), kind):
        raise ValueError(
          f'{name} ({value!r}) must be a part; choose {kind.__name__}(...).'
        )
    for name in ('core', 'value_core', 'torso', 'network', 'loss'):
      value = getattr(self, name)
      fits = value is None or callable(value) or hasattr(value, 'make')
      if not fits or (name == 'network' and isinstance(value, parts.Part)):
        raise ValueError(
          f'{name} ({value!r}) must be a function, which a record only names;'
          ' pass the function in Python.'
        )
    for name in ('torso', 'heads'):
      part = getattr(self, name)
      if isinstance(part, parts.Part) and parts.collect(part):
        raise ValueError(
          f'{name} ({part!r}) must have options alone, since a network reads'
          ' hyperparameters of its core; choose parts.option for its fields.'
        )
    if self.value_core is not None and not self.separate_value:
      raise ValueError(
        f'value_core ({self.value_core!r}) must be None where policy and value'
        ' share their core; choose separate_value=True.'
      )
    auxiliary.check_tasks(self.all_tasks)
    for task in self.all_tasks:
      task.check(self)
    self._check_sizes()
    self._check_rewards()
    known = parts.collect(self)
    scheduled = (schedule.hyperparameter for schedule in self.schedules)
    for name in (*self.decay.names, *scheduled):
      if name not in known:
        raise ValueError(
          f'name ({name!r}) of a schedule must be among the hyperparameters;'
          f' choose from {list(known)}.'
        )

  def _check_sizes(self) -> None:
    # Whether others have memory is known when there is a network.
    if not callable(self.core) and self.network is None:
      self.shuffles_transitions(cores.as_part(self.core).has_memory)
    if self.queue_size < self.batch_size:
      raise ValueError(
        f'batch_size ({self.batch_size}) must not be above max_size'
        f' ({self.queue_size}) of the queue, which could never fill a batch;'
        f' choose queue=Queue(max_size={2 * self.batch_size}).'
      )

  def _check_rewards(self) -> None:
    rewards = self.internal_rewards_prior
    for prior in rewards if isinstance(rewards, tuple) else (rewards,):
      if prior is not None and not hasattr(prior, 'sample'):
        raise ValueError(
          f'internal_rewards_prior ({prior!r}) must be a prior; choose'
          f' hyperparameters.Constant({prior!r}).'
        )

  @property
  def priors(self) -> Any:
    """The prior of each hyperparameter, a tree of the shape of the parts."""
    return parts.priors(self)

  @property
  def bounds(self) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each hyperparameter, both inclusive."""
    return {name: one.bounds for name, one in parts.collect(self).items()}

  @property
  def all_tasks(self) -> auxiliary.Tasks:
    """The tasks, none of which is a name, and which agree with the torso."""
    entries = getattr(self.torso, 'entries', {})
    tasks: Any = self.tasks
    return tuple(task.agree_with(entries) for task in tasks)

  @property
  def max_skipped_updates(self) -> int:
    """Number of skipped updates in a row after which the learner fails."""
    return optimization.find(self.optimizer).max_skipped_updates

  @property
  def queue_size(self) -> int:
    """Maximum number of trajectories in the queue."""
    return self.queue.max_size or max(32, self.batch_size)

  @property
  def trajectories_per_update(self) -> fractions.Fraction:
    """Number of fresh trajectories for each update."""
    return fractions.Fraction(self.batch_size)

  def _steps_between_updates(self, members: int) -> float:
    trajectories = members * float(self.trajectories_per_update)
    return trajectories * self.sequence_length

  @property
  def steps_per_update(self) -> int:
    """Number of optimizer steps in an update."""
    return self.num_epochs * self.num_minibatches

  def shuffles_transitions(self, has_memory: bool) -> bool:
    """Returns whether minibatches are of transitions, not whole sequences.

    Args:
      has_memory: whether the network has a state.

    Raises:
      ValueError: if transitions are chosen and cannot be shuffled, or
        `num_minibatches` does not divide what is.
    """
    needs_sequences = {
      'for a loss whose targets need them': self.targets_fn is None,
      'with auxiliary tasks, which learn from them': bool(self.tasks),
      'for a core with memory, whose states are those at their starts': (
        has_memory
      ),
    }
    reasons = [reason for reason, holds in needs_sequences.items() if holds]
    if self.shuffle == 'transitions' and reasons:
      raise ValueError(
        f"shuffle ('transitions') must be 'sequences' {reasons[0]}; choose"
        ' shuffle=None.'
      )
    by_transition = self.shuffle == 'transitions' or (
      self.shuffle is None
      and not reasons
      and self.loss is None
      and self.num_minibatches > 1
    )
    size, shuffled = self.batch_size, 'batch_size'
    if by_transition:
      size *= self.sequence_length
      shuffled += ' * sequence_length'
    if size % self.num_minibatches:
      whole = '' if by_transition else ', since minibatches are whole sequences'
      raise ValueError(
        f'num_minibatches ({self.num_minibatches}) must divide {shuffled}'
        f' ({size}){whole}; choose'
        f' num_minibatches={math.gcd(self.num_minibatches, size)}.'
      )
    return by_transition

  def find_task(
    self, kind: type[tasks_lib.AnyTask]
  ) -> tasks_lib.AnyTask | None:
    """Returns the task of a class; None if the agent does not have it."""
    found = (task for task in self.tasks if isinstance(task, kind))
    return next(found, None)

  def decayed_over(
    self: _Config, num_steps: float, members: int = 1
  ) -> _Config:
    """Returns a copy that decays over so many steps of all members together."""
    steps = max(1.0, num_steps / self._steps_between_updates(members))
    return self.replace(decay=self.decay.replace(steps=steps))

  def scheduled(
    self: _Config,
    num_steps: float,
    members: int = 1,
    **schedules: Callable[[Any], Any],
  ) -> _Config:
    """Returns a copy with hyperparameters multiplied by schedules.

    A schedule is read at 257 points, between which it is linear:

        decay = optax.cosine_decay_schedule(1.0, 20_000)
        config.scheduled(20_000, learning_rate=decay)

    Args:
      num_steps: steps of all members together, after which factors stay.
      members: size of the population.
      **schedules: factors by names of hyperparameters, as functions of a number
        of steps.
    """
    steps_per_update = self._steps_between_updates(members)
    made = (
      optimization.tabulate(name, schedule, num_steps, steps_per_update)
      for name, schedule in schedules.items()
    )
    return self.replace(schedules=(*self.schedules, *made))

  def with_size(self: _Config, size: int) -> _Config:
    """Returns a copy with `size` units in the core and each layer."""
    core: Any = self.core
    value_core: Any = self.value_core
    torso: Any = self.torso
    return self.replace(
      core=core.with_size(size),
      value_core=value_core and value_core.with_size(size),
      torso=torso.with_size(size),
      heads=self.heads.with_size(size),
    )

  def make_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    """Makes the agent's network for an environment.

    Raises:
      ValueError: if the config names entries that the observation does not
        have, or the frame does not suit pixel control.
    """
    if self.network is not None:
      return self.network(environment_spec, self)
    # Acme's specs may stand for ours.
    public = types.without_privileged(environment_spec.observations)
    core, make_torso = self._make_path(
      environment_spec._replace(observations=public)
    )
    value: recurrent.SeparateValue | None = None
    if self.separate_value:
      own, make_value_torso = self._make_path(environment_spec, 'value_core')
      value = recurrent.SeparateValue(make_value_torso, own)
    network = recurrent.make_recurrent_network(
      environment_spec,
      make_torso=make_torso,
      core=core,
      head_options=self.heads,
      separate_value=value,
      previous=embeddings.Previous(self.previous_action, self.previous_reward),
      auxiliary_heads={
        name: head
        for task in self.all_tasks
        for name, head in task.make_heads(environment_spec).items()
      },
    )
    reads_layers = {self.heads.policy_layer, self.heads.value_layer} != {None}
    is_custom = any(map(callable, (self.core, self.value_core, self.torso)))
    if is_custom or reads_layers:
      # Trace what may not fit now, so that a mismatch raises here.
      jax.eval_shape(network.init, jax.random.PRNGKey(0))
    return network

  def _make_path(
    self, spec: types.EnvironmentSpec, name: str = 'core'
  ) -> tuple[core_parts.Core, Callable[[], Callable[[Any], types.Array]]]:
    """Returns a core and what makes the torso before it.

    Args:
      spec: specs with the observations that the torso sees.
      name: field of the core; None in it stands for `core`.
    """
    name = name if getattr(self, name) is not None else 'core'
    make_torso = functools.partial(self.make_torso, spec.observations)
    core = cores.as_part(getattr(self, name)).wire(
      lambda: self._input_sizes(spec, make_torso)
    )
    return _AgentCore(self, core, name), make_torso

  def _input_sizes(
    self, spec: types.EnvironmentSpec, make_torso: Callable[[], Any]
  ) -> dict[str, int]:
    """Returns the sizes of the parts of the core's input by name."""
    sizes = embeddings.part_sizes(spec, make_torso)
    for name in (embeddings.PREVIOUS_ACTION, embeddings.PREVIOUS_REWARD):
      if getattr(self, name) is False:
        del sizes[name]
    return sizes

  def make_torso(
    self, observation_spec: types.SpecTree
  ) -> Callable[[Any], types.Array]:
    """Makes the torso; call within a Haiku transform."""
    torso: Any = self.torso
    made: Callable[[Any], types.Array] = (
      torso() if callable(torso) else torso.make(observation_spec)
    )
    return made

  def make_core(self) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    made = cores.as_part(self.core).make()
    return recurrence.SkipConnection(made) if self.skip_connection else made

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Makes the functions of an actor, greedy in evaluation."""
    return acting.make_actor_core(network, environment_spec, greedy=evaluation)

  def make_learner_core(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    offline: bool = False,
  ) -> types.LearnerCore:
    """Makes the functions of a learner; see `learning.make_learner_core`."""
    return learning.make_learner_core(
      network,
      self,
      internal_rewards.num_events(environment_spec.rewards),
      environment_spec.observations,
      offline,
    )

  @property
  def loss_fn(self) -> policy_loss.PolicyLoss:
    """Loss of one stream of transitions; see `losses.policy_loss`."""
    return self.loss or self._default_loss

  @property
  def targets_fn(self) -> policy_loss.MakeTargets | None:
    """Computes targets of the loss on the whole batch, if it needs any."""
    return None

  @property
  def _default_loss(self) -> policy_loss.PolicyLoss:
    raise NotImplementedError

  def sample_hyperparameters(self, key: types.Key) -> types.Hyperparameters:
    """Samples hyperparameters from their priors."""
    return hyperparameters_lib.sample(key, self.priors)

  def make_internal_rewards_prior(
    self, num_events: int
  ) -> InternalRewardsPrior:
    """Returns the prior of the agent's rewards for `num_events` events."""
    if self.internal_rewards_prior is not None:
      return self.internal_rewards_prior
    constant, uniform = (
      hyperparameters_lib.Constant,
      hyperparameters_lib.Uniform,
    )
    return constant(1.0) if num_events == 1 else uniform(-1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class _AgentCore(core_parts.Core):
  """The core of an agent, with what the agent puts around it."""

  agent: ActorCriticConfig
  core: core_parts.Core
  field: str

  def bound(self, values: Any) -> core_parts.Core:
    # Nothing else of the agent, whose learner may be that of another one.
    core = parts.bind(self.core, getattr(values, self.field, None))
    return _AgentCore(self.agent, core, self.field)

  def check_bound(self) -> None:
    self.core.check_bound()

  def example_values(self) -> Any:
    values = {self.field: parts.example_values(self.core)}
    return hyperparameters_lib.make_tree(values)

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    del name
    agent = copy.copy(self.agent)
    object.__setattr__(agent, 'core', self.core)
    return agent.make_core()
