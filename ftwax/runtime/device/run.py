"""Runs an experiment on the device: JAX environments, no replay server.

The host only evolves, counts, logs and saves, between calls of the compiled
loop (see `loop`). All mutable state is one pytree, so a resumed run continues
bit for bit, even in the middle of episodes.
"""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import faults
from ftwax.environments import (
  compiled_games,
  environment_faults,
  functional,
  validation,
)
from ftwax.networks import recurrent
from ftwax.population import players
from ftwax.runtime import (
  evaluation,
  game_files,
  generations,
  memory_checks,
  run_records,
  runs,
  sharding,
)
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.device import (
  compilation,
  compiled_arena,
  experiment_checks,
  freed_memory,
  loop,
  matches,
  placement,
  rollout,
)
from ftwax.runtime.device import sizes as sizes_lib

# Folded into the keys of evaluations.
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

  A run ends after the call that takes its last step. Evaluations run between
  calls.

  Args:
    experiment: its environment factory makes a JAX environment or game.
    eval_every: number of actor steps between evaluations; None for no
      evaluation.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint, on any number of
      devices.
    devices: devices that share the work: members with their games, or the
      environments and batches of a single agent. Defaults to the first JAX
      device.

  Returns:
    The result of the run.

  Raises:
    InvalidTimestepError: if a timestep violates the spec or a reward is not
      finite.
    KeyboardInterrupt: on Ctrl-C, SIGTERM or SIGHUP, after saving a checkpoint.
    NonFiniteGradientError: if a member skips too many updates in a row.
    RunDirectoryError: if the directory is in use or belongs to another config.
    TypeError: if the environment cannot be compiled.
    ValueError: if sizes or options are inconsistent.
  """
  freed_memory.keep()
  experiment_checks.check_not_traced()
  if any(observer.sees_steps for observer in experiment.observers):
    raise ValueError(
      f'observers ({list(experiment.observers)!r}) must not observe steps with'
      " runtime='device', which hides them; choose runtime='local'."
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
  """The immutable parts of an experiment."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    mesh: jax.sharding.Mesh,
  ):
    """Makes and checks the parts."""
    builder = experiment.builder
    self.mesh = mesh
    experiment_checks.check_one_process(experiment.environment_processes)
    self.game = experiment_checks.check_game(
      experiment.environment_factory(experiment.seed)
    )
    self.game_spec = experiment.game_spec or compiled_games.spec_of_compiled(
      self.game
    )
    memory_checks.check_fits(experiment, self.game_spec)
    self.evaluation_game = self._make_evaluation_game(experiment)
    spec = self.game_spec.environment
    players.check_specs(experiment.opponents, spec)
    network = experiment.agent.make_network(spec)
    self.evaluation_actor = builder.make_policy(
      network, spec, evaluation=experiment.evaluation_greedy
    )
    self.loop = _make_loop(
      experiment.replace(game_spec=self.game_spec), self.game, network, mesh
    )
    sizes = self.loop.sizes
    self.iterations_per_round = sizes.iterations_per_round(
      experiment.steps_per_round
    )
    self.iterations_per_call = sizes.iterations_per_call(
      self.iterations_per_round, experiment.max_num_actor_steps
    )
    self.shardings = placement.of_loop(mesh, sizes.num_members)
    self.max_skipped_updates = builder.config.max_skipped_updates

  def _make_evaluation_game(
    self, experiment: experiment_lib.ExperimentConfig
  ) -> functional.FunctionalGame:
    """Returns the evaluation game; defaults to the training game."""
    if experiment.evaluation_environment is None:
      return self.game
    made = experiment_checks.check_game(
      experiment.evaluation_factory(experiment.seed)
    )
    evaluation.check_spec(compiled_games.spec_of_compiled(made), self.game_spec)
    return made


def _make_loop(
  experiment: experiment_lib.ExperimentConfig,
  game: functional.FunctionalGame,
  network: types.RecurrentNetwork,
  mesh: jax.sharding.Mesh,
) -> loop.Loop:
  """Makes the functions of a run; checks that sizes and devices fit."""
  builder, population = experiment.builder, experiment.population
  spec = experiment.read_game_spec().environment
  arena = compiled_arena.make_arena(
    game,
    experiment.make_seating(),
    list(experiment.opponents.values()),
  )
  sizes = sizes_lib.make_sizes(
    spec,
    builder.config.sequence_length,
    arena.seating.seats_per_member,
    builder.config.batch_size,
    population.num_members,
    recurrent.has_convolutions(network),
  )
  placement.check_sizes(mesh, sizes, experiment.num_environments)
  actor = builder.make_policy(network, spec)
  learner = builder.make_learner_core(network, spec)
  if population.num_members == 1:
    learner = sharding.place_learner_core(mesh, learner)
  return loop.Loop(
    arena=arena,
    actor=actor,
    learner=learner,
    replay=builder.make_auxiliary_replay(spec, actor, sizes.num_rows),
    config=population,
    sizes=sizes,
  )


class _Run:
  """A run in progress; see `runs.Run`."""

  gives_state_away = True

  def __init__(
    self,
    parts: _Parts,
    experiment: experiment_lib.ExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes or restores the initial state."""
    del stack  # Holds no resources to close.
    self._parts = parts
    self._experiment = experiment
    self._records = records
    self._evolution = generations.Evolution(
      experiment, parts.game_spec.environment, records.directory
    )
    self._key = jax.random.PRNGKey(experiment.seed)
    game_files.write(records.directory, parts.game_spec)
    if resume:
      state = records.restore(jax.eval_shape(parts.loop.init, self._key))
      self._evolution.resume(state.population)
    else:
      state = jax.jit(parts.loop.init)(self._key)
      population = self._evolution.begin(state.population)
      state = state._replace(population=population)
    self._state: loop.LoopState = jax.device_put(state, parts.shardings)
    self._num_iterations = int(self._state.totals.num_iterations)
    self._train_logger = records.open_logger('train')
    self._population_logger = records.open_logger(generations.LABEL)
    self._learner_logger = records.open_learner_logger()

  @property
  def training_state(self) -> types.TrainingState:
    """The learners' states, leaves [N, ...]."""
    return self._state.training

  def snapshot(self) -> loop.LoopState:
    """Returns the complete mutable state."""
    return self._state

  def train(self) -> Iterator[loop.Report]:
    """Calls the compiled loop until all steps are taken."""
    records, parts = self._records, self._parts
    if records.done:
      return
    call = compilation.compile_call(
      functools.partial(parts.loop.call, parts.iterations_per_call),
      self._state,
      self._experiment.name,
    )
    with records.training() as show:
      while not records.done:
        report = self._call(call)
        self._record(report)
        is_over = self._num_iterations >= parts.iterations_per_round
        if is_over or records.done:
          self._begin_next_round()
        show()
        # The next call consumes the state, so an interrupt needs a copy of it.
        records.save_if_due(self.snapshot, keep_copies=True)
        yield report

  def _call(self, call: Callable[..., Any]) -> loop.Report:
    """Calls the compiled loop, which consumes the state even if it fails."""
    try:
      self._state, report = call(self._state)
      self._num_iterations += self._parts.iterations_per_call
      # Dispatch is asynchronous: errors of the call are raised here.
      fetched: loop.Report = jax.device_get(report)
      return fetched
    except jax.errors.JaxRuntimeError as error:
      if 'callback' not in str(error):  # Out of memory, for example.
        raise
      environment_faults.fail(self._experiment.name, 'a callback', error)

  def evaluate(self, num_episodes: int) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member."""
    plan, made = self._make_evaluation(num_episodes)
    # From the step, not from a stream of keys: evaluations do not affect
    # training, and a resumed run repeats them.
    key = jax.random.fold_in(self._key, self._records.counts.actor_steps)
    results = made.play(
      jax.random.fold_in(key, _EVALUATION),
      types.actor_variables(self._state.training),
      plan.seats,
      plan.games_per_place,
    )
    return evaluation.Outcome(plan, evaluation.count_results(results, plan))

  @functools.cache  # noqa: B019 It lives as long as the run.
  def _make_evaluation(
    self, num_episodes: int
  ) -> tuple[evaluation.Plan, matches.Matches]:
    parts = self._parts
    plan = evaluation.make_plan(
      self._experiment,
      parts.game_spec,
      parts.evaluation_game.scripts,
      num_episodes,
    )
    arena = compiled_arena.make_arena(
      parts.evaluation_game, plan.seating, list(plan.opponents.values())
    )
    return plan, matches.Matches(arena, parts.evaluation_actor, parts.mesh)

  def _begin_next_round(self) -> None:
    """Logs the finished round and evolves the population."""
    state = self._state
    totals = jax.device_get(state.totals)
    counts = np.maximum(totals.num_episodes, 1)
    played = generations.Round(
      totals.num_episodes,
      totals.returns / counts[:, None],
      totals.lengths / counts,
    )
    self._population_logger.write(
      generations.population_row(state.population, played, self._records.counts)
    )
    # Evolution may return other shardings; keep members on their devices.
    population = jax.device_put(
      self._evolution.evolve(state.population),
      self._parts.shardings.population,
    )
    self._state = self._begin_round(state._replace(population=population))
    self._num_iterations = 0

  @functools.cached_property
  def _begin_round(self) -> Callable[[loop.LoopState], loop.LoopState]:
    """Compiled `begin_round(state) -> state`, which donates its argument."""
    return jax.jit(
      self._parts.loop.begin_round,
      donate_argnums=0,
      out_shardings=jax.tree.map(lambda leaf: leaf.sharding, self._state),
    )

  def _record(self, report: loop.Report) -> None:
    """Counts and logs one call; checks rewards and gradients."""
    episodes, records = report.episodes, self._records
    ended = np.asarray(episodes.ended)
    returns = np.asarray(episodes.returns)[ended]
    returns = returns.reshape(len(returns), self._parts.game_spec.num_events)
    sums = returns.sum(axis=1)
    num_members = self._experiment.population.num_members
    skipped = report.skipped_in_a_row  # [K, U, N]
    records.advance(
      int(episodes.moved.sum()),
      sums[np.isfinite(sums)].tolist(),
      records.counts.learner_steps + skipped.size // num_members,
    )
    self._check_timesteps(episodes)
    if len(returns):
      row = generations.train_row(returns, np.asarray(episodes.lengths)[ended])
      self._train_logger.write({**row, **records.counts._asdict()})
    metrics = {
      name: np.mean(leaf, axis=(0, 1)) for name, leaf in report.metrics.items()
    }
    metrics['skipped_updates'] = np.asarray(self._state.training.skipped)
    if num_members == 1:
      metrics = {name: leaf[0] for name, leaf in metrics.items()}
    self._learner_logger.write(
      {**metrics, 'learner_steps': records.counts.learner_steps}
    )
    faults.check_skipped(int(skipped.max()), self._parts.max_skipped_updates)

  def _check_timesteps(self, episodes: rollout.Episodes) -> None:
    """Raises an InvalidTimestepError if a timestep violated a demand."""
    faults = np.asarray(episodes.faults)
    is_off = faults.any(axis=tuple(range(faults.ndim - 1)))
    fields = validation.make_fields(self._parts.game_spec.environment)
    demands = [(field, one) for field in fields for one in field.demands]
    for (field, demand), off in zip(demands, is_off, strict=True):
      if off:
        value = f'in one of the last {episodes.moved.size} steps'
        name = self._experiment.name
        validation.fail(name, field.name, value, *demand[:2])
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
