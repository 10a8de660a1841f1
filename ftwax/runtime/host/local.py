"""Runs an experiment in one process: games, replays, actors and learner.

Acting and learning alternate: whenever the actors have written enough
trajectories for a learner step, the learner takes one. Nothing depends on the
clock, so the same seed on the same machine gives bitwise identical parameters.
Members evolve after each round.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence

import jax
from absl import logging

from ftwax import loopback, types
from ftwax.agents.actor_critic import replays
from ftwax.environments import environment_faults, game_vectors, games
from ftwax.population import players
from ftwax.replay import replay_options
from ftwax.runtime import (
  evaluation,
  game_files,
  generations,
  limits,
  memory_checks,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import coordinator as coordinator_lib
from ftwax.runtime.host import (
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
    experiment: an agent or a population, in Python or JAX environments.
    eval_every: number of actor steps between evaluations; None for no
      evaluation.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint; Python games
      restart.
    devices: devices that share the members or, with a single member, its
      batches; by default the first JAX device.

  Returns:
    The result of the run.

  Raises:
    ExposedError: if Reverb's port cannot be closed to other machines.
    ImportError: if the experiment selects Reverb, which is not installed.
    KeyboardInterrupt: on Ctrl-C, SIGTERM or SIGHUP, after saving a checkpoint.
    NonFiniteGradientError: if a member skips too many updates in a row.
    ReplayTimeoutError: if a queue stalls.
    RunDirectoryError: if the directory is in use or belongs to another config.
    TypeError: if the factory does not make an environment.
    ValueError: if games, members, seats and devices are inconsistent.
  """
  # Raises before a run directory is made.
  kind = replays.choose(experiment.replay, experiment.replay_port)
  if kind == replay_options.REVERB and not experiment.expose:
    loopback.check()
  mesh = sharding.make_mesh(devices)
  members.check_devices(
    mesh,
    experiment.population.num_members,
    experiment.agent.batch_size,
  )
  spec = experiment.read_game_spec()
  memory_checks.check_fits(experiment, spec)
  return runs.execute(
    functools.partial(_Run, mesh, spec),
    experiment,
    eval_every,
    num_eval_episodes,
    run_dir,
    resume,
  )


class _Run:
  """A run in progress; see `runs.Run`."""

  gives_state_away = False

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    spec: games.GameSpec,
    experiment: experiment_lib.ExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the parts; `stack` closes them in reverse order."""
    self._experiment = experiment
    self._records = records
    self._stack = stack
    self._key, population_key = jax.random.split(
      jax.random.PRNGKey(experiment.seed)
    )
    self._spec = spec
    players.check_specs(experiment.opponents, spec.environment)
    game_files.write(records.directory, spec)
    builder = experiment.builder
    self._network = experiment.agent.make_network(spec.environment)
    policy = builder.make_policy(self._network, spec.environment)
    num_members = experiment.population.num_members
    made = self._make_replays(policy)
    self._learner = members.make_learner(
      builder,
      self._key,
      self._network,
      spec.environment,
      num_members,
      members.Batches([replay.dataset for replay in made]),
      records.open_learner_logger,
      mesh,
    )
    self._coordinator = self._make_coordinator(spec, population_key, resume)
    # Made last, since their seeds depend on the progress of the run.
    self._arena = self._make_arena()
    self._actors = members.make_actors(
      builder,
      self._actor_key(),
      policy,
      members.member_sources(self._learner, num_members),
      self._coordinator.seating.seats_per_member,
      [replay.adder for replay in made],
    )
    self._num_updates = 0  # Since this process started.
    self._tracker = position.Tracker(
      self._arena,
      self._actors,
      made,
      self._coordinator,
      builder.items_per_step,
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
    limiter = limits.RestartLimiter(_MAX_RESTARTS, _RESTART_PERIOD_S)
    start = self._start
    while True:
      try:
        yield from game_loop.play_rounds(
          self._arena,
          self._actors,
          self._draw_seats,
          self._experiment,
          start=start,
        )
      except environment_faults.EnvironmentFault as fault:
        if self._experiment.on_environment_error == 'stop':
          raise
        try:
          limiter.count('environments', fault)
        except limits.RestartsExceededError as error:
          raise environment_faults.EnvironmentFault(str(error)) from fault
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

  def _draw_seats(self) -> types.NumpyArray:
    return self._coordinator.draw_seats(self._learner.state.internal_rewards)

  def _note(self, round_step: int) -> None:
    """Makes this moment the next checkpoint if the run can continue from it."""
    if self._tracker.note(round_step, self._learner.state):
      self._records.mark()

  def _learn(self) -> None:
    """Runs the updates for which enough trajectories are written."""
    # Items are counted from the start of this process, too.
    due = self._actors.num_items // self._experiment.builder.items_per_step
    while self._num_updates < due:
      self._learner.step()
      self._num_updates += 1

  def _record(self, tick: game_loop.Tick) -> None:
    """Counts a step of all games and logs the games that ended."""
    returns, lengths = generations.member_episodes(
      tick.results, self._experiment.population.num_members
    )
    self._records.advance(
      tick.num_steps, returns.sum(axis=1).tolist(), self._learner.num_steps
    )
    self._coordinator.record(tick.results)
    if len(returns):
      row = generations.train_row(returns, lengths)
      row.update(self._records.counts._asdict())
      for observer in self._experiment.observers:
        row.update(observer.get_metrics())
      self._train_logger.write(row)

  def _end_round(self) -> None:
    """Logs the round and evolves the population."""
    for row in self._coordinator.end_round(
      self._evolution, self._learner, self._records.counts
    ):
      self._population_logger.write(row)

  def _make_replays(self, policy: types.ActorCore) -> list[replays.AgentReplay]:
    """Makes a replay for each member."""
    experiment = self._experiment
    key = jax.random.fold_in(self._key, _REPLAY)
    return replays.make_replays(
      experiment.builder.config,
      self._spec.environment,
      policy,
      list(jax.random.split(key, experiment.population.num_members)),
      experiment.make_seating().seats_per_member,
      self._stack,
      experiment.replay,
      replay_options.ServerOptions(experiment.replay_port, experiment.expose),
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
    self, spec: games.GameSpec, key: types.Key, resume: bool
  ) -> coordinator_lib.Coordinator:
    """Begins or resumes the population, including the learner's members."""
    experiment = self._experiment
    self._evolution = generations.Evolution(
      experiment, spec.environment, self._records.directory
    )
    population = generations.make_population(
      experiment, spec, self._learner.state, key
    )
    if resume:
      population = self._records.restore(population, run_records.POPULATION)
      self._learner.restore(population.members)
      self._evolution.resume(population)
    else:
      population = self._evolution.begin(population)
      self._learner.restore(population.members)
    return coordinator_lib.Coordinator(population, experiment, spec)

  def _make_arena(self) -> arena_lib.Arena:
    arena = arena_lib.Arena(
      self._make_games(),
      self._coordinator.seating,
      list(self._experiment.opponents.values()),
      jax.random.fold_in(self._actor_key(), 0),
    )
    self._stack.callback(arena.close)
    return arena

  def _make_games(self, *restarts: int) -> game_vectors.GameVector:
    experiment, steps = self._experiment, self._records.counts.actor_steps
    return experiment.make_games(
      experiment.environment_factory,
      seeds.make_seeds(
        (experiment.seed, _TRAINING, steps, *restarts),
        self._coordinator.seating.num_games,
      ),
      experiment.name,
    )

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluator(self, num_episodes: int) -> evaluations.Evaluator:
    """Returns the evaluator for all evaluations of the run."""
    evaluator = evaluations.Evaluator(
      self._experiment,
      members.member_sources(
        self._learner, self._experiment.population.num_members
      ),
      num_episodes,
      (_EVALUATION, self._records.counts.actor_steps),
    )
    self._stack.callback(evaluator.close)
    return evaluator

  def _actor_key(self) -> types.Key:
    """Returns the key of actors, which changes with each resumption."""
    key = jax.random.fold_in(self._key, self._records.counts.actor_steps)
    return jax.random.fold_in(key, 1)
