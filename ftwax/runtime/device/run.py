"""Runs an experiment on the device: JAX environments, no replay server.

The host only evolves, counts, logs and saves, between calls of the compiled
loop (see `loop`). All mutable state is one pytree, so a resumed run continues
bit for bit, even in the middle of episodes.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from ftwax import compilation, types
from ftwax.agents.actor_critic import faults
from ftwax.environments import environment_faults, functional, validation
from ftwax.population import seating as seating_lib
from ftwax.runtime import (
  evaluation,
  generations,
  prepare,
  recorded,
  rounds,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime.device import (
  evaluations,
  freed_memory,
  loop,
  placement,
  rollout,
  train,
)
from ftwax.runtime.device import sizes as sizes_lib


def prepare_run(
  parts: prepare.Prepared, devices: Sequence[jax.Device] | None
) -> runs.MakeRun:
  """Checks sizes and devices; returns the function that makes a run.

  A run ends after the call that takes its last step. Evaluations run between
  calls. A resumed run may have any number of devices.

  Args:
    parts: an agent or a population, and a JAX environment or game.
    devices: devices that share the work: members with their games, or the
      environments and batches of a single agent. Defaults to the first JAX
      device.

  Raises:
    TypeError: if the environment cannot be compiled.
    ValueError: if sizes or options are inconsistent.
  """
  freed_memory.keep(1 if devices is None else len(devices))
  if isinstance(jnp.zeros(()), jax.core.Tracer):
    raise RuntimeError(
      'run_experiment must not be called inside a function that JAX traces, but'
      ' was; call it from plain Python, or use ftwax.make_train there.'
    )
  observers = list(parts.experiment.observers)
  if any(observer.sees_steps for observer in observers):
    raise ValueError(
      f'observers ({observers!r}) must not observe steps with'
      " runtime='device', which hides them; choose runtime='local'."
    )
  compiled = _Compiled(parts, sharding.make_mesh(devices))
  return functools.partial(_Run, compiled)


class _Compiled:
  """The parts of a run that are compiled, and their sizes."""

  def __init__(self, parts: prepare.Prepared, mesh: jax.sharding.Mesh):
    """Makes the functions of a run; checks that sizes and devices fit."""
    self.mesh = mesh
    made = dataclasses.replace(
      train.make_loop(parts), in_turn=sharding.takes_turns()
    )
    sizes = made.sizes
    placement.check_sizes(mesh, sizes, parts.experiment.num_environments)
    assert parts.game is not None  # See `train.make_loop`.
    self.loop = placement.spread(mesh, made, parts.game)
    self.iterations_per_round = sizes.iterations_per_round(
      parts.experiment.steps_per_round
    )
    self.iterations_per_call = sizes.iterations_per_call(
      self.iterations_per_round, parts.experiment.max_num_actor_steps
    )
    self.shardings = placement.of_loop(mesh, self.loop.arena.seating)
    asked = parts.experiment.max_num_actor_steps
    if sizes.steps_per_iteration > sizes_lib.MAX_OVERSHOOT * asked:
      logging.warning(
        'max_num_actor_steps (%s) is few for iterations of %s steps, the last'
        ' of which may take the run beyond them; lower num_environments or'
        ' sequence_length.',
        f'{asked:,}',
        f'{sizes.steps_per_iteration:,}',
      )


class _Run:
  """A run in progress; see `runs.Run`."""

  gives_state_away = True

  def __init__(
    self,
    compiled: _Compiled,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes or restores the initial state."""
    self._compiled = compiled
    self._compiling = contextlib.ExitStack()
    self._compiling.enter_context(
      compilation.shown(f'{parts.experiment.name}: compiling')
    )
    stack.callback(self._compiling.close)
    self._parts = parts
    self._experiment = parts.experiment
    self._records = records
    self._evolution = generations.Evolution(parts, records.directory)
    self._rounds = rounds.Rounds(parts, records, self._evolution)
    self._start: Any = compilation.jit_unoptimized(
      compiled.loop.start, donate_argnums=0, out_shardings=compiled.shardings
    )
    if resume:
      template = jax.eval_shape(compiled.loop.init, parts.key)
      state = records.restore(self._without_replay(template))
      if not parts.replays.is_saved:
        # Empty, with other draws than those of the run's start.
        key = jax.random.fold_in(parts.key, records.counts.actor_steps)
        replay = compilation.jit_unoptimized(compiled.loop.init_replay)(key)
        state = state._replace(replay=replay)
      self._evolution.resume(state.population)
      if _fits(state, compiled.loop.arena.seating):
        state = jax.device_put(state, compiled.shardings)
      else:
        logging.warning(
          'Games begin anew, since those of the checkpoint cannot be divided'
          ' among %s devices.',
          compiled.mesh.size,
        )
        state = self._start_games(state)
    else:
      init = compilation.jit_unoptimized(compiled.loop.init_members)
      state = init(parts.key)
      population = self._evolution.begin(state.population)
      state = self._start_games(state._replace(population=population))
    self._state: loop.LoopState = state
    self._sources = jax.device_put(
      recorded.load(parts),
      sharding.replicated(compiled.mesh),
    )
    self._evaluator = evaluations.Evaluator(parts, compiled.mesh)
    self._is_faulty = False
    self._num_iterations = int(self._state.totals.num_iterations)
    self._learner_logger = records.open_logger(
      'learner', 'learner_steps', rarely=True
    )

  @property
  def training_state(self) -> types.TrainingState:
    """The learners' states, leaves [N, ...]."""
    return self._state.training

  def snapshot(self) -> loop.LoopState:
    """Returns the mutable state, without a replay that is not to be saved.

    Raises:
      RuntimeError: after a fault, which is in that state.
    """
    if self._is_faulty:
      raise RuntimeError(
        'it is that after the fault, which it would repeat; older ones are kept'
      )
    return self._without_replay(self._state)

  def _without_replay(self, state: loop.LoopState) -> loop.LoopState:
    """Returns the part of a state that checkpoints hold."""
    if self._parts.replays.is_saved:
      return state
    nothing: Any = ()
    return state._replace(replay=nothing)

  def train(self) -> Iterator[loop.Report]:
    """Calls the compiled loop until all steps are taken."""
    records, compiled = self._records, self._compiled
    if not records.done:
      self._compile()
    self._compiling.close()
    if records.done:
      return
    with records.training() as show:
      while not records.done:
        report = self._call()
        before = self._records.course.values
        self._record(report)
        if self._records.course.values != before:
          self._set_parameters()
        is_over = self._num_iterations >= compiled.iterations_per_round
        if is_over or records.done:
          self._begin_next_round()
        show()
        # The next call consumes the state, so an interrupt needs a copy of it.
        records.save_if_due(self.snapshot, keep_copies=True)
        yield report

  def _compile(self) -> None:
    """Compiles what a round calls, ahead of time.

    The functions donate the state, which must not be used afterwards.
    """
    state, loop = self._state, self._compiled.loop
    # A donated buffer can be reused only if the output has its sharding, and
    # the next call accepts only the shardings it was compiled for.
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    call = compilation.jit(
      functools.partial(loop.call, self._compiled.iterations_per_call),
      donate_argnums=0,
      out_shardings=(shardings, None),
    )
    self._call_loop = call.lower(state, self._sources).compile()
    self._evolution.compile(state.population)

  def _start_games(self, state: loop.LoopState) -> loop.LoopState:
    """Starts the games of a round, of the first as of all others."""
    nothing: Any = ()
    shardings = self._compiled.shardings._replace(rollout=nothing)
    bare = jax.device_put(state._replace(rollout=nothing), shardings)
    return self._start(bare, self._parameters)

  @property
  def _parameters(self) -> dict[str, Any]:
    """The parameters of games, float32 [] by name; see `curricula`."""
    values = self._records.course.values
    return {name: np.float32(value) for name, value in values.items()}

  def _set_parameters(self) -> None:
    """Gives the next episodes the present parameters."""
    state = self._state
    arena = state.rollout.environment
    games = functional.set_parameters(arena.games, self._records.course.values)
    arena = arena._replace(games=games)
    self._state = state._replace(
      rollout=state.rollout._replace(environment=arena)
    )

  def _call(self) -> loop.Report:
    """Calls the compiled loop, which consumes the state even if it fails."""
    try:
      self._state, report = self._call_loop(self._state, self._sources)
      self._num_iterations += self._compiled.iterations_per_call
      # Dispatch is asynchronous: errors of the call are raised here.
      return jax.device_get(report)
    except jax.errors.JaxRuntimeError as error:
      if 'callback' not in str(error):  # Out of memory, for example.
        raise
      environment_faults.fail(self._experiment.name, 'a callback', error)

  def evaluate(self, num_episodes: int) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member."""
    return self._evaluator.play(
      types.actor_variables(self._state.training),
      num_episodes,
      self._records.counts.actor_steps,
      self._parameters,
    )

  def _begin_next_round(self) -> None:
    """Logs the finished round and evolves the population."""
    state = self._state
    evolved, _ = self._rounds.end(state.population, state.totals)
    state = state._replace(population=evolved)
    if self._parts.seating.is_solo:
      state = state._replace(totals=self._compiled.loop.start_totals())
      # Evolution may return other shardings; keep members on their devices.
      self._state = jax.device_put(state, self._compiled.shardings)
    else:
      self._state = self._start_games(state)
    self._num_iterations = 0

  def _record(self, report: loop.Report) -> None:
    """Counts and logs one call; checks rewards and gradients."""
    # What a fault leaves in games would fail again after a resumption.
    self._is_faulty = True
    records = self._records
    num_members = self._experiment.population.num_members
    skipped = report.skipped_in_a_row  # [K, U, N]
    num_updates = skipped.size // num_members
    self._rounds.record(
      report.episodes,
      records.counts.learner_steps + num_updates,
      _read_metrics(report.episodes.results),
    )
    self._check_timesteps(report.episodes)
    self._is_faulty = False
    metrics = {
      name: np.mean(leaf, axis=(0, 1)) for name, leaf in report.metrics.items()
    }
    metrics['skipped_updates'] = np.asarray(self._state.training.skipped)
    if num_members == 1:
      metrics = {name: leaf[0] for name, leaf in metrics.items()}
    self._learner_logger.write(
      {**metrics, 'learner_steps': records.counts.learner_steps}
    )
    faults.check_skipped(
      int(skipped.max()), self._experiment.agent.max_skipped_updates
    )

  def _check_timesteps(self, episodes: rollout.Episodes) -> None:
    """Raises an InvalidTimestepError if a timestep violated a demand."""
    faults = np.asarray(episodes.faults)
    is_off = faults.reshape(-1, faults.shape[-1]).max(axis=0)
    fields = validation.make_fields(self._parts.spec.environment)
    demands = [(field, one) for field in fields for one in field.demands]
    for (field, demand), off in zip(demands, is_off, strict=True):
      if off:
        value = f'in one of the last {episodes.moved.size} steps'
        name = self._experiment.name
        validation.fail(name, field.name, value, *demand[:2])
    if not np.isfinite(self._state.population.ratings).all():
      validation.fail(
        self._experiment.name,
        'outcome',
        f'of a game that ended in one of the last {episodes.moved.size} steps',
        'be a finite score for each team',
        'compare scores by their signs',
      )
    returns = np.asarray(episodes.returns)
    bad = returns[~np.isfinite(returns)]
    if bad.size:
      validation.fail(
        self._experiment.name,
        'reward',
        f'summing up to {bad[0]}',
        'have a finite sum over an episode',
        'make rewards smaller',
      )


def _fits(state: loop.LoopState, seating: seating_lib.Seating) -> bool:
  """Returns whether the games of a checkpoint can go on where they are put.

  Seats drawn for fewer devices are not in groups.
  """
  match = state.rollout.environment.match
  if match is None or seating.num_groups == 1:
    return True
  return seating_lib.is_grouped(np.asarray(match.routes.seats), seating)


def _read_metrics(results: Any) -> list[dict[str, float]]:
  """Returns the metrics of games that ended, by `compiled_arena.Results`."""
  if not results:
    return []
  ended = np.asarray(results.ended)
  values = {name: np.asarray(x)[ended] for name, x in results.metrics.items()}
  rows = zip(*(column.tolist() for column in values.values()), strict=True)
  return [dict(zip(values, row, strict=True)) for row in rows]
