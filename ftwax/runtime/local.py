"""Runs an experiment in one process: environments, Reverb server, learner.

Acting and learning take turns: whenever the actor has written as many
trajectories as a learner step takes, the learner takes a step. Nothing depends
on the clock, so the same seed on the same machine gives the same parameters,
bit for bit.
"""

import contextlib
import functools
import math
import pathlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from ftwax import types
from ftwax.environments import validation, vector
from ftwax.replay.reverb import servers
from ftwax.reporting import curves
from ftwax.runtime import (
  checkpoints,
  environment_loop,
  loggers,
  progress,
  run_directory,
  signals,
)
from ftwax.runtime import experiment as experiment_lib

# What seeds of environments and keys of actors are told apart by.
_TRAINING, _EVALUATION = 0, 1

# Episodes that the mean return in the progress bar and the result is over.
WINDOW = 100

# What a run that is resumed may be told anew, since it changes no result.
_MAY_DIFFER = (
  'max_num_actor_steps',
  'replay_port',
  'checkpointing.save_every_seconds',
  'checkpointing.max_to_keep',
)

# Seconds between two updates of the progress bar.
_DISPLAY_PERIOD_S = 0.25

# Seconds between two rows in the log of the learner.
_LEARNER_LOG_PERIOD_S = 1.0


class Counts(NamedTuple):
  """How far a run is; part of its checkpoints.

  Attributes:
    actor_steps: actions in all training environments together.
    episodes: training episodes that ended.
    learner_steps: updates.
    seconds: of training, earlier sessions included.
  """

  actor_steps: int = 0
  episodes: int = 0
  learner_steps: int = 0
  seconds: float = 0.0


class RunResult(NamedTuple):
  """What a run came to.

  Attributes:
    run_dir: the run's directory.
    counts: how far it went.
    mean_return: over the last 100 training episodes; NaN before the first.
    state: the learner's.
  """

  run_dir: pathlib.Path
  counts: Counts
  mean_return: float
  state: types.TrainingState


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
) -> RunResult:
  """Trains for `experiment.max_num_actor_steps`; evaluates, logs and saves.

  Args:
    experiment: what to run.
    eval_every: actor steps between evaluations; None for none.
    num_eval_episodes: episodes of an evaluation, at the least.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint in `run_dir`, by default that
      of the newest run of this name.

  Returns:
    What the run came to.

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    RunDirectoryError: the directory is in use, or of another config.
    ReplayTimeoutError: the queue stalled.
  """
  directory = _open_run_directory(experiment, run_dir, resume)
  with contextlib.ExitStack() as stack:
    stack.enter_context(run_directory.lock(directory))
    run = _Run(experiment, directory, resume, stack)
    with signals.deferred_interrupts() as check_interrupts:
      try:
        next_evaluation = run.counts.actor_steps + (eval_every or 0)
        for _ in run.train():
          check_interrupts()
          if eval_every and run.counts.actor_steps >= next_evaluation:
            run.evaluate(num_eval_episodes)
            next_evaluation += eval_every
      except KeyboardInterrupt:
        run.save()
        print(
          f'Interrupted and saved at {run.counts.actor_steps} steps. To go on,'
          f' run the same command with --resume --run_dir={directory}'
        )
        raise
      except Exception:
        run.save()  # A broken environment costs no training.
        raise
    run.save()
  curves.plot_curves(directory)
  return RunResult(directory, run.counts, run.mean_return, run.learner.state)


class _Run:
  """The parts of a run and how far it is."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: pathlib.Path,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the parts; `stack` closes them, the last one first."""
    self._experiment = experiment
    self._stack = stack
    self._make_logger = experiment.logger_factory or (
      loggers.make_logger_factory(directory, terminal=False)
    )
    self._spec = experiment.environment_spec or self._read_spec()
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
    self.learner = builder.make_learner(
      jax.random.PRNGKey(experiment.seed),
      self._network,
      dataset,
      self._make_learner_logger,
    )
    self._adder = builder.make_adder(
      client, self._spec, policy, experiment.num_environments
    )
    stack.callback(self._adder.close)

    self.counts = Counts()
    self._returns: deque[float] = deque(maxlen=WINDOW)
    self._num_updates = 0  # In this session.
    self._saved_at = time.monotonic()
    self._save_period_s = math.inf
    self._checkpointer = self._make_checkpointer(directory)
    if resume:
      self._restore()
    # Made last: what they draw depends on how far the run is.
    self._environment = self._make_environments(
      experiment.num_environments, _TRAINING
    )
    self._actor = builder.make_actor(
      self._role_key(_TRAINING),
      policy,
      self.learner,
      self._adder,
      experiment.num_environments,
    )
    self._train_logger = self._open_logger('train')

  @property
  def mean_return(self) -> float:
    """Mean return of the last training episodes."""
    return float(np.mean(self._returns)) if self._returns else float('nan')

  def train(self) -> Iterator[environment_loop.Tick]:
    """Acts and learns in turn; yields after each step of the environments."""
    experiment, first = self._experiment, self.counts
    if first.actor_steps >= experiment.max_num_actor_steps:
      return
    start, next_display = time.monotonic(), 0.0
    with progress.Progress(
      experiment.max_num_actor_steps,
      label=experiment.name,
      initial_steps=first.actor_steps,
    ) as display:
      for tick in environment_loop.run_loop(
        self._environment, self._actor, experiment.observers
      ):
        self._learn()
        self.counts = Counts(
          actor_steps=self.counts.actor_steps + tick.num_steps,
          episodes=self.counts.episodes + len(tick.episodes),
          learner_steps=self.learner.num_steps,
          seconds=first.seconds + time.monotonic() - start,
        )
        self._log_episodes(tick.episodes)
        self._save_if_due()
        done = self.counts.actor_steps >= experiment.max_num_actor_steps
        if done or self.counts.seconds >= next_display:
          next_display = self.counts.seconds + _DISPLAY_PERIOD_S
          display.update(
            self.counts.actor_steps,
            mean_return=self.mean_return,
            learner_steps=self.counts.learner_steps,
          )
        yield tick
        if done:
          return

  def evaluate(self, num_episodes: int) -> None:
    """Runs and logs at least `num_episodes` episodes of the newest policy."""
    environment, actor, logger = self._make_evaluation(num_episodes)
    episodes = environment_loop.run_episodes(environment, actor, num_episodes)
    returns = [episode.episode_return for episode in episodes]
    logger.write(
      {
        'episode_return': np.mean(returns),
        'episode_return_std': np.std(returns),
        'episode_length': np.mean([e.episode_length for e in episodes]),
        'num_episodes': len(episodes),
        **self.counts._asdict(),
      }
    )

  def save(self) -> None:
    """Saves a checkpoint and waits until it is on the disk."""
    if self._checkpointer is not None:
      self._save()
      self._checkpointer.wait()

  def _learn(self):
    """Does the updates that the trajectories written allow."""
    due = self._adder.num_items // self._experiment.builder.items_per_step
    while self._num_updates < due:
      self.learner.step()
      self._num_updates += 1

  def _log_episodes(self, episodes):
    for episode in episodes:
      self._returns.append(episode.episode_return)
      values = {
        'episode_return': episode.episode_return,
        'episode_length': episode.episode_length,
        **self.counts._asdict(),
      }
      for observer in self._experiment.observers:
        values.update(observer.get_metrics())
      self._train_logger.write(values)

  def _save_if_due(self):
    if time.monotonic() - self._saved_at >= self._save_period_s:
      self._save()

  def _save(self):
    self._checkpointer.save(
      self.counts.actor_steps,
      self.learner.save(),
      {'counts': self.counts._asdict(), 'returns': list(self._returns)},
    )
    self._saved_at = time.monotonic()

  def _restore(self):
    if self._checkpointer is None:
      raise ValueError(
        'checkpointing (None) must be set to resume a run; use the'
        ' configuration that the run was started with.'
      )
    state, metadata = self._checkpointer.restore(self.learner.save())
    self.learner.restore(state)
    self.counts = Counts(**metadata['counts'])
    self._returns.extend(metadata['returns'])

  def _make_checkpointer(self, directory):
    config = self._experiment.checkpointing
    if config is None:
      return None
    self._save_period_s = config.save_every_seconds
    checkpointer = checkpoints.Checkpointer(
      directory / 'checkpoints',
      config.max_to_keep,
      must_be_finite=lambda state: state.params,
    )
    self._stack.callback(checkpointer.close)
    return checkpointer

  def _read_spec(self):
    """Reads the spec off an environment that is made for it alone."""
    with contextlib.closing(self._experiment.environment_factory(0)) as made:
      validated = validation.ValidatedEnvironment(made, self._experiment.name)
      return types.make_environment_spec(validated)

  def _make_environments(self, num_environments, role):
    seeds = _environment_seeds(
      self._experiment.seed, role, self.counts.actor_steps, num_environments
    )
    environment = vector.VectorEnvironment(
      [
        validation.ValidatedEnvironment(
          self._experiment.environment_factory(seed),
          f'{self._experiment.name}[{index}]',
        )
        for index, seed in enumerate(seeds)
      ]
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
      self.learner,
      num_environments=num_environments,
    )
    environment = self._make_environments(num_environments, _EVALUATION)
    return environment, actor, self._open_logger('evaluation')

  def _role_key(self, role):
    """Returns the key of an actor; a resumed run does not draw the same."""
    key = jax.random.PRNGKey(self._experiment.seed)
    key = jax.random.fold_in(key, self.counts.actor_steps)
    return jax.random.fold_in(key, 1 + role)

  def _open_logger(self, label):
    logger = self._make_logger(label, 'actor_steps', None)
    self._stack.callback(logger.close)
    return logger

  def _make_learner_logger(self, label, steps_key, instance):
    """Makes a logger that is seldom written to, since values are waited for."""
    logger = loggers.TimeFilter(
      self._make_logger(label, steps_key, instance), _LEARNER_LOG_PERIOD_S
    )
    self._stack.callback(logger.close)
    return logger


def _open_run_directory(experiment, run_dir, resume) -> pathlib.Path:
  if not resume:
    if run_dir is None:
      return run_directory.create(
        'runs', experiment.name, experiment.seed, experiment
      )
    return run_directory.create_at(run_dir, experiment)
  run_dir = run_dir or run_directory.newest('runs', experiment.name)
  if run_dir is None:
    raise run_directory.RunDirectoryError(
      f'runs/{experiment.name} must hold a run to resume, and holds none; give'
      ' its directory, or start a new run.'
    )
  return run_directory.open_existing(
    run_dir, experiment, may_differ=_MAY_DIFFER
  )


def _environment_seeds(
  seed: int, role: int, actor_steps: int, num_environments: int
) -> list[int]:
  """Returns a seed below 2**31 for each environment."""
  sequence = np.random.SeedSequence((seed, role, actor_steps))
  return [int(x) >> 1 for x in sequence.generate_state(num_environments)]
