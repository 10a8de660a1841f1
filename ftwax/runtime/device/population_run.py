"""Runs a population on the device: rounds, evolution between them, records.

Beside what every run leaves there are `lineage.jsonl`, a log of the population
and `report.html`. As in a run of one agent all that changes is one pytree, and
a resumed run goes on bit for bit.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import auxiliary, faults
from ftwax.environments import functional
from ftwax.networks import recurrent
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs, sharding
from ftwax.runtime.device import compilation, experiment_checks, placement
from ftwax.runtime.device import population as population_lib
from ftwax.runtime.host import generations as population_records


def run_population(
  experiment: experiment_lib.PopulationExperimentConfig,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
) -> runs.RunResult:
  """Trains a population until all steps are taken, in whole rounds.

  Args:
    experiment: what to run.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint, on any number of devices.
    devices: over which members and games are spread; JAX's first one by
      default.

  Returns:
    What the run came to; its state is that of all members [N, ...].

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    NonFiniteGradientError: a member skipped too many updates in a row.
    RunDirectoryError: the directory is in use, or of another config.
    TypeError: the game is none that can be compiled.
    ValueError: sizes do not fit.
  """
  experiment_checks.check_not_traced()
  parts = _Parts(experiment, sharding.make_mesh(devices))
  result = runs.execute(
    functools.partial(_Run, parts), experiment, None, 0, run_dir, resume
  )
  population_records.write_report(
    experiment, result.run_dir, parts.game.event_names
  )
  return result


class _Parts:
  """What an experiment is made of; nothing here changes."""

  def __init__(
    self,
    experiment: experiment_lib.PopulationExperimentConfig,
    mesh: jax.sharding.Mesh,
  ):
    """Makes and checks the parts."""
    builder = experiment.builder
    assert experiment.population is not None  # Checked by the experiment.
    self.config = experiment.population
    sharding.check_divides(
      mesh,
      num_members=self.config.num_members,
      num_environments=experiment.num_environments,
    )
    self.shardings = placement.of_population(mesh)
    self.game: functional.FunctionalGame = experiment_checks.check_game(
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
      has_convolutions=recurrent.has_convolutions(network),
      num_games=experiment.num_environments,
      num_iterations=-(-experiment.steps_per_round // steps_per_iteration),
    )
    self.max_skipped_updates = builder.config.max_skipped_updates


class _Run:
  """A run under way."""

  def __init__(
    self,
    parts: _Parts,
    experiment: experiment_lib.PopulationExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the first population, or restores one."""
    del stack  # Nothing here must be closed.
    self._parts = parts
    self._experiment = experiment
    self._records = records
    self._evolution = population_records.Evolution(
      experiment, parts.game.spec, records.directory
    )
    key = jax.random.PRNGKey(experiment.seed)
    if resume:
      state = records.restore(jax.eval_shape(parts.loop.init, key))
      self._evolution.resume(state.population)
    else:
      state = jax.jit(parts.loop.init)(key)
      self._evolution.begin(state.population)
    self._state = jax.device_put(state, parts.shardings)
    self._loggers = {
      label: records.open_logger(label) for label in population_records.LABELS
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
    played = population_records.Round(
      np.asarray(report.num_episodes),
      returns.reshape(len(returns), -1),
      np.asarray(report.lengths),
    )
    mean = played.mean_return
    records.advance(
      int(np.sum(report.num_steps)),
      [mean] * played.total if np.isfinite(mean) else [],
      records.counts.learner_steps + int(np.sum(report.num_updates)),
    )
    for label, row in population_records.log_rows(
      self._state.population, played, records.counts
    ):
      self._loggers[label].write(row)
    self._learner_logger.write(
      {**report.metrics, 'learner_steps': records.counts.learner_steps}
    )
    faults.check_skipped(
      int(np.max(report.skipped_in_a_row)), self._parts.max_skipped_updates
    )

  def _next_generation(self) -> None:
    """Evolves the population, whose members stay where they lie."""
    population = self._evolution.evolve(self._state.population)
    self._state = self._state._replace(
      population=jax.device_put(population, self._parts.shardings.population)
    )
