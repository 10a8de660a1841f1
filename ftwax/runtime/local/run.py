"""Runs an experiment in one process, with games that Python steps.

It is the iteration of the device runtime with a rollout on the host: act, then
learn, rate, record and save. Nothing depends on the clock, so the same seed on
the same machine gives bitwise identical parameters.
"""

import contextlib
import functools
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from ftwax import types
from ftwax.agents.actor_critic import faults, replays
from ftwax.environments import environment_faults
from ftwax.replay import replay_options
from ftwax.runtime import (
  evaluation,
  generations,
  limits,
  prepare,
  rounds,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime.device import loop, rollout
from ftwax.runtime.device import sizes as sizes_lib
from ftwax.runtime.local import acting, evaluations, learning
from ftwax.runtime.local import arena as arena_lib

# Distinguish the seeds of training and evaluation environments.
_TRAINING, _EVALUATION = 0, 1

# Limits for recreating the environments after failures.
_MAX_RESTARTS, _RESTART_PERIOD_S = 10, 300.0


class Position(NamedTuple):
  """State of a run of JAX games besides its population.

  Attributes:
    actors: games in progress, and the actors in them.
    replay: tables of the agent or of auxiliary tasks, leaves [N, ...]; `()` if
      they are left out.
    totals: statistics of the current round.
  """

  actors: acting.ActorsState
  replay: Any
  totals: loop.Totals


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
  experiment = parts.experiment
  kind = replays.choose(experiment.replay, experiment.agent)
  if kind == replay_options.REVERB and not experiment.expose:
    from ftwax.acme import loopback  # For Python 3.10 alone.

    loopback.check()
  mesh = sharding.make_mesh(devices)
  learning.check_devices(
    mesh, experiment.population.num_members, experiment.agent.batch_size
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
    """Makes or restores members and games; `stack` closes the games."""
    self._parts = parts
    self._experiment = parts.experiment
    self._records = records
    self._stack = stack
    self._sizes = sizes_lib.make_sizes(parts)
    members_key, population_key, self._key = jax.random.split(parts.key, 3)
    self._learner = self._make_learner(mesh)
    members = self._learner.init(members_key)
    evolution, population = generations.start(
      parts, records, members, population_key, resume
    )
    self._population = population._replace(
      members=self._learner.place(population.members)
    )
    self._rounds = rounds.Rounds(parts, records, evolution)
    self._totals = self._rounds.start_totals()
    self._learner_logger = records.open_logger(
      'learner', 'learner_steps', rarely=True
    )
    self._limiter = limits.RestartLimiter(
      _MAX_RESTARTS, _RESTART_PERIOD_S, environment_faults.EnvironmentFault
    )
    # Made last, since their seeds depend on the progress of the run.
    self._actors = acting.Actors(
      parts.policy,
      self._make_arena(),
      parts.experiment.observers,
      parts.experiment.fitness_metric,
    )
    stack.callback(self._close_games)
    self._position: Position | None = None
    population = self._population
    self._begin_round()
    if records.is_whole:
      self._population = population  # Of which no seats were drawn.
      self._restore_position()
    elif resume and self._saves_replay:
      # Of Python games, which restart.
      replay = records.restore(self._learner.replay, run_records.REPLAY)
      self._learner.replay = self._learner.place(replay)
    self._capture()

  @property
  def training_state(self) -> types.TrainingState:
    """The members, leaves [N, ...]."""
    return self._population.members

  def snapshot(self) -> run_records.RunState:
    """Returns the state after the last iteration; Python games restart."""
    replay: Any = ()
    if self._saves_replay and self._position is None:
      replay = self._learner.replay
    return run_records.RunState(self._population, self._position, replay)

  @property
  def _saves_replay(self) -> bool:
    """Whether checkpoints hold what the agent learns from."""
    experiment = self._experiment
    return (
      experiment.agent.learns_from_replay
      and self._parts.replays.is_saved
      and experiment.replay != replay_options.REVERB
    )

  def train(self) -> Iterator[None]:
    """Iterates until all steps are taken; evolves after each round."""
    records = self._records
    if records.done:
      return
    print(
      f'{self._experiment.name}: compiling in the first steps...',
      flush=True,
    )
    with records.training() as show:
      while not records.done:
        yield from self._iterate()
        records.save_if_due(self.snapshot)
        show()
        yield

  def evaluate(self, num_episodes: int) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member."""
    return self._make_evaluator(num_episodes).run(
      types.actor_variables(self._population.members),
      self._records.course.values,
    )

  def _iterate(self) -> Generator[None, None, None]:
    """Acts, learns, rates and records; yields where it may be interrupted."""
    trajectories, episodes = yield from self._act()
    metrics, skipped = self._learn(trajectories)
    self._population, self._totals = self._rounds.rate(
      self._population, self._totals, self._actors.arena.seats, episodes
    )
    num_updates = self._sizes.num_updates
    learner_steps = self._records.counts.learner_steps + num_updates
    measured = self._actors.take_metrics()
    self._rounds.record(episodes, learner_steps, measured)
    self._actors.arena.set_parameters(self._records.course.values)
    if self._actors.is_round_over(self._experiment.steps_per_round):
      self._end_round()
    elif self._records.done:
      # The round goes on if the run is resumed.
      self._rounds.log(self._population, self._totals)
    self._capture()
    self._learner_logger.write({**metrics, 'learner_steps': learner_steps})
    faults.check_skipped(skipped, self._experiment.agent.max_skipped_updates)

  def _act(
    self,
  ) -> Generator[None, None, tuple[types.Trajectory, rollout.Episodes]]:
    """Acts with one policy; begins again if environments fail.

    Returns:
      The trajectories, leaves [T + 1 or T, N, R * M, ...], and the episodes,
      leaves [1, R, T, N, M].
    """
    sizes = self._sizes
    variables = acting.put(types.actor_variables(self._population.members))
    while True:
      arrays = acting.make_arrays(
        self._parts.replays.template,
        sizes.num_members,
        sizes.num_rollouts * sizes.num_rows,
      )
      played: list[rollout.Episodes] = []
      try:
        for into in acting.batches(arrays, sizes.num_rows):
          played.append((yield from self._actors.rollout(variables, into)))
          yield
        return arrays, jax.tree.map(
          lambda *leaves: np.stack(leaves)[None], *played
        )
      except environment_faults.EnvironmentFault as fault:
        if self._experiment.stepping.on_error == 'stop':
          raise
        self._limiter.count('environments', fault)
        logging.warning('Recreating environments after an error: %s', fault)
        num_lost = sum(int(each.moved.sum()) for each in played)
        if len(played) < sizes.num_rollouts:
          num_lost += self._actors.num_steps
        counts = self._records.counts
        self._records.advance(num_lost, [], counts.learner_steps)
        self._restart_games()

  def _learn(
    self, trajectories: types.Trajectory
  ) -> tuple[dict[str, Any], int]:
    """Updates the members; returns metrics, and updates skipped in a row."""
    num_updates = self._sizes.num_updates
    if num_updates > 1:
      # Later updates have other parameters.
      trajectories = trajectories._replace(value=None)
    members = self._population.members
    self._learner.insert(
      trajectories,
      self._records.counts.learner_steps,
      internal_rewards=np.asarray(members.internal_rewards),
    )
    rows, skipped = [], 0
    for _ in range(num_updates // self._learner.num_updates):
      members, row, in_a_row = self._learner.update(members)
      rows.append(row)
      skipped = max(skipped, in_a_row)
    self._population = self._population._replace(members=members)
    means = {
      name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]
    }
    return means, skipped

  def _end_round(self) -> None:
    """Logs the round, evolves the population, and begins a round."""
    population, _ = self._rounds.end(self._population, self._totals)
    self._population = population._replace(
      members=self._learner.place(population.members)
    )
    self._totals = self._rounds.start_totals()
    if self._parts.seating.is_solo:
      self._actors.begin_round()
    elif self._position is not None or not self._records.done:
      self._begin_round()

  def _begin_round(self, *restarts: int) -> None:
    """Seats members and starts all games."""
    self._population, seats = self._rounds.draw_seats(self._population)
    key = jax.random.fold_in(self._key, self._records.counts.actor_steps)
    for number in restarts:
      key = jax.random.fold_in(key, number)
    self._actors.begin(key, seats)

  def _restart_games(self) -> None:
    """Recreates all games."""
    self._close_games()
    # Other seeds, since the same ones might fail in the same way again.
    restarts = self._limiter.num_restarts
    self._actors.arena = self._make_arena(restarts)
    self._begin_round(restarts)

  def _capture(self) -> None:
    """Makes this moment the one that checkpoints refer to."""
    actors = self._actors.save()
    if actors is not None:
      replay: Any = ()
      if self._parts.replays.is_saved:
        replay = self._learner.replay
      self._position = Position(actors, replay, self._totals)

  def _restore_position(self) -> None:
    """Restores games, actors and tables."""
    self._capture()  # For the structure.
    position: Any = self._records.restore(self._position, run_records.POSITION)
    self._actors.restore(position.actors)
    if self._parts.replays.is_saved:
      self._learner.replay = self._learner.place(position.replay)
    self._totals = position.totals

  def _make_learner(self, mesh: jax.sharding.Mesh) -> learning.Learner:
    parts = self._parts
    num_members = parts.experiment.population.num_members
    if parts.experiment.replay != replay_options.REVERB:
      return learning.Learner(parts, num_members, mesh)
    from ftwax.runtime.local import reverb_learning  # For Python 3.10 alone.

    return reverb_learning.LocalLearner(parts, num_members, mesh, self._stack)

  def _make_arena(self, *restarts: int) -> arena_lib.Arena:
    parts, steps = self._parts, self._records.counts.actor_steps
    seeds = arena_lib.make_seeds(
      (parts.experiment.seed, _TRAINING, steps, *restarts),
      parts.seating.num_games,
    )
    arena = arena_lib.Arena(
      parts.make_games(seeds, parts.experiment.name),
      parts.seating,
      list(parts.opponents.values()),
    )
    arena.set_parameters(self._records.course.values)
    return arena

  def _close_games(self) -> None:
    try:
      self._actors.arena.close()
    except environment_faults.EnvironmentFault as fault:
      logging.warning('Could not close environments: %s', fault)

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluator(self, num_episodes: int) -> evaluations.Evaluator:
    """Returns the evaluator for all evaluations of the run."""
    evaluator = evaluations.Evaluator(
      self._parts,
      num_episodes,
      (_EVALUATION, self._records.counts.actor_steps),
    )
    self._stack.callback(evaluator.close)
    return evaluator
