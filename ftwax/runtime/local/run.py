"""Runs an experiment in one process: games, replays, actors and learner.

Acting and learning alternate: whenever the actors have written enough
trajectories for a learner step, the learner takes one. Nothing depends on the
clock, so the same seed on the same machine gives bitwise identical parameters.
Members evolve after each round.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from absl import logging

from ftwax import loopback, types
from ftwax.agents.actor_critic import replays
from ftwax.environments import environment_faults, game_vectors
from ftwax.replay import replay_options
from ftwax.runtime import (
  evaluation,
  generations,
  limits,
  prepare,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import coordinator as coordinator_lib
from ftwax.runtime.local import (
  evaluations,
  game_loop,
  members,
  position,
  seeds,
)

# Distinguish the seeds of training and evaluation environments.
_TRAINING, _EVALUATION = 0, 1

# Folded into the key of the run; 1 is used for actors.
_REPLAY = 2

# Limits for recreating the environments after failures.
_MAX_RESTARTS, _RESTART_PERIOD_S = 10, 300.0


def prepare_run(
  parts: prepare.Prepared, devices: Sequence[jax.Device] | None
) -> runs.MakeRun:
  """Checks replay and devices; returns the function that makes a run.

  Args:
    parts: an agent or a population, in Python or JAX environments. Python games
      restart when a run is resumed.
    devices: devices that share the members or, with a single member, its
      batches; by default the first JAX device.

  Raises:
    ExposedError: if Reverb's port cannot be closed to other machines.
    ImportError: if the experiment selects Reverb, which is not installed.
    ValueError: if members and devices are inconsistent.
  """
  kind = replays.choose(parts.replay, parts.replay_port)
  if kind == replay_options.REVERB and not parts.expose:
    loopback.check()
  mesh = sharding.make_mesh(devices)
  members.check_devices(
    mesh, parts.population.num_members, parts.agent.batch_size
  )
  return functools.partial(_Run, mesh)


class _Run:
  """A run in progress; see `runs.Run`."""

  gives_state_away = False

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes games, replays, actors and learner; `stack` closes them."""
    self._parts = parts
    self._records = records
    self._stack = stack
    self._key, population_key = jax.random.split(parts.key)
    num_members = parts.population.num_members
    member_replays = self._make_replays()
    self._learner = members.make_learner(
      parts,
      self._key,
      num_members,
      members.Batches([replay.dataset for replay in member_replays]),
      functools.partial(records.open_logger, rarely=True),
      mesh,
    )
    self._coordinator = self._make_coordinator(population_key, resume)
    # Made last, since their seeds depend on the progress of the run.
    self._arena = self._make_arena()
    self._actors = members.make_actors(
      self._actor_key(),
      parts.policy,
      members.member_sources(self._learner, num_members),
      self._coordinator.seating.seats_per_member,
      [replay.adder for replay in member_replays],
    )
    self._num_updates = 0  # Since this process started.
    self._tracker = position.Tracker(
      self._arena,
      self._actors,
      member_replays,
      self._coordinator,
      parts.agent.batch_size,
    )
    self._start = self._restore_position()
    self._train_logger = records.open_logger('train')
    self._population_logger = records.open_logger(generations.LABEL)

  @property
  def training_state(self) -> types.TrainingState:
    """The learner's state, leaves [N, ...]."""
    return self._learner.state

  def snapshot(self) -> run_records.RunState:
    """Returns the state to save; Python games restart when resumed."""
    return self._tracker.state(self._learner.save())

  def train(self) -> Iterator[game_loop.Tick]:
    """Plays rounds until all steps are taken; evolves after each round."""
    records = self._records
    if records.done:
      return
    print(f'{self._parts.name}: compiling in the first steps...', flush=True)
    with records.training() as show:
      for tick in self._play():
        self._learn()
        self._record(tick)
        if tick.ends_round or records.done:
          self._end_round()
        # After evolution, whose result the checkpoint has to include.
        self._note(tick.round_step)
        records.save_if_due(self.snapshot)
        show()
        yield tick
        if records.done:
          return

  def evaluate(self, num_episodes: int) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member."""
    return self._make_evaluator(num_episodes).run()

  def _play(self) -> Iterator[game_loop.Tick]:
    """Plays rounds; recreates failed environments if configured to do so."""
    limiter = limits.RestartLimiter(
      _MAX_RESTARTS, _RESTART_PERIOD_S, environment_faults.EnvironmentFault
    )
    start = self._start
    while True:
      try:
        yield from game_loop.play_rounds(
          self._arena,
          self._actors,
          self._draw_seats,
          self._parts,
          start=start,
        )
      except environment_faults.EnvironmentFault as fault:
        if self._parts.on_environment_error == 'stop':
          raise
        limiter.count('environments', fault)
        logging.warning('Recreating environments after an error: %s', fault)
        self._restart_games(limiter.num_restarts)
        start = None

  def _restart_games(self, num_restarts: int) -> None:
    """Recreates all games and drops their unfinished trajectories."""
    try:
      self._arena.close()
    except environment_faults.EnvironmentFault as fault:
      logging.warning('Could not close environments: %s', fault)
    # Other seeds, since the same ones might fail in the same way again.
    self._arena.replace_games(self._make_games(num_restarts))

  def _draw_seats(self) -> tuple[types.NumpyArray, Any]:
    return self._coordinator.draw_seats(self._learner.state)

  def _note(self, round_step: int) -> None:
    """Makes this moment the next checkpoint if the run can continue from it."""
    if self._tracker.note(round_step, self._learner.state):
      self._records.mark()

  def _learn(self) -> None:
    """Runs the updates for which enough trajectories are written."""
    # Items are counted from the start of this process, too.
    due = self._actors.num_items // self._parts.agent.batch_size
    while self._num_updates < due:
      self._learner.step()
      self._num_updates += 1

  def _record(self, tick: game_loop.Tick) -> None:
    """Counts a step of all games and logs the games that ended."""
    returns, lengths = generations.member_episodes(
      tick.results, self._parts.population.num_members
    )
    self._records.advance(
      tick.num_steps,
      self._parts.spec.headlines(returns).tolist(),
      self._learner.num_steps,
    )
    self._coordinator.record(tick.results)
    if len(returns):
      row = generations.train_row(self._parts.spec, returns, lengths)
      row.update(self._records.counts._asdict())
      for observer in self._parts.observers:
        row.update(observer.get_metrics())
      self._train_logger.write(row)

  def _end_round(self) -> None:
    """Logs the round and evolves the population."""
    row, members, generation = self._coordinator.end_round(
      self._learner.state, self._records.counts, self._evolution
    )
    if row is not None:
      self._population_logger.write(row)
    if generation is not None:
      self._learner.restore(members)

  def _make_replays(self) -> list[replays.AgentReplay]:
    """Makes a replay for each member."""
    parts = self._parts
    key = jax.random.fold_in(self._key, _REPLAY)
    return parts.replays.make(
      list(jax.random.split(key, parts.population.num_members)),
      parts.seating.seats_per_member,
      self._stack,
      parts.replay,
      replay_options.ServerOptions(parts.replay_port, parts.expose),
    )

  def _restore_position(self) -> game_loop.Start | None:
    """Restores games, actors and tables if the checkpoint contains them."""
    if not self._records.is_whole:
      return None
    template = self._tracker.template(self._learner.state)
    start = self._tracker.restore(
      self._records.restore(template, run_records.POSITION)
    )
    self._note(start.round_step)
    return start

  def _make_coordinator(
    self, key: types.Key, resume: bool
  ) -> coordinator_lib.Coordinator:
    """Begins or resumes the population, including the learner's members."""
    self._evolution, population = generations.start(
      self._parts, self._records, self._learner.state, key, resume
    )
    self._learner.restore(population.members)
    return coordinator_lib.Coordinator(population, self._parts)

  def _make_arena(self) -> arena_lib.Arena:
    arena = arena_lib.Arena(
      self._make_games(),
      self._coordinator.seating,
      list(self._parts.players.values()),
      jax.random.fold_in(self._actor_key(), 0),
    )
    self._stack.callback(arena.close)
    return arena

  def _make_games(self, *restarts: int) -> game_vectors.GameVector:
    parts, steps = self._parts, self._records.counts.actor_steps
    entropy = (parts.seed, _TRAINING, steps, *restarts)
    return parts.make_games(
      seeds.make_seeds(entropy, parts.seating.num_games), parts.name
    )

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluator(self, num_episodes: int) -> evaluations.Evaluator:
    """Returns the evaluator for all evaluations of the run."""
    evaluator = evaluations.Evaluator(
      self._parts,
      members.member_sources(self._learner, self._parts.population.num_members),
      num_episodes,
      (_EVALUATION, self._records.counts.actor_steps),
    )
    self._stack.callback(evaluator.close)
    return evaluator

  def _actor_key(self) -> types.Key:
    """Returns the key of actors, which changes with each resumption."""
    key = jax.random.fold_in(self._key, self._records.counts.actor_steps)
    return jax.random.fold_in(key, 1)
