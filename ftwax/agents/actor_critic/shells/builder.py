"""Puts the parts of an agent of the family together for a runtime.

The methods are those of the builders of acme's main branch.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import acme
import jax
import reverb

from ftwax import types
from ftwax.agents.actor_critic import acting, learning
from ftwax.agents.actor_critic import config as config_lib
from ftwax.agents.actor_critic.shells import actor, learner
from ftwax.agents.actor_critic.shells import variables as variables_lib
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.replay.reverb import adders, datasets, tables


@dataclasses.dataclass(frozen=True)
class ActorCriticBuilder:
  """Makes tables, adders, datasets, actors and learners from a config.

  Attributes:
    config: sizes and priors.
    policy_loss: see `losses.policy_loss`.
  """

  config: config_lib.ActorCriticConfig
  policy_loss: policy_loss_lib.PolicyLoss

  @property
  def items_per_step(self) -> int:
    """Items of the queue that one learner step takes."""
    return self.config.batch_size

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Returns the functions of an actor, greedy in evaluation."""
    return acting.make_actor_core(network, environment_spec, greedy=evaluation)

  def make_replay_tables(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> list[reverb.Table]:
    """Returns the tables of the server."""
    return [
      tables.make_queue(
        tables.QUEUE,
        self.config.max_queue_size,
        self._template(environment_spec, policy),
      )
    ]

  def make_adder(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
    num_environments: int = 1,
  ) -> adders.TrajectoryAdder:
    """Returns an adder for an actor in `num_environments` environments."""
    return adders.TrajectoryAdder(
      replay_client,
      self._template(environment_spec, policy),
      num_environments,
      self.config.replay_timeout_s,
    )

  def make_dataset_iterator(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
  ) -> datasets.TrajectoryIterator:
    """Returns an iterator over batches, which the caller closes."""
    return datasets.TrajectoryIterator(
      replay_client,
      self._template(environment_spec, policy),
      self.config.batch_size,
      self.config.replay_timeout_s,
      self.config.prefetch_size,
    )

  def make_learner(
    self,
    key: types.Key,
    network: types.RecurrentNetwork,
    dataset: Iterator[datasets.ReplaySample],
    logger_fn: Callable[..., Any],
  ) -> learner.Learner:
    """Returns a learner that logs under the label `learner`."""
    return learner.Learner(
      learning.make_learner_core(network, self.policy_loss, self.config),
      key,
      dataset,
      logger_fn('learner', 'learner_steps', None),
      self.config.max_skipped_updates,
    )

  def make_actor(
    self,
    key: types.Key,
    policy: types.ActorCore,
    variable_source: acme.VariableSource,
    adder: adders.TrajectoryAdder | None = None,
    num_environments: int | None = None,
  ) -> actor.Actor:
    """Returns an actor; see `actor.Actor` for `num_environments`."""
    client = variables_lib.VariableClient(variable_source)
    return actor.Actor(policy, key, client, adder, num_environments)

  def _template(self, environment_spec, policy) -> tables.Record:
    state = jax.eval_shape(lambda: policy.init(jax.random.PRNGKey(0), 1))
    return tables.make_template(
      environment_spec, state.recurrent_state, self.config.sequence_length
    )
