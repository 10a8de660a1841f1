"""Runs a population on the device: rounds, evolution between them, records.

Beside what every run leaves there are `lineage.jsonl`, a log of the population
and `report.html`. As in a run of one agent all that changes is one pytree, and
a resumed run goes on bit for bit.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator

import jax
import numpy as np

from ftwax import internal_rewards, types
from ftwax.agents.actor_critic import auxiliary, faults, tasks
from ftwax.environments import functional
from ftwax.population import evolution, lineage
from ftwax.population import state as state_lib
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs
from ftwax.runtime.device import checks, compilation
from ftwax.runtime.device import population as population_lib


def run_population(
  experiment: experiment_lib.PopulationExperimentConfig,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
) -> runs.RunResult:
  """Trains a population until all steps are taken, in whole rounds.

  Args:
    experiment: what to run.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint.

  Returns:
    What the run came to; its state is that of all members [N, ...].

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    NonFiniteGradientError: a member skipped too many updates in a row.
    RunDirectoryError: the directory is in use, or of another config.
    TypeError: the game is none that can be compiled.
    ValueError: sizes do not fit.
  """
  checks.check_not_traced()
  parts = _Parts(experiment)
  result = runs.execute(
    functools.partial(_Run, parts), experiment, None, 0, run_dir, resume
  )
  from ftwax.reporting import report  # Matplotlib: not before --help.

  report.make_report(
    result.run_dir,
    report.ReportOptions(
      title=experiment.name, event_names=parts.game.event_names
    ),
  )
  return result


class _Parts:
  """What an experiment is made of; nothing here changes."""

  def __init__(self, experiment: experiment_lib.PopulationExperimentConfig):
    """Makes and checks the parts."""
    builder = experiment.builder
    assert experiment.population is not None  # Checked by the experiment.
    self.config = experiment.population
    self.game: functional.FunctionalGame = checks.check_game(
      experiment.environment_factory(experiment.seed)
    )
    network = experiment.network_factory(self.game.spec)
    steps_per_iteration = builder.config.sequence_length
    self.loop = population_lib.make_population_loop(
      self.game,
      builder.make_policy(network, self.game.spec),
      builder.make_learner_core(network, self.game.spec),
      self.config,
      builder.config,
      sources=auxiliary.sources(builder.auxiliary_tasks),
      has_convolutions=tasks.has_convolutions(builder.auxiliary_tasks),
      num_games=experiment.num_environments,
      num_iterations=-(-experiment.steps_per_round // steps_per_iteration),
    )
    self.priors = evolution.Traits(
      builder.config.priors,
      builder.config.make_internal_rewards_prior(
        internal_rewards.num_events(self.game.spec.rewards)
      ),
    )
    self.max_skipped_updates = builder.config.max_skipped_updates


class _Run:
  """A run under way."""

  def __init__(
    self,
    parts: _Parts,
    experiment: experiment_lib.PopulationExperimentConfig,
    records: runs.Records,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the first population, or restores one."""
    del stack  # Nothing here must be closed.
    self._parts = parts
    self._experiment = experiment
    self._records = records
    self._lineage = records.directory / history.LINEAGE_FILE
    key = jax.random.PRNGKey(experiment.seed)
    if resume:
      self._state = records.restore(jax.eval_shape(parts.loop.init, key))
      population = self._state.population
      if self._lineage.exists():
        lineage.drop_after(self._lineage, int(population.generation))
    else:
      self._state = jax.jit(parts.loop.init)(key)
      lineage.append(self._lineage, [lineage.birth_row(self._state.population)])
    self._evolve = jax.jit(
      functools.partial(
        evolution.evolve,
        priors=parts.priors,
        config=parts.config,
        select=experiment.select,
        explore=experiment.explore,
      )
    )
    self._loggers = {
      label: records.open_logger(label) for label in ('train', history.LABEL)
    }
    self._learner_logger = records.open_learner_logger()

  @property
  def training_state(self) -> types.TrainingState:
    """The learners' states [N, ...]."""
    return self._state.training

  def snapshot(self) -> population_lib.PopulationLoopState:
    """Returns all that changes."""
    return self._state

  def evaluate(self, num_episodes: int) -> None:
    """Does nothing: members are rated by the games that they play."""
    del num_episodes

  def train(self) -> Iterator[population_lib.RoundReport]:
    """Plays rounds until all steps are taken, and evolves after each."""
    records = self._records
    if records.done:
      return
    play = compilation.compile_call(
      self._parts.loop.round, self._state, self._experiment.name
    )
    with records.training() as show:
      while not records.done:
        self._state, report = play(self._state)
        self._record(jax.device_get(report))
        self._next_generation()
        show()
        records.save_if_due(self.snapshot)
        yield report

  def _record(self, report: population_lib.RoundReport) -> None:
    """Counts and logs what came of a round, and looks for bad gradients."""
    records = self._records
    returns = np.asarray(report.returns)  # [N] or [N, num_events]
    events = returns.reshape(len(returns), -1)
    num_episodes = np.asarray(report.num_episodes)
    total = int(num_episodes.sum())
    mean = float(events.sum(axis=1) @ num_episodes / max(total, 1))
    records.advance(
      int(np.sum(report.num_steps)),
      [mean] * total if np.isfinite(mean) else [],
      records.counts.learner_steps + int(np.sum(report.num_updates)),
    )
    counts = records.counts._asdict()
    if total:
      self._loggers['train'].write(
        {
          'episode_return': mean,
          'episode_length': np.mean(report.lengths),
          'num_episodes': total,
          **counts,
        }
      )
    weights = np.asarray(self._state.training.internal_rewards)
    self._loggers[history.LABEL].write(
      {
        **state_lib.log_values(self._state.population),
        'own_returns': (events * weights).sum(axis=1),
        'event_rates': events,
        **counts,
      }
    )
    self._learner_logger.write(
      {**report.metrics, 'learner_steps': counts['learner_steps']}
    )
    faults.check_skipped(
      int(np.max(report.skipped_in_a_row)), self._parts.max_skipped_updates
    )

  def _next_generation(self) -> None:
    """Evolves the population and writes down who copied whom."""
    population = self._state.population
    key, evolve_key = jax.random.split(population.key)
    population, generation = self._evolve(
      evolve_key, population._replace(key=key)
    )
    self._state = self._state._replace(population=population)
    reason = getattr(self._experiment.select, '__name__', 'selection')
    lineage.append(
      self._lineage, lineage.rows(jax.device_get(generation), reason)
    )
