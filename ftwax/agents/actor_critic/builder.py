"""The builder of the family, which implements `agents.builders.Builder`.

Methods that need Reverb import it when they are called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary, images
from ftwax.records import loggers
from ftwax.replay import (
  auxiliary_replay,
  gatherer,
  local_replay,
  replay_options,
  samples,
  trajectories,
)

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
    return auxiliary_replay.make_auxiliary_replay(
      self._replay_options,
      self._template(environment_spec, policy),
      self.config.batch_size,
      num_environments,
    )

  def make_local_replays(
    self,
    keys: Sequence[types.Key],
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> list[local_replay.LocalReplay]:
    """Returns one in-process replay per key."""
    config = self.config
    auxiliary = self.make_auxiliary_replay(
      environment_spec, policy, config.batch_size
    )
    if auxiliary is not None:
      auxiliary = auxiliary_replay.compile_functions(auxiliary)
    return [
      local_replay.LocalReplay(
        self._template(environment_spec, policy),
        num_environments,
        config.batch_size,
        config.max_queue_size,
        self._replay_options,
        auxiliary,
        key,
      )
      for key in keys
    ]

  def make_replay_tables(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> list[reverb.Table]:
    """Returns the tables of the replay server."""
    from ftwax.replay.reverb import tables

    if self._replay_options.prioritized:
      raise ValueError(
        f'prioritize_replay ({self.config.prioritize_replay}) must be False'
        ' with trajectories in Reverb; choose --runtime=device, or'
        ' --replay=functional with --runtime=local.'
      )
    template = self._template(environment_spec, policy)
    return [
      tables.make_queue(tables.QUEUE, self.config.max_queue_size, template),
      *tables.make_auxiliary_tables(self._replay_options, template),
    ]

  def make_adder(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> adders.TrajectoryAdder:
    """Returns an adder for an actor in `num_environments` environments."""
    from ftwax.replay.reverb import adders

    return adders.TrajectoryAdder(
      replay_client,
      self._template(environment_spec, policy),
      num_environments,
      self.config.replay_timeout_s,
      self._replay_options,
    )

  def make_dataset_iterator(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
  ) -> datasets.TrajectoryIterator:
    """Returns an iterator over batches; the caller must close it."""
    from ftwax.replay.reverb import datasets

    return datasets.TrajectoryIterator(
      replay_client,
      self._template(environment_spec, policy),
      self.config.batch_size,
      self.config.replay_timeout_s,
      self.config.prefetch_size,
      self._replay_options,
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
    """Returns a learner; see `builders.Builder.make_learner`."""
    from ftwax.agents.acme import learner

    image_writer = None
    if self.config.image_period:
      image_writer = images.ImageWriter(
        network, self.config, logger_fn('images', 'learner_steps', None)
      )
    core = self.make_learner_core(network, environment_spec)
    return learner.Learner(
      place_core(core) if place_core else core,
      key,
      dataset,
      logger_fn('learner', 'learner_steps', None),
      self.config.max_skipped_updates,
      image_writer,
      self.config.bounds,
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

  @property
  def _replay_options(self) -> replay_options.ReplayOptions:
    """Options of the replay that the auxiliary tasks learn from."""
    config = self.config
    sources = auxiliary.sources(self.auxiliary_tasks)
    replays = auxiliary.REPLAY in sources
    predicts = auxiliary.REWARD_PREDICTION in sources
    return replay_options.ReplayOptions(
      replay_capacity=config.replay_capacity if replays else 0,
      reward_prediction_capacity=(
        config.reward_prediction_capacity if predicts else 0
      ),
      sequences=trajectories.Sequences(
        config.reward_prediction_length,
        config.reward_prediction_period,
        config.reward_prediction_threshold,
      ),
      delta_encodes=config.delta_encode,
      prioritized=replays and config.prioritize_replay,
    )

  def _template(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> types.Trajectory:
    """Returns a trajectory of zeros, as a template of shapes and dtypes."""
    state = jax.eval_shape(lambda: policy.init(jax.random.PRNGKey(0), 1))
    return trajectories.make_template(
      environment_spec, state.recurrent_state, self.config.sequence_length
    )
