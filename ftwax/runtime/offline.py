"""Runs an experiment that learns from recorded games alone.

Members are updated as in other runs, each on sequences of its own draws from
one copy of the games. No training environment takes a step. Evaluations play
in compiled games, or in games that Python steps. A step of the run is a
recorded step that an update draws, so that schedules and periods mean what they
mean elsewhere.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import compilation, types
from ftwax.agents.actor_critic import faults, learning
from ftwax.population import state as state_lib
from ftwax.reporting import history
from ftwax.runtime import (
  evaluation,
  generations,
  prepare,
  recorded,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime.device import evaluations as device_evaluations
from ftwax.runtime.local import evaluations as local_evaluations
from ftwax.runtime.local import learning as local_learning

# Steps of a call on an accelerator, where the host's work between two updates
# would be most of their time. On a CPU, gradients of convolutions are slow in
# a loop.
_STEPS_PER_CALL = 65_536
_MAX_SHARE = 0.01

# Distinguishes seeds of evaluations, as in `local.run`.
_EVALUATION = 1


def prepare_run(
  parts: prepare.Prepared,
  devices: Sequence[jax.Device] | None,
  is_compiled: bool,
) -> runs.MakeRun:
  """Checks devices; returns the function that makes a run.

  Args:
    parts: an agent or a population, and recorded games.
    devices: devices that share the members or, with a single member, its
      batches; by default the first JAX device.
    is_compiled: whether evaluations are compiled.

  Raises:
    ValueError: if members and devices are inconsistent, or environments are in
      Python and cannot be compiled.
  """
  if is_compiled and parts.evaluation_game is None:
    raise ValueError(
      "runtime ('device') must have an environment in JAX for its evaluations,"
      " and it is in Python; choose runtime='local'."
    )
  mesh = sharding.make_mesh(devices)
  local_learning.check_devices(
    mesh,
    parts.experiment.population.num_members,
    parts.experiment.agent.batch_size,
  )
  return functools.partial(_Run, mesh, is_compiled)


class _Run:
  """A run in progress; see `runs.Run`."""

  gives_state_away = False

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    is_compiled: bool,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes or restores the members, and reads the games."""
    self._parts = parts
    self._experiment = parts.experiment
    self._records = records
    del stack  # Nothing is to be closed.
    agent, num_members = self._experiment.agent, self._num_members
    self._steps_per_update = (
      num_members * agent.batch_size * agent.sequence_length
    )
    whole = sharding.replicated(mesh)
    core, self._sharding = parts.learner, whole
    if mesh.size > 1 and num_members > 1:
      self._sharding = sharding.spread(mesh)
    elif mesh.size > 1:
      core = sharding.place_learner_core(mesh, core)
    self._sources = jax.device_put(recorded.load(parts), whole)
    members_key, population_key = jax.random.split(parts.key)
    init = compilation.jit_unoptimized(jax.vmap(core.init))
    members = init(jax.random.split(members_key, num_members))
    _, population = generations.start(
      parts, records, members, population_key, resume
    )
    self._population = population._replace(
      members=jax.device_put(population.members, self._sharding)
    )
    self._update = self._make_update(core, mesh)
    self._evaluate = self._make_evaluate(is_compiled, mesh)
    self._learner_logger = records.open_logger(
      'learner', 'learner_steps', rarely=True
    )
    self._population_logger = records.open_logger(history.LABEL)

  @property
  def training_state(self) -> types.TrainingState:
    """The members, leaves [N, ...]."""
    return self._population.members

  def snapshot(self) -> run_records.RunState:
    """Returns the state after the last call."""
    return run_records.RunState(self._population)

  def train(self) -> Iterator[None]:
    """Updates members until all steps are drawn."""
    records = self._records
    if records.done:
      return
    self._log_population()
    print(
      f'{self._experiment.name}: compiling in the first update...', flush=True
    )
    with records.training() as show:
      while not records.done:
        members, metrics, skipped = self._update(
          self._population.members, self._sources
        )
        self._population = self._population._replace(members=members)
        self._record(jax.device_get(metrics))
        faults.check_skipped(
          int(skipped), self._experiment.agent.max_skipped_updates
        )
        if records.done:
          self._log_population()
        records.save_if_due(self.snapshot)
        show()
        yield

  def evaluate(self, num_episodes: int) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member."""
    return self._evaluate(num_episodes)

  @property
  def _num_members(self) -> int:
    return self._experiment.population.num_members

  @property
  def _num_updates(self) -> int:
    """Updates of a call."""
    if jax.default_backend() == 'cpu':
      return 1
    most = int(_MAX_SHARE * self._experiment.max_num_actor_steps)
    return max(1, min(_STEPS_PER_CALL, most) // self._steps_per_update)

  def _record(self, metrics: types.Metrics) -> None:
    """Counts and logs a call."""
    records, num_updates = self._records, self._num_updates
    learner_steps = records.counts.learner_steps + num_updates
    records.advance(self._steps_per_update * num_updates, [], learner_steps)
    row = dict(metrics)
    if self._num_members == 1:
      row = {name: leaf[0] for name, leaf in row.items()}
    self._learner_logger.write({**row, 'learner_steps': learner_steps})

  def _log_population(self) -> None:
    """Logs the members, without games, of which a report has their values."""
    self._population_logger.write(
      {
        **state_lib.log_values(self._population),
        **self._records.counts._asdict(),
      }
    )

  def _make_update(
    self, core: types.LearnerCore, mesh: jax.sharding.Mesh
  ) -> Any:
    """Returns the function that does the updates of a call."""
    batch_size = self._experiment.agent.batch_size

    def update(
      members: types.TrainingState, sources: types.Sources
    ) -> tuple[types.TrainingState, types.Metrics, types.Array]:
      members, (metrics, skipped) = sharding.over_members(
        lambda member: learning.learn_offline(
          core, self._num_updates, member, sources, batch_size
        ),
        self._num_members,
        in_axes=(0,),
        out_axes=(0, 1),
        in_turn=sharding.takes_turns(),
        mesh=mesh,
      )(members)
      means = {name: jnp.mean(leaf, 0) for name, leaf in metrics.items()}
      return members, means, jnp.max(skipped)

    shardings = (self._sharding, None, None) if mesh.size > 1 else None
    return compilation.jit(update, out_shardings=shardings)

  def _make_evaluate(self, is_compiled: bool, mesh: jax.sharding.Mesh) -> Any:
    """Returns the function that evaluates all members."""
    if is_compiled:
      games = device_evaluations.Evaluator(self._parts, mesh)
      return lambda num_episodes: games.play(
        self._variables, num_episodes, self._records.counts.actor_steps, {}
      )

    def play(num_episodes: int) -> evaluation.Outcome:
      # Anew each time, so that a resumed run repeats what it would have played.
      entropy = _EVALUATION, self._records.counts.actor_steps
      with contextlib.closing(
        local_evaluations.Evaluator(self._parts, num_episodes, entropy)
      ) as evaluator:
        return evaluator.run(self._variables)

    return play

  @property
  def _variables(self) -> types.ActorVariables:
    return types.actor_variables(self._population.members)
