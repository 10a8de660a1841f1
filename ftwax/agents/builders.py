"""The interface between agents and runtimes.

A runtime makes every part of an agent through its builder, so that one agent
runs in all runtimes. The methods follow the builders of acme's main branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary
from ftwax.records import loggers

if TYPE_CHECKING:
  import reverb

  from ftwax.agents.acme import actor, learner, variables
  from ftwax.replay import auxiliary_replay, gatherer, local_replay, samples
  from ftwax.replay.reverb import adders, datasets


class Builder(Protocol):
  """Makes the parts of an agent.

  `make_replay_tables`, `make_adder` and `make_dataset_iterator` need Reverb;
  the other methods only need JAX.
  """

  @property
  def config(self) -> config_lib.ActorCriticConfig:
    """Options and priors of the agent."""

  @property
  def items_per_step(self) -> int:
    """Number of trajectories that one update takes from the queue."""

  @property
  def auxiliary_tasks(self) -> tuple[auxiliary.AuxiliaryTask, ...]:
    """Tasks that are learned in addition to policy and value."""

  def replace(self, *, config: config_lib.ActorCriticConfig) -> Builder:
    """Returns a copy of the builder with another config."""

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Returns the functions of an actor, greedy in evaluation."""

  def make_auxiliary_replay(
    self,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int,
  ) -> auxiliary_replay.AuxiliaryReplay | None:
    """Returns the on-device replay of the auxiliary tasks; None without any.

    Args:
      environment_spec: specs of the environments.
      policy: the agent's policy; gives the recurrent state of a trajectory.
      num_environments: number of trajectories added at a time.
    """

  def make_local_replays(
    self,
    keys: Sequence[types.Key],
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> list[local_replay.LocalReplay]:
    """Returns in-process replays, which share their compiled functions.

    Args:
      keys: random key of each replay.
      environment_spec: specs of the environments.
      policy: the agent's policy; gives the recurrent state of a trajectory.
      num_environments: number of environments whose timesteps each one gathers.
    """

  def make_replay_tables(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> list[reverb.Table]:
    """Returns the tables of the replay server."""

  def make_adder(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> adders.TrajectoryAdder:
    """Returns an adder for an actor in `num_environments` environments."""

  def make_dataset_iterator(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
  ) -> datasets.TrajectoryIterator:
    """Returns an iterator over batches; the caller must close it."""

  def make_learner_core(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
  ) -> types.LearnerCore:
    """Returns the functions of a learner."""

  def make_learner(
    self,
    key: types.Key,
    network: types.RecurrentNetwork,
    dataset: Iterator[samples.ReplaySample],
    logger_fn: loggers.LoggerFactory,
    environment_spec: types.EnvironmentSpec,
    place_core: Callable[[types.LearnerCore], types.LearnerCore] | None = None,
  ) -> learner.Learner:
    """Returns a learner that logs under the labels `learner` and `images`.

    Args:
      key: random key of parameters, hyperparameters and updates.
      network: the network that learns.
      dataset: yields batches.
      logger_fn: makes the logger of a label.
      environment_spec: specs of the environments.
      place_core: places the learner's functions on devices; by default they run
        where their arguments are.
    """

  def make_actor(
    self,
    key: types.Key,
    policy: types.ActorCore,
    variable_source: variables.VariableSource,
    adder: gatherer.TrajectoryGatherer | None = None,
    num_environments: int | None = None,
  ) -> actor.Actor:
    """Returns an actor; see `actor.Actor` for `num_environments`."""
