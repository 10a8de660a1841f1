"""The builder from which runtimes make every part of an agent.

Methods that need Reverb import it when they are called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary, replays
from ftwax.records import loggers
from ftwax.replay import auxiliary_replay, gatherer, local_replay, samples

if TYPE_CHECKING:
  import reverb

  from ftwax.agents.acme import actor, learner, variables
  from ftwax.replay.reverb import adders, datasets


@dataclasses.dataclass(frozen=True)
class ActorCriticBuilder:
  """Makes tables, adders, datasets, actors and learners from a config.

  Attributes:
    config: the agent.
  """

  config: config_lib.ActorCriticConfig

  @property
  def auxiliary_tasks(self) -> tuple[auxiliary.AuxiliaryTask, ...]:
    """Tasks that are learned in addition to policy and value."""
    return self.config.make_tasks()

  @property
  def items_per_step(self) -> int:
    """Number of trajectories that one update takes from the queue."""
    return self.config.batch_size

  def replace(
    self, *, config: config_lib.ActorCriticConfig
  ) -> ActorCriticBuilder:
    """Returns a copy of the builder with another config."""
    return dataclasses.replace(self, config=config)

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Returns the functions of an actor, greedy in evaluation."""
    return self.config.make_policy(network, environment_spec, evaluation)

  def make_auxiliary_replay(
    self,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int,
  ) -> auxiliary_replay.AuxiliaryReplay | None:
    """Returns the on-device replay of the auxiliary tasks; None without any."""
    return replays.make_auxiliary_replay(
      self.config, environment_spec, policy, num_environments
    )

  def make_local_replays(
    self,
    keys: Sequence[types.Key],
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> list[local_replay.LocalReplay]:
    """Returns one in-process replay per key."""
    return replays.make_local_replays(
      self.config, environment_spec, policy, keys, num_environments
    )

  def make_replay_tables(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> list[reverb.Table]:
    """Returns the tables of the replay server."""
    return replays.make_tables(self.config, environment_spec, policy)

  def make_adder(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> adders.TrajectoryAdder:
    """Returns an adder for an actor in `num_environments` environments."""
    return replays.make_adder(
      self.config, environment_spec, policy, replay_client, num_environments
    )

  def make_dataset_iterator(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
  ) -> datasets.TrajectoryIterator:
    """Returns an iterator over batches; the caller must close it."""
    return replays.make_dataset(
      self.config, environment_spec, policy, replay_client
    )

  def make_learner_core(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
  ) -> types.LearnerCore:
    """Returns the functions of a learner."""
    return self.config.make_learner_core(network, environment_spec)

  def make_learner(
    self,
    key: types.Key,
    network: types.RecurrentNetwork,
    dataset: Iterator[samples.ReplaySample],
    logger_fn: loggers.LoggerFactory,
    environment_spec: types.EnvironmentSpec,
    place_core: Callable[[types.LearnerCore], types.LearnerCore] | None = None,
  ) -> learner.Learner:
    """Returns a learner; see `learner.make_learner`."""
    from ftwax.agents.acme import learner

    return learner.make_learner(
      self.config,
      key,
      network,
      dataset,
      logger_fn,
      environment_spec,
      place_core,
    )

  def make_actor(
    self,
    key: types.Key,
    policy: types.ActorCore,
    variable_source: variables.VariableSource,
    adder: gatherer.TrajectoryGatherer | None = None,
    num_environments: int | None = None,
  ) -> actor.Actor:
    """Returns an actor; see `actor.Actor` for `num_environments`."""
    from ftwax.agents.acme import actor, variables

    client = variables.VariableClient(variable_source)
    return actor.Actor(policy, key, client, adder, num_environments)
