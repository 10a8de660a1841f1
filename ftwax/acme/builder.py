"""A builder with the methods of acme's builders, for any agent."""

from collections.abc import Callable, Iterator
from typing import Any

import reverb
from acme.utils import counting

from ftwax import types
from ftwax.acme import actor, adders, datasets, learner, tables, variables
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import replays
from ftwax.records import loggers


def make_tables(
  replay: replays.Replays,
  rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
) -> list[Any]:
  """Returns the tables of a Reverb server.

  Args:
    replay: makes the replays of the agent.
    rate_limiter: of the table that an agent samples from by priority; None if
      whoever inserts and samples keeps the ratio, as the runtimes do, and then
      nobody waits except for the first items.
  """
  config, prioritized = replay.config, replay.options.prioritized
  if prioritized is None:
    first = [
      tables.make_queue(tables.QUEUE, config.queue_size, replay.template)
    ]
  else:
    limiter = rate_limiter or reverb.rate_limiters.MinSize(prioritized.min_size)
    first = tables.make_prioritized_tables(
      prioritized, replay.template, limiter
    )
  return [
    *first,
    *tables.make_auxiliary_tables(replay.options, replay.template),
  ]


def make_rate_limiter(
  replay: replays.Replays, num_environments: int
) -> reverb.rate_limiters.RateLimiter | None:
  """Returns what keeps the ratio of samples to inserts, if there is one.

  Args:
    replay: makes the replays of the agent.
    num_environments: trajectories that are inserted at once.
  """
  prioritized = replay.options.prioritized
  if prioritized is None:
    return None
  ratio = prioritized.samples_per_insert
  # Large enough for all environments to insert, and a batch to be sampled.
  buffer = max(replay.config.batch_size, ratio * num_environments)
  return reverb.rate_limiters.SampleToInsertRatio(
    ratio, prioritized.min_size, float(buffer + max(1.0, ratio))
  )


def make_priorities(
  replay: replays.Replays, client: reverb.Client
) -> tables.Priorities | None:
  """Returns the priorities of what an agent samples; None without any."""
  prioritized = replay.options.prioritized
  return None if prioritized is None else tables.Priorities(client, prioritized)


def make_adder(
  replay: replays.Replays, client: reverb.Client, num_environments: int = 1
) -> adders.TrajectoryAdder:
  """Returns an adder to these tables; the caller must close it."""
  return adders.TrajectoryAdder(
    client,
    replay.template,
    num_environments,
    replay.config.queue.timeout_s,
    replay.options,
  )


def make_dataset(
  replay: replays.Replays, client: reverb.Client
) -> datasets.TrajectoryIterator:
  """Returns an iterator over batches; the caller must close it."""
  return datasets.TrajectoryIterator(
    client,
    replay.template,
    replay.config.batch_size,
    replay.config.queue.timeout_s,
    replay.config.queue.prefetch_size,
    replay.options,
  )


class Builder:
  """Makes the parts of an agent from its config.

  The methods take the arguments of `ActorLearnerBuilder` on acme's main branch,
  in its order and with its names. Each process of a program makes its parts
  with its own copy of the builder.
  """

  def __init__(
    self,
    config: config_lib.ActorCriticConfig,
    num_environments: int | None = None,
  ):
    """Makes a builder.

    Args:
      config: the agent.
      num_environments: environments of an actor and its adder; see `Actor`.
    """
    self.config = config
    self._num_environments = num_environments
    # They know the layout of trajectories, which tables lack.
    self._replays: replays.Replays | None = None

  def make_replay_tables(
    self, environment_spec: types.EnvironmentSpec, policy: types.ActorCore
  ) -> list[reverb.Table]:
    """Returns the tables of a Reverb server."""
    self._replays = replays.Replays(self.config, environment_spec, policy)
    limiter = make_rate_limiter(self._replays, self._num_environments or 1)
    return make_tables(self._replays, limiter)

  def make_dataset_iterator(self, replay_client: reverb.Client) -> 'Dataset':
    """Returns an iterator over batches; the caller must close it.

    The server does not know how trajectories are nested. The builder knows it
    from `make_replay_tables`, `make_adder` or `make_learner`: one of these must
    be called before the first batch is taken.
    """

    def start() -> datasets.TrajectoryIterator:
      if self._replays is None:
        raise ValueError(
          'make_dataset_iterator needs the layout of trajectories, which this'
          ' builder has not seen; call its make_learner, make_adder or'
          ' make_replay_tables before taking a batch.'
        )
      return make_dataset(self._replays, replay_client)

    return Dataset(start)

  def make_adder(
    self,
    replay_client: reverb.Client,
    environment_spec: types.EnvironmentSpec,
    policy: types.ActorCore,
  ) -> adders.TrajectoryAdder:
    """Returns an adder of trajectories; the caller must close it."""
    self._replays = replays.Replays(self.config, environment_spec, policy)
    return make_adder(self._replays, replay_client, self._num_environments or 1)

  def make_learner(
    self,
    random_key: types.Key,
    networks: types.RecurrentNetwork,
    dataset: Iterator[datasets.ReplaySample],
    logger_fn: loggers.LoggerFactory,
    environment_spec: types.EnvironmentSpec,
    replay_client: reverb.Client | None = None,
    counter: counting.Counter | None = None,
  ) -> learner.Learner:
    """Returns a learner, which logs under the label `learner`.

    Args:
      random_key: random key of parameters, hyperparameters and updates.
      networks: the network that learns.
      dataset: yields batches.
      logger_fn: makes the logger of a label.
      environment_spec: specs of the environments.
      replay_client: client of the server, if the agent samples by priority.
      counter: counts the updates as `steps`; its counts are logged.

    Raises:
      ValueError: if there is no client to set priorities with.
    """
    policy = self.make_policy(networks, environment_spec)
    self._replays = replays.Replays(self.config, environment_spec, policy)
    priorities = None
    if self.config.learns_from_replay:
      if replay_client is None:
        raise ValueError(
          f'replay_client ({replay_client}) must be a client of the Reverb'
          f' server with which {self.config.name} sets priorities; pass'
          ' server.localhost_client() or reverb.Client(address).'
        )
      priorities = make_priorities(self._replays, replay_client)
    return learner.make_learner(
      self.config,
      random_key,
      networks,
      dataset,
      logger_fn,
      environment_spec,
      counter=counter,
      priorities=priorities,
    )

  def make_actor(
    self,
    random_key: types.Key,
    policy: types.ActorCore,
    environment_spec: types.EnvironmentSpec,
    variable_source: variables.VariableSource | None = None,
    adder: adders.TrajectoryAdder | None = None,
  ) -> actor.Actor:
    """Returns an actor.

    Args:
      random_key: random key of the actor.
      policy: functions of the actor, see `make_policy`.
      environment_spec: not used.
      variable_source: serves the variables, usually a learner.
      adder: records timesteps and actions; None drops them, as in evaluation.

    Raises:
      ValueError: without a source of variables.
    """
    del environment_spec
    if variable_source is None:
      raise ValueError(
        f'variable_source ({variable_source}) must serve the variables of the'
        ' policy; pass the learner.'
      )
    client = variables.VariableClient(variable_source)
    return actor.Actor(
      policy, random_key, client, adder, self._num_environments
    )

  def make_policy(
    self,
    networks: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Returns the functions of an actor, greedy in evaluation."""
    return self.config.make_policy(networks, environment_spec, evaluation)


class Dataset(Iterator[datasets.ReplaySample]):
  """Batches of a Reverb server; sampling starts with the first one."""

  def __init__(self, start: Callable[[], datasets.TrajectoryIterator]):
    """Takes the function that starts sampling."""
    self._start = start
    self._batches: datasets.TrajectoryIterator | None = None

  def __next__(self) -> datasets.ReplaySample:
    """Returns the next batch; see `datasets.TrajectoryIterator`."""
    if self._batches is None:
      self._batches = self._start()
    return next(self._batches)

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    if self._batches is not None:
      self._batches.close()
