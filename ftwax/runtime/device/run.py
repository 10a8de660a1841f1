"""Runs an experiment on the device: environments in JAX, no replay server.

The host only counts, logs and saves, between calls of the compiled loop (see
`loop`). All that changes is one pytree: a resumed run goes on bit for bit, in
the middle of its episodes.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import auxiliary, faults
from ftwax.environments import functional, validation
from ftwax.networks import recurrent
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs, sharding
from ftwax.runtime.device import (
  auxiliary_replay,
  compilation,
  experiment_checks,
  loop,
  placement,
  population_run,
  rollout,
)
from ftwax.runtime.host import generations as population_records

# What the keys of evaluations are told apart by from those of training.
_EVALUATION = 1


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
) -> runs.RunResult:
  """Trains on the device; see `runs.run_experiment`.

  The run ends with the call in which the last step is taken, and evaluations
  come between calls.

  Args:
    experiment: its factory makes a `functional.FunctionalEnvironment`; one
      with a population is that of `population_run`.
    eval_every: actor steps between evaluations; None for none.
    num_eval_episodes: episodes of an evaluation, at the least.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint, on any number of devices.
    devices: over which environments, or members of a population, are spread;
      JAX's first one by default.

  Returns:
    What the run came to.

  Raises:
    InvalidTimestepError: a reward was not finite.
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    NonFiniteGradientError: too many updates in a row were skipped.
    RunDirectoryError: the directory is in use, or of another config.
    TypeError: the environment is none that can be compiled.
    ValueError: sizes or options do not fit.
  """
  experiment_checks.check_not_traced()
  if isinstance(experiment, experiment_lib.PopulationExperimentConfig):
    population_records.check_no_evaluation(eval_every)
    return population_run.run_population(
      experiment, run_dir=run_dir, resume=resume, devices=devices
    )
  if experiment.observers:
    raise ValueError(
      f'observers ({list(experiment.observers)!r}) must be empty for'
      " runtime='device', where nobody sees single steps; choose"
      " runtime='local'."
    )
  parts = _Parts(experiment, sharding.make_mesh(devices))
  return runs.execute(
    functools.partial(_Run, parts),
    experiment,
    eval_every,
    num_eval_episodes,
    run_dir,
    resume,
  )


class _Parts:
  """What an experiment is made of; nothing here changes."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    mesh: jax.sharding.Mesh,
  ):
    """Makes and checks the parts."""
    builder = experiment.builder
    self.mesh = mesh
    sharding.check_divides(
      mesh,
      num_environments=experiment.num_environments,
      batch_size=builder.config.batch_size,
    )
    self.environment = experiment_checks.check_environment(
      experiment.environment_factory(experiment.seed)
    )
    self.spec = experiment.environment_spec or self.environment.spec
    self.network = experiment.network_factory(self.spec)
    self.actor = builder.make_policy(self.network, self.spec)
    self.evaluation_actor = builder.make_policy(
      self.network, self.spec, evaluation=experiment.evaluation_greedy
    )
    self.learner = sharding.place_learner_core(
      mesh, builder.make_learner_core(self.network, self.spec)
    )
    self.max_skipped_updates = builder.config.max_skipped_updates
    self.sizes = loop.make_sizes(
      self.spec,
      builder.config.sequence_length,
      experiment.num_environments,
      builder.config.batch_size,
      recurrent.has_convolutions(self.network),
    )
    self.replay = auxiliary_replay.make_auxiliary_replay(
      auxiliary.sources(builder.auxiliary_tasks),
      builder.config,
      self.spec,
      self.actor,
      experiment.num_environments,
    )


class _Run:
  """A run under way."""

  def __init__(
    self,
    parts: _Parts,
    experiment: experiment_lib.ExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the first state, or restores one."""
    del stack  # Nothing here must be closed.
    self._parts = parts
    self._experiment = experiment
    self._records = records
    self._key = jax.random.PRNGKey(experiment.seed)
    environment = functional.vectorize(
      parts.environment, experiment.num_environments
    )
    init = loop.make_init(
      environment,
      parts.actor,
      parts.learner,
      parts.replay,
      experiment.num_environments,
    )
    if resume:
      state = records.restore(jax.eval_shape(init, self._key))
    else:
      state = jax.jit(init)(self._key)
    self._state = jax.device_put(state, placement.of_loop(parts.mesh))
    self._call = loop.make_call(
      environment,
      parts.actor,
      loop.make_learn(parts.learner, parts.replay, parts.sizes),
      parts.sizes,
      parts.sizes.num_iterations(experiment.max_num_actor_steps),
    )
    self._train_logger = records.open_logger('train')
    self._learner_logger = records.open_learner_logger()

  @property
  def training_state(self) -> types.TrainingState:
    """The learner's state."""
    return self._state.training

  def snapshot(self) -> loop.LoopState:
    """Returns all that changes."""
    return self._state

  def train(self) -> Iterator[loop.Report]:
    """Calls the compiled loop until all steps are taken."""
    records = self._records
    if records.done:
      return
    call = compilation.compile_call(
      self._call, self._state, self._experiment.name
    )
    with records.training() as show:
      while not records.done:
        self._state, report = call(self._state)
        self._record(jax.device_get(report))
        show()
        records.save_if_due(self.snapshot)
        yield report

  def evaluate(self, num_episodes: int) -> None:
    """Runs and logs at least `num_episodes` episodes of the newest policy."""
    num_environments = min(num_episodes, self._experiment.num_environments)
    quota = -(-num_episodes // num_environments)
    start, play = self._make_evaluation(num_environments)
    steps_key = jax.random.fold_in(self._key, self._records.counts.actor_steps)
    state = start(jax.random.fold_in(steps_key, _EVALUATION))
    variables = types.actor_variables(self._state.training)
    gathered = []
    num_ended = np.zeros(num_environments, np.int64)
    while (num_ended < quota).any():
      state, episodes = play(variables, state)
      gathered.append(jax.device_get(episodes))
      num_ended += gathered[-1].ended.sum(axis=0)
    episodes = jax.tree.map(lambda *x: np.concatenate(x), *gathered)
    # The first ones of each environment, or short ones would be favoured.
    counted = episodes.ended & (episodes.ended.cumsum(axis=0) <= quota)
    self._evaluation_logger.write(
      self._records.evaluation_row(
        _sum_events(episodes.returns[counted]), episodes.lengths[counted]
      )
    )

  @functools.cached_property
  def _evaluation_logger(self):
    return self._records.open_logger('evaluation')

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluation(self, num_environments):
    """Returns what starts the environments, and what acts for T steps."""
    parts = self._parts
    environment = functional.vectorize(parts.environment, num_environments)
    actor = parts.evaluation_actor

    def start(key):
      environment_key, actor_key = jax.random.split(key)
      return rollout.start(
        *environment.reset(environment_key),
        actor.init(actor_key, num_environments),
      )

    def play(variables, state):
      state, _, episodes = rollout.rollout(
        environment.step,
        actor.select_action,
        variables,
        state,
        parts.sizes.sequence_length,
      )
      return state, episodes

    return jax.jit(start), jax.jit(play, donate_argnums=1)

  def _record(self, report):
    """Counts and logs what came of a call, and looks for bad gradients."""
    episodes, records = report.episodes, self._records
    returns = _sum_events(episodes.returns[episodes.ended])
    num_updates = report.skipped_in_a_row.size
    records.advance(
      int(episodes.moved.sum()),
      returns[np.isfinite(returns)].tolist(),
      records.counts.learner_steps + num_updates,
    )
    self._check_rewards(episodes.returns)
    if len(returns):
      self._train_logger.write(
        {**self._describe(episodes), **records.counts._asdict()}
      )
    self._learner_logger.write(
      {
        **{name: np.mean(leaf) for name, leaf in report.metrics.items()},
        'skipped_updates': int(self._state.training.skipped),
        'learner_steps': records.counts.learner_steps,
      }
    )
    faults.check_skipped(
      int(report.skipped_in_a_row.max()), self._parts.max_skipped_updates
    )

  def _check_rewards(self, returns: np.ndarray) -> None:
    """Raises an InvalidTimestepError if a reward was not finite."""
    bad = returns[~np.isfinite(returns)]
    if bad.size:
      raise validation.InvalidTimestepError(
        f'reward of environment {self._experiment.name!r} ({bad[0]}, or summing'
        f' up to it) must be finite, and in {bad.size} of {returns.size} steps'
        ' the return so far was not; mend the environment.'
      )

  def _describe(self, episodes: rollout.Episodes) -> dict[str, Any]:
    """Returns means over the episodes that ended."""
    returns = np.asarray(episodes.returns)[episodes.ended]
    row: dict[str, Any] = {
      'episode_return': np.mean(_sum_events(returns)),
      'episode_length': np.mean(episodes.lengths[episodes.ended]),
      'num_episodes': len(returns),
    }
    if returns.ndim > 1:
      weights = np.asarray(self._state.training.internal_rewards)
      row['own_return'] = np.mean(returns @ weights)
      row['event_returns'] = np.mean(returns, axis=0)
    return row


def _sum_events(returns: np.ndarray) -> np.ndarray:
  """Returns [n] of returns [n] or [n, num_events], as the local runtime."""
  return returns.sum(axis=tuple(range(1, returns.ndim)))
