"""Runs a population in one process: games in Python, replay servers, learner.

As in a run of one agent (`host.local`) acting and learning take turns, and
nothing depends on the clock. After each round (see `rounds`) members evolve.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import jax

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.replay.reverb import servers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import (
  coordinator,
  experiment_environments,
  members,
  rounds,
)
from ftwax.runtime.host import generations as records_lib


def run_population(
  experiment: experiment_lib.PopulationExperimentConfig,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
) -> runs.RunResult:
  """Trains a population until all steps are taken.

  Args:
    experiment: what to run; a game written in JAX will do, too.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint.

  Returns:
    What the run came to; its state is that of all members [N, ...].

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    NonFiniteGradientError: a member skipped too many updates in a row.
    ReplayTimeoutError: a queue stalled.
    RunDirectoryError: the directory is in use, or of another config.
    TypeError: the factory makes no game.
    ValueError: games, members and seats do not fit.
  """
  make_run: Any = _Run  # Of an experiment with a population.
  result = runs.execute(make_run, experiment, None, 0, run_dir, resume)
  records_lib.write_report(
    experiment, result.run_dir, arena_lib.read_spec(experiment).event_names
  )
  return result


class _Run:
  """A run under way."""

  def __init__(
    self,
    experiment: experiment_lib.PopulationExperimentConfig,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ):
    """Makes the parts; `stack` closes them, the last one first."""
    self._experiment = experiment
    self._records = records
    game = arena_lib.read_spec(experiment)
    builder: Any = experiment.builder
    network = experiment.network_factory(game.environment)
    policy = builder.make_policy(network, game.environment)
    clients = self._start_servers(game.environment, policy, stack)
    batches = members.Batches(
      [
        builder.make_dataset_iterator(client, game.environment, policy)
        for client in clients
      ]
    )
    stack.callback(batches.close)
    key, population_key = jax.random.split(jax.random.PRNGKey(experiment.seed))
    self._learner = members.make_learner(
      builder,
      key,
      network,
      game.environment,
      len(clients),
      batches,
      records.open_learner_logger,
    )
    self._coordinator = self._make_coordinator(game, population_key, resume)
    # Made last: what they draw depends on how far the run is.
    self._arena = self._make_arena(stack)
    adders = [
      builder.make_adder(
        client, game.environment, policy, self._arena.seats_per_member
      )
      for client in clients
    ]
    for adder in adders:
      stack.callback(adder.close)
    self._actors = members.make_actors(
      builder,
      jax.random.fold_in(key, 1 + records.counts.actor_steps),
      policy,
      self._learner,
      adders,
      self._arena.seats_per_member,
    )
    self._num_updates = 0  # In this session.
    self._loggers = {
      label: records.open_logger(label) for label in records_lib.LABELS
    }

  @property
  def training_state(self) -> types.TrainingState:
    """The learners' states [N, ...]."""
    return self._learner.state

  def snapshot(self) -> state_lib.PopulationState:
    """Returns the population; games begin anew."""
    return self._coordinator.population(self._learner.save())

  def evaluate(self, num_episodes: int) -> None:
    """Does nothing: members are rated by the games that they play."""
    del num_episodes

  def train(self) -> Iterator[rounds.Tick]:
    """Plays rounds until all steps are taken, and evolves after each."""
    records = self._records
    if records.done:
      return
    with records.training() as show:
      for tick in rounds.play(
        self._arena,
        self._actors,
        self._coordinator.draw_seats,
        self._experiment,
      ):
        self._learn()
        records.advance(
          tick.num_steps,
          [episode.episode_return for episode in tick.episodes],
          self._learner.num_steps,
        )
        self._coordinator.record(
          tick.results, self._learner.state.internal_rewards
        )
        if tick.ends_round or records.done:
          self._end_round()
        records.save_if_due(self.snapshot)
        show()
        yield tick
        if records.done:
          return

  def _end_round(self) -> None:
    """Logs the round and evolves the population."""
    for label, row in self._coordinator.end_round(
      self._evolution, self._learner, self._records.counts
    ):
      self._loggers[label].write(row)

  def _learn(self) -> None:
    """Does the updates that the trajectories written allow."""
    builder = self._experiment.builder
    due = self._actors.num_items // builder.items_per_step
    while self._num_updates < due:
      self._learner.step()
      self._num_updates += 1

  def _start_servers(self, environment_spec, policy, stack) -> list[Any]:
    """Starts a server for each member; returns their clients."""
    experiment: Any = self._experiment
    port = experiment.replay_port
    clients = []
    for member in range(experiment.population.num_members):
      server = servers.make_server(
        experiment.builder.make_replay_tables(environment_spec, policy),
        port and port + member,
      )
      stack.callback(server.stop)
      clients.append(server.localhost_client())
    return clients

  def _make_coordinator(self, game, key, resume) -> coordinator.Coordinator:
    """Begins or resumes the population, the learner's members included."""
    experiment: Any = self._experiment
    self._evolution = records_lib.Evolution(
      experiment, game.environment, self._records.directory
    )
    population = state_lib.from_members(
      self._learner.state, key, experiment.population
    )
    if resume:
      population = self._records.restore(population)
      self._learner.restore(population.members)
      self._evolution.resume(population)
    else:
      self._evolution.begin(population)
    return coordinator.Coordinator(population, experiment, game)

  def _make_arena(self, stack) -> arena_lib.Arena:
    experiment = self._experiment
    seeds = experiment_environments.make_seeds(
      (experiment.seed, self._records.counts.actor_steps),
      experiment.num_environments,
    )
    arena = arena_lib.Arena(arena_lib.make_games(experiment, seeds), experiment)
    stack.callback(arena.close)
    return arena
