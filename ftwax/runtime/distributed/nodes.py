"""The nodes that do a run's work: replay, actor, evaluator.

Each is a function that a process, or in tests a thread, of a Launchpad program
runs. What they import is imported there: some nodes do without TensorFlow.
"""

import contextlib
import pathlib
import shutil
import time
from typing import Any

import jax

from ftwax.runtime import environment_loop, experiment_environments
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  acting,
  counter,
  environments,
  processes,
  variables,
)
from ftwax.runtime.distributed import (
  settings as settings_lib,
)

_POLL_S = 1.0
_SERVER_START_S = 120


def run_replay(
  experiment: experiment_lib.ExperimentConfig,
  directory: str,
  settings: settings_lib.Settings,
  address: str,
  counter_client: Any,
) -> None:
  """Serves the tables until actors and learner have ended.

  A server goes on from the newest checkpoint in the run's directory.

  Args:
    experiment: tells the tables.
    directory: of the run.
    settings: of the run.
    address: where to listen.
    counter_client: of the counter.
  """
  with processes.node(counter.REPLAY) as stop:
    processes.keep_to_cpu(0)
    import reverb

    checkpoints_dir = pathlib.Path(directory) / 'replay'
    spec = experiment_environments.read_spec(experiment)
    policy = experiment.builder.make_policy(
      experiment.network_factory(spec), spec
    )
    server = reverb.Server(
      experiment.builder.make_replay_tables(spec, policy),
      port=int(address.rpartition(':')[2]),
      checkpointer=reverb.checkpointers.DefaultCheckpointer(
        str(checkpoints_dir)
      ),
    )
    client = server.localhost_client()
    remote = processes.Remote(counter_client, 'counter')
    saved_at = time.monotonic()
    try:
      while not stop.wait(_POLL_S):
        if remote.try_call('report_replay', _statistics(client)):
          break
        if time.monotonic() - saved_at >= settings.replay_save_s:
          _save(client, checkpoints_dir)
          saved_at = time.monotonic()
      _save(client, checkpoints_dir)
    finally:
      server.stop()
    remote.try_call('finish', counter.REPLAY)


def _statistics(client) -> dict[str, Any]:
  return {
    name: [info.current_size, info.max_size]
    for name, info in client.server_info(timeout=10).items()
  }


def _save(client, directory: pathlib.Path) -> None:
  """Saves the tables and deletes what was saved before."""
  earlier = [path for path in directory.glob('*') if path.is_dir()]
  client.checkpoint()
  for path in earlier:
    shutil.rmtree(path, ignore_errors=True)


def run_actor(
  experiment: experiment_lib.ExperimentConfig,
  index: int,
  settings: settings_lib.Settings,
  replay_address: str,
  learner_client: Any,
  counter_client: Any,
) -> None:
  """Acts in several environments until no steps are left.

  Args:
    experiment: what runs.
    index: of the actor.
    settings: of the run.
    replay_address: of the replay server.
    learner_client: of the learner, from which variables come.
    counter_client: of the counter, which grants steps.
  """
  with (
    processes.node(f'actor, started as {index}') as stop,
    contextlib.ExitStack() as stack,
  ):
    import reverb

    spec = experiment_environments.read_spec(experiment)
    network = experiment.network_factory(spec)
    builder = acting.with_timeout(experiment.builder, settings.stall_timeout_s)
    policy = builder.make_policy(network, spec)
    source = variables.RemoteVariables(
      processes.Remote(learner_client, 'learner'),
      variables.make_structure(builder, network, spec),
      settings.variables_period_s,
      stop,
    )
    if processes.is_standby():
      acting.compile_policy(experiment, policy, source)
      index = processes.take_place()
    processes.keep_to_cpu(index)
    client = reverb.Client(replay_address)
    client.server_info(timeout=_SERVER_START_S)
    adder = builder.make_adder(
      client, spec, policy, experiment.num_environments
    )
    stack.callback(adder.close)
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    loop = acting.ActorLoop(experiment, index, settings, remote, stop)
    steps = loop.register()
    if steps is None:
      return
    key = jax.random.fold_in(jax.random.PRNGKey(experiment.seed), steps)
    actor = builder.make_actor(
      jax.random.fold_in(key, 1 + index),
      policy,
      source,
      adder,
      experiment.num_environments,
    )
    processes.yield_to_others()
    loop.run(actor, adder)
    remote.try_call('finish', counter.actor_name(index))


def run_evaluator(
  experiment: experiment_lib.ExperimentConfig,
  num_episodes: int,
  settings: settings_lib.Settings,
  learner_client: Any,
  counter_client: Any,
) -> None:
  """Evaluates the newest policy whenever the counter says so.

  Args:
    experiment: what runs.
    num_episodes: of an evaluation, at the least.
    settings: of the run.
    learner_client: of the learner, from which variables come.
    counter_client: of the counter.
  """
  with (
    processes.node(counter.EVALUATOR) as stop,
    contextlib.ExitStack() as stack,
  ):
    processes.keep_to_cpu(0)
    spec = experiment_environments.read_spec(experiment)
    builder = experiment.builder
    network = experiment.network_factory(spec)
    num_environments = min(num_episodes, experiment.num_environments)
    environment = environments.make_environments(
      experiment, num_environments, (environments.EVALUATION,), experiment.name
    )
    stack.callback(environment.close)
    source = variables.RemoteVariables(
      processes.Remote(learner_client, 'learner'),
      variables.make_structure(builder, network, spec),
      settings.variables_period_s,
      stop,
    )
    actor = builder.make_actor(
      jax.random.PRNGKey(experiment.seed + 1),
      builder.make_policy(
        network, spec, evaluation=experiment.evaluation_greedy
      ),
      source,
      num_environments=num_environments,
    )
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    while not stop.is_set():
      order = remote.call('poll_evaluator')
      if order == counter.LEAVE:
        break
      if order == counter.WAIT:
        stop.wait(_POLL_S)
        continue
      episodes = environment_loop.run_episodes(environment, actor, num_episodes)
      remote.call(
        'report_evaluation',
        [episode.episode_return for episode in episodes],
        [episode.episode_length for episode in episodes],
      )
    remote.try_call('finish', counter.EVALUATOR)
