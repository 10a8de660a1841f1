"""Builds the parts of an agent in an environment, to be measured apart."""

from typing import Any

import common
import dm_env
import jax
import numpy as np
import python_catch

from ftwax import acme, types
from ftwax.acme import servers
from ftwax.agents.actor_critic import actor_critic_config


class Agent:
  """An actor with its adder, a queue, and a learner with its dataset."""

  def __init__(
    self,
    spec: types.EnvironmentSpec,
    config: actor_critic_config.ActorCriticConfig,
    num_environments: int,
  ):
    """Makes the parts; `clock` counts the learner's waiting as `sample`."""
    self.clock = common.Clock()
    network = config.make_network(spec)
    builder = acme.Builder(config, num_environments)
    policy = builder.make_policy(network, spec)
    self._batch_size = config.batch_size
    self._server = servers.make_server(builder.make_replay_tables(spec, policy))
    client = self._server.localhost_client()
    self._dataset = builder.make_dataset_iterator(client)
    self.learner = builder.make_learner(
      jax.random.PRNGKey(0),
      network,
      self.clock.iterate(self._dataset, 'sample'),
      lambda *_: _NoLogger(),
      spec,
    )
    self.adder = builder.make_adder(client, spec, policy)
    self.actor = builder.make_actor(
      jax.random.PRNGKey(1), policy, spec, self.learner, self.adder
    )

  def update(self) -> None:
    """Does an update for each full batch, then fetches variables."""
    while self.learner.num_steps < self.adder.num_items // self._batch_size:
      self.learner.step()
    self.actor.update()

  def close(self) -> None:
    """Stops the threads and the server."""
    self.adder.close()
    self._dataset.close()
    self._server.stop()


class _NoLogger:
  def write(self, values: Any) -> None:
    del values


def catch_spec() -> types.EnvironmentSpec:
  """Returns the spec of catch: 10x5 floats and 3 actions."""
  return types.make_environment_spec(python_catch.Catch(0))


def random_timesteps(
  spec: types.EnvironmentSpec, num_environments: int, num_steps: int = 32
) -> list[dm_env.TimeStep]:
  """Draws `MID` timesteps, leaves [E, ...]."""
  rng = np.random.default_rng(0)

  def observation():
    return jax.tree.map(
      lambda leaf: rng.integers(
        leaf.minimum, leaf.maximum + 1, (num_environments, *leaf.shape)
      ).astype(leaf.dtype),
      spec.observations,
    )

  return [
    dm_env.TimeStep(
      step_type=np.full(num_environments, types.MID, np.int32),
      reward=np.zeros(num_environments, np.float32),
      discount=np.ones(num_environments, np.float32),
      observation=observation(),
    )
    for _ in range(num_steps)
  ]
