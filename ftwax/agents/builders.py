"""The interface between agents and runtimes.

A runtime makes every part of an agent through its builder, so that one agent
runs in all runtimes. The methods are those of the builders of acme's main
branch.
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

  from ftwax.agents.actor_critic.shells import actor, learner, variables
  from ftwax.replay import auxiliary_replay, gatherer, local_replay, samples
  from ftwax.replay.reverb import adders, datasets


class Builder(Protocol):
  """Makes the parts of an agent.

  `make_replay_tables`, `make_adder` and `make_dataset_iterator` need Reverb;
  the other methods need JAX alone.
  """

  @property
  def config(self) -> config_lib.ActorCriticConfig:
    """Options and priors of the agent."""

  @property
  def items_per_step(self) -> int:
    """Trajectories of the queue that one update takes."""

  @property
  def auxiliary_tasks(self) -> tuple[auxiliary.AuxiliaryTask, ...]:
    """Tasks that are learned beside policy and value."""

  def replace(self, *, config: config_lib.ActorCriticConfig) -> Builder:
    """Returns a builder that differs in its config alone.

    Losses and tasks stay: they are those of the config that the agent's own
    `make_builder` was given.
    """

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
    """Returns the replay on the device of the auxiliary tasks, if any.

    Args:
      environment_spec: specs of the environments.
      policy: of the agent; gives the recurrent state of a trajectory.
      num_environments: trajectories that are added at a time.
    """

  def make_local_replays(
    self,
    keys: Sequence[types.Key],
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> list[local_replay.LocalReplay]:
    """Returns replays in this process, which share what is compiled.

    Args:
      keys: one for each of them, for what is drawn from it.
      environment_spec: specs of the environments.
      policy: of the agent; gives the recurrent state of a trajectory.
      num_environments: whose timesteps each of them gathers.
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
    """Returns an iterator over batches, which the caller closes."""

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
      key: for parameters, hyperparameters and what updates draw.
      network: the network that learns.
      dataset: yields batches.
      logger_fn: makes the logger of a label.
      environment_spec: specs of the environments.
      place_core: chooses the devices on which the functions of the learner
        compute; those of their arguments by default.
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
