"""The learner's node of a population, which also coordinates it.

It has all members, holds ratings, seats members at games and has them evolve
between updates, so that one checkpoint tells it all.
"""

import contextlib
import functools
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.population import seating
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, log_values
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import actor_loop, learner_node, processes
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import coordinator as coordinator_lib
from ftwax.runtime.host import generations as records_lib


class PopulationLearner(learner_node.Learner):
  """Learns for all members; arenas call it by courier."""

  def __init__(self, *args: Any):
    """Prepares a population, which `run` makes; see `learner.Learner`."""
    super().__init__(*args)
    self._replies = processes.Replies()

  def draw_seats(self) -> list[list[int]] | None:
    """Returns the member on each seat of an arena; None if not ready yet."""
    population = self._learner
    return None if population is None else population.draw_seats().tolist()

  def report_results(
    self,
    ticket: Sequence[Any],
    results: Sequence[Sequence[Any]],
    ends_round: bool,
  ) -> bool:
    """Records how games ended.

    Args:
      ticket: of the call; see `processes.Replies`.
      results: fields of `arena.Result`.
      ends_round: whether a round of the arena is over.

    Returns:
      Whether they were recorded; not before there is a learner.
    """
    population = self._learner
    if population is None:
      return False
    made = [make_result(fields) for fields in results]
    self._replies.answer(
      ticket, functools.partial(population.record, made, ends_round)
    )
    return True

  def _make(self, stack: contextlib.ExitStack) -> checkpoints.Checkpointer:
    checkpointer = super()._make(stack)
    if not checkpointer.steps():
      self._learner.begin()
    return checkpointer

  def _learn(self, checkpointer: checkpoints.Checkpointer) -> None:
    super()._learn(checkpointer)
    self._end_round()  # What came in since the last one.

  def _make_learner(self, stack: contextlib.ExitStack) -> Any:
    """Makes the population, in the place of one agent's learner."""
    from ftwax.runtime.host import members

    experiment: Any = self._experiment
    spec = experiment.environment_spec
    network = experiment.network_factory(spec)
    builder = actor_loop.with_timeout(experiment.builder, learner_node.POLL_S)
    policy = builder.make_policy(network, spec)
    batches = members.Batches(
      [
        builder.make_dataset_iterator(
          processes.connect_to_replay(address, self._settings.replay_start_s),
          spec,
          policy,
        )
        for address in self._replay_addresses
      ]
    )
    stack.callback(batches.close)
    key, population_key = jax.random.split(jax.random.PRNGKey(experiment.seed))
    made = members.make_learner(
      builder,
      key,
      network,
      spec,
      experiment.population.num_members,
      self._take_over(batches),
      self._make_logger,
    )
    return _Population(
      experiment,
      made,
      population_key,
      records_lib.Evolution(experiment, spec, self._directory),
      self._end_round,
    )

  def _end_round(self) -> None:
    """Has members evolve; rows of episodes are the arenas'."""
    counts = run_records.Counts(**self._status['counts'])
    for label, row in self._learner.end_round(counts):
      if label == history.LABEL:
        self._rows.append((label, log_values.to_plain(row)))


class _Population:
  """A learner of all members together with what coordinates them.

  Members change between updates alone, in the thread that learns; results come
  in at any time.
  """

  def __init__(self, experiment, made, key, evolution, end_round):
    self._experiment = experiment
    self._learner = made
    self._evolution = evolution
    self._end_round = end_round
    self._lock = threading.Lock()
    self._is_round_over = False
    self._game = arena_lib.read_spec(experiment)
    self._start(state_lib.from_members(made.state, key, experiment.population))

  @property
  def state(self) -> types.TrainingState:
    """The learners' states [N, ...]."""
    return self._learner.state

  @property
  def num_steps(self) -> int:
    """Updates done."""
    return self._learner.num_steps

  def begin(self) -> None:
    """Begins the lineage."""
    self._evolution.begin(self.save())

  def save(self) -> state_lib.PopulationState:
    """Returns the population."""
    with self._lock:
      return self._coordinator.population(self._learner.save())

  def restore(self, population: state_lib.PopulationState) -> None:
    """Goes on from a population."""
    self._learner.restore(population.members)
    self._evolution.resume(population)
    with self._lock:
      self._start(population)

  def step(self) -> None:
    """Does an update of all members, who evolve after rounds."""
    self._learner.step()
    if self._is_round_over:
      self._end_round()

  def end_round(
    self, counts: run_records.Counts
  ) -> list[tuple[str, dict[str, Any]]]:
    """Has members evolve; see `Coordinator.end_round`."""
    with self._lock:
      self._is_round_over = False
      return self._coordinator.end_round(self._evolution, self._learner, counts)

  def draw_seats(self) -> np.ndarray:
    """Returns the member on each seat, int32 [G, P]."""
    with self._lock:
      return self._coordinator.draw_seats()

  def record(
    self, results: Sequence[arena_lib.Result], ends_round: bool
  ) -> None:
    """Records how games ended."""
    with self._lock:
      self._coordinator.record(results, self._learner.state.internal_rewards)
      self._is_round_over |= ends_round

  def _start(self, population):
    self._coordinator = coordinator_lib.Coordinator(
      population, self._experiment, self._game
    )


def check(
  experiment: experiment_lib.PopulationExperimentConfig,
  eval_every: int | None,
  settings: settings_lib.Settings,
) -> None:
  """Raises a ValueError for what a population cannot do."""
  config: Any = experiment.population
  records_lib.check_no_evaluation(eval_every)
  seating.check_teams(arena_lib.read_spec(experiment).teams, config)
  arena_lib.count_seats(experiment)
  for name, allowed in (('inference_server', False), ('num_devices', 1)):
    value = getattr(settings, name)
    if value != allowed:
      raise ValueError(
        f'{name} ({value}) must be {allowed} for a population; leave it out.'
      )


def write_report(
  experiment: experiment_lib.PopulationExperimentConfig,
  directory: pathlib.Path,
) -> None:
  """Writes the report of a run that has ended."""
  records_lib.write_report(
    experiment, directory, arena_lib.read_spec(experiment).event_names
  )


def make_result(fields: Sequence[Any]) -> arena_lib.Result:
  """Returns what came by courier as it was sent."""
  place, seats, outcome, returns, length = fields
  return arena_lib.Result(
    int(place),
    np.asarray(seats, np.int32),
    np.asarray(outcome, np.float32),
    np.asarray(returns, np.float32),
    int(length),
  )


def make_template(
  experiment: experiment_lib.PopulationExperimentConfig,
) -> state_lib.PopulationState:
  """Returns the shapes of the population that a checkpoint holds."""
  config: Any = experiment.population
  spec: Any = experiment.environment_spec
  core = experiment.builder.make_learner_core(
    experiment.network_factory(spec), spec
  )
  return jax.eval_shape(
    lambda key: state_lib.init(key, core.init, config), jax.random.PRNGKey(0)
  )
