"""An agent in one object, which acts, fills its own replay, and learns.

It is meant for custom loops; `runtime` runs whole experiments.
"""

import contextlib
from collections.abc import Sequence

import dm_env
import jax

from ftwax import types
from ftwax.agents import builders
from ftwax.agents.acme import actor, interfaces, learner
from ftwax.agents.actor_critic import replays
from ftwax.records import log_values, loggers
from ftwax.replay import gatherer


class LearningAgent(interfaces.VariableSource, interfaces.Saveable):
  """A learner with its Reverb server, without an actor.

  Actors elsewhere write trajectories into the tables of `client` through
  `make_adder` and fetch variables; `step` learns from the trajectories.
  """

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    network: types.RecurrentNetwork,
    builder: builders.Builder,
    seed: int = 0,
    logger: loggers.Logger | None = None,
    replay_port: int | None = None,
    expose: bool = False,
  ):
    """Starts a server and makes a learner.

    Args:
      environment_spec: specs of the environments.
      network: the network that learns.
      builder: makes the parts of the agent.
      seed: seed of parameters, hyperparameters and internal rewards.
      logger: receives the metrics of each update; None drops them.
      replay_port: port of the server; None picks a free one.
      expose: whether other machines can reach the server, which has no
        authentication.
    """
    from ftwax.replay.reverb import servers

    self._builder = builder
    self._spec = environment_spec
    self._network = network
    self._policy = builder.make_policy(network, environment_spec)
    self._server = servers.make_server(
      builder.make_replay_tables(environment_spec, self._policy),
      replay_port,
      expose,
    )
    self.client = self._server.localhost_client()
    self._dataset = builder.make_dataset_iterator(
      self.client, environment_spec, self._policy
    )
    self.learner = builder.make_learner(
      jax.random.PRNGKey(seed),
      network,
      self._dataset,
      lambda *_: logger or _NoLogger(),
      environment_spec,
    )

  def make_adder(
    self, num_environments: int = 1
  ) -> gatherer.TrajectoryGatherer:
    """Returns an adder to this agent's tables; the caller must close it."""
    return self._builder.make_adder(
      self.client, self._spec, self._policy, num_environments
    )

  def make_actor(
    self,
    seed: int,
    adder: gatherer.TrajectoryGatherer | None = None,
    num_environments: int | None = None,
    evaluation: bool = False,
  ) -> actor.Actor:
    """Returns an actor that uses this agent's variables; see `actor.Actor`."""
    policy = self._builder.make_policy(self._network, self._spec, evaluation)
    return self._builder.make_actor(
      jax.random.PRNGKey(seed), policy, self, adder, num_environments
    )

  def step(self) -> None:
    """Waits for a batch and does one update."""
    self.learner.step()

  def run(self, num_steps: int | None = None) -> None:
    """Does `num_steps` updates, or runs forever if None."""
    self.learner.run(num_steps)

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the actors' variables for each name."""
    return self.learner.get_variables(names)

  def save(self) -> types.TrainingState:
    """Returns the state of the learner, without the tables."""
    return self.learner.save()

  def restore(self, state: types.TrainingState) -> None:
    """Continues from `state`."""
    self.learner.restore(state)

  def close(self) -> None:
    """Stops the dataset's threads and the server."""
    from ftwax.replay.reverb import servers

    self._dataset.close()
    servers.stop(self._server)


class Agent(interfaces.Actor):
  """Acts, and learns in `update`, for any loop that runs an acme actor."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    network: types.RecurrentNetwork,
    builder: builders.Builder,
    seed: int = 0,
    num_environments: int | None = None,
    logger: loggers.Logger | None = None,
    replay: str | None = None,
  ):
    """Makes an actor, a learner and the replay between them.

    Args:
      environment_spec: specs of the environments.
      network: the network that learns.
      builder: makes the parts of the agent.
      seed: random seed of actor, learner and replay.
      num_environments: see `actor.Actor`.
      logger: receives the metrics of each update; None drops them.
      replay: see `replays.choose`.
    """
    self._items_per_step = builder.items_per_step
    self._num_updates = 0
    self._stack = contextlib.ExitStack()
    policy = builder.make_policy(network, environment_spec)
    learner_key, actor_key = map(jax.random.PRNGKey, (seed, seed + 1))
    (made,) = replays.make_replays(
      builder,
      [jax.random.fold_in(actor_key, 1)],
      environment_spec,
      policy,
      num_environments or 1,
      self._stack,
      replay,
    )
    self._adder = made.adder
    self._learner = builder.make_learner(
      learner_key,
      network,
      made.dataset,
      lambda *_: logger or _NoLogger(),
      environment_spec,
    )
    self._actor = builder.make_actor(
      actor_key, policy, self._learner, self._adder, num_environments
    )

  @property
  def learner(self) -> learner.Learner:
    """The learner, with its state, hyperparameters and variables."""
    return self._learner

  def select_action(self, observation: types.ArrayTree) -> types.ArrayTree:
    """Returns actions for the last observed timestep."""
    return self._actor.select_action(observation)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Observes the first timestep of an episode."""
    self._actor.observe_first(timestep)

  def observe(
    self, action: types.ArrayTree, next_timestep: dm_env.TimeStep
  ) -> None:
    """Observes `action` and the timestep that follows."""
    self._actor.observe(action, next_timestep)

  def update(self, wait: bool = False) -> None:
    """Does one update for each full batch of trajectories written so far."""
    due = self._adder.num_items // self._items_per_step
    while self._num_updates < due:
      self._learner.step()
      self._num_updates += 1
    self._actor.update(wait)

  def save(self) -> types.TrainingState:
    """Returns the state of the learner, without the replay."""
    return self._learner.save()

  def restore(self, state: types.TrainingState) -> None:
    """Continues from `state`."""
    self._learner.restore(state)

  def close(self) -> None:
    """Closes the replay: threads and server, if there are any."""
    self._stack.close()


class _NoLogger:
  """A logger that drops everything."""

  def write(self, values: log_values.LoggingData) -> None:
    del values

  def close(self) -> None:
    pass
