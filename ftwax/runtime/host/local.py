"""Runs an experiment in one process: environments, Reverb server, learner.

Acting and learning take turns: whenever the actor has written as many
trajectories as a learner step takes, the learner takes a step. Nothing depends
on the clock, so the same seed on the same machine gives the same parameters,
bit for bit.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence

import jax

from ftwax import types
from ftwax.replay.reverb import servers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs, sharding
from ftwax.runtime.host import environment_loop, experiment_environments
from ftwax.runtime.host import generations as population_records
from ftwax.runtime.host import population_run as population_run

# What seeds of environments and keys of actors are told apart by.
_TRAINING, _EVALUATION = 0, 1


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
) -> runs.RunResult:
  """Trains in this process; see `runs.run_experiment`.

  Args:
    experiment: what to run; an environment written in JAX will do, too. One
      with a population is that of `population.run`.
    eval_every: actor steps between evaluations; None for none.
    num_eval_episodes: episodes of an evaluation, at the least.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint.
    devices: over which batches are spread; JAX's first one by default.

  Returns:
    What the run came to.

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    RunDirectoryError: the directory is in use, or of another config.
    ValueError: batches cannot be spread over the devices.
    ReplayTimeoutError: the queue stalled.
    ValueError: a population is to be evaluated.
  """
  if isinstance(experiment, experiment_lib.PopulationExperimentConfig):
    if devices is not None:
      raise ValueError(
        f'devices ({list(devices)}) must be None for a population in this'
        " runtime; choose runtime='device'."
      )
    population_records.check_no_evaluation(eval_every)
    return population_run.run_population(
      experiment, run_dir=run_dir, resume=resume
    )
  mesh = sharding.make_mesh(devices)
  sharding.check_divides(mesh, batch_size=experiment.builder.config.batch_size)
  return runs.execute(
    functools.partial(_Run, mesh),
    experiment,
    eval_every,
    num_eval_episodes,
    run_dir,
    resume,
  )


class _Run:
  """The parts of a run."""

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    experiment: experiment_lib.ExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the parts; `stack` closes them, the last one first."""
    self._experiment = experiment
    self._records = records
    self._stack = stack
    self._spec = experiment_environments.read_spec(experiment)
    self._network = experiment.network_factory(self._spec)
    builder = experiment.builder
    policy = builder.make_policy(self._network, self._spec)
    server = servers.make_server(
      builder.make_replay_tables(self._spec, policy), experiment.replay_port
    )
    stack.callback(server.stop)
    client = server.localhost_client()
    dataset = builder.make_dataset_iterator(client, self._spec, policy)
    stack.callback(dataset.close)
    self._learner = builder.make_learner(
      jax.random.PRNGKey(experiment.seed),
      self._network,
      dataset,
      records.open_learner_logger,
      self._spec,
      functools.partial(sharding.place_learner_core, mesh),
    )
    self._adder = builder.make_adder(
      client, self._spec, policy, experiment.num_environments
    )
    stack.callback(self._adder.close)
    self._num_updates = 0  # In this session.
    if resume:
      self._learner.restore(records.restore(self._learner.save()))
    # Made last: what they draw depends on how far the run is.
    self._environment = self._make_environments(
      experiment.num_environments, _TRAINING
    )
    self._actor = builder.make_actor(
      self._role_key(_TRAINING),
      policy,
      self._learner,
      self._adder,
      experiment.num_environments,
    )
    self._train_logger = records.open_logger('train')

  @property
  def training_state(self) -> types.TrainingState:
    """The learner's state."""
    return self._learner.state

  def snapshot(self) -> types.TrainingState:
    """Returns the learner's state; environments begin anew."""
    return self._learner.save()

  def train(self) -> Iterator[environment_loop.Tick]:
    """Acts and learns in turn; yields after each step of the environments."""
    records = self._records
    if records.done:
      return
    with records.training() as show:
      for tick in environment_loop.run_loop(
        self._environment, self._actor, self._experiment.observers
      ):
        self._learn()
        records.advance(
          tick.num_steps,
          [episode.episode_return for episode in tick.episodes],
          self._learner.num_steps,
        )
        self._log_episodes(tick.episodes)
        records.save_if_due(self.snapshot)
        show()
        yield tick
        if records.done:
          return

  def evaluate(self, num_episodes: int) -> None:
    """Runs and logs at least `num_episodes` episodes of the newest policy."""
    environment, actor, logger = self._make_evaluation(num_episodes)
    episodes = environment_loop.run_episodes(environment, actor, num_episodes)
    logger.write(
      self._records.evaluation_row(
        [episode.episode_return for episode in episodes],
        [episode.episode_length for episode in episodes],
      )
    )

  def _learn(self):
    """Does the updates that the trajectories written allow."""
    due = self._adder.num_items // self._experiment.builder.items_per_step
    while self._num_updates < due:
      self._learner.step()
      self._num_updates += 1

  def _log_episodes(self, episodes):
    for episode in episodes:
      values = {
        'episode_return': episode.episode_return,
        'episode_length': episode.episode_length,
        **self._records.counts._asdict(),
      }
      for observer in self._experiment.observers:
        values.update(observer.get_metrics())
      self._train_logger.write(values)

  def _make_environments(self, num_environments, role):
    environment = experiment_environments.make_vector(
      self._experiment,
      num_environments,
      (role, self._records.counts.actor_steps),
      self._experiment.name,
    )
    self._stack.callback(environment.close)
    return environment

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluation(self, num_episodes):
    """Returns environment, actor and logger of evaluations, made once."""
    experiment, builder = self._experiment, self._experiment.builder
    num_environments = min(num_episodes, experiment.num_environments)
    policy = builder.make_policy(
      self._network, self._spec, evaluation=experiment.evaluation_greedy
    )
    actor = builder.make_actor(
      self._role_key(_EVALUATION),
      policy,
      self._learner,
      num_environments=num_environments,
    )
    environment = self._make_environments(num_environments, _EVALUATION)
    return environment, actor, self._records.open_logger('evaluation')

  def _role_key(self, role):
    """Returns the key of an actor; a resumed run does not draw the same."""
    key = jax.random.PRNGKey(self._experiment.seed)
    key = jax.random.fold_in(key, self._records.counts.actor_steps)
    return jax.random.fold_in(key, 1 + role)
