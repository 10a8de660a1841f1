"""The nodes that do a run's work: replay, actor, evaluator.

Each is a function that a process, or in tests a thread, of a Launchpad program
runs. What they import is imported there: some nodes do without TensorFlow.
"""

import contextlib
import pathlib
import shutil
import time
from collections.abc import Sequence
from typing import Any

import jax

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  actor_loop,
  counter,
  environments,
  inference,
  processes,
  remote_variables,
)
from ftwax.runtime.distributed import (
  settings as settings_lib,
)
from ftwax.runtime.host import environment_loop, experiment_environments

_POLL_S = 1.0


def run_replay(
  experiment: experiment_lib.ExperimentConfig,
  directory: str,
  settings: settings_lib.Settings,
  addresses: Sequence[str],
  counter_client: Any,
) -> None:
  """Serves the tables until actors and learner have ended.

  Servers go on from their newest checkpoints in the run's directory.

  Args:
    experiment: tells the tables.
    directory: of the run.
    settings: of the run.
    addresses: where servers listen, each with all tables; there is one, but for
      a population one for each member.
    counter_client: of the counter.
  """
  with (
    processes.node(counter.REPLAY) as stop,
    contextlib.ExitStack() as stack,
  ):
    processes.keep_to_cpu(0)
    import reverb

    checkpoints_dir = pathlib.Path(directory) / 'replay'
    spec = experiment_environments.read_spec(experiment)
    policy = experiment.builder.make_policy(
      experiment.network_factory(spec), spec
    )
    servers = []
    for index, address in enumerate(addresses):
      path = checkpoints_dir / str(index)
      server = reverb.Server(
        experiment.builder.make_replay_tables(spec, policy),
        port=int(address.rpartition(':')[2]),
        checkpointer=reverb.checkpointers.DefaultCheckpointer(str(path)),
      )
      stack.callback(server.stop)
      servers.append((server.localhost_client(), path))
    remote = processes.Remote(counter_client, 'counter')
    saved_at = time.monotonic()
    while not stop.wait(_POLL_S):
      if remote.try_call('report_replay', _statistics(servers)):
        break
      if time.monotonic() - saved_at >= settings.replay_save_s:
        _save(servers)
        saved_at = time.monotonic()
    _save(servers)
    stack.close()
    remote.try_call('finish', counter.REPLAY)


def _statistics(servers) -> dict[str, Any]:
  """Returns the size of each table and its limit, of all servers together."""
  sizes: dict[str, Any] = {}
  for client, _ in servers:
    for name, info in client.server_info(timeout=10).items():
      size, limit = sizes.get(name, (0, 0))
      sizes[name] = [size + info.current_size, limit + info.max_size]
  return sizes


def _save(servers) -> None:
  """Saves the tables and deletes what was saved before."""
  for client, directory in servers:
    earlier = [path for path in directory.glob('*') if path.is_dir()]
    client.checkpoint()
    for path in earlier:
      shutil.rmtree(path, ignore_errors=True)


def run_actor(
  experiment: experiment_lib.ExperimentConfig,
  index: int,
  settings: settings_lib.Settings,
  replay_addresses: Sequence[str],
  policy_client: Any,
  counter_client: Any,
) -> None:
  """Acts in several environments until no steps are left.

  Args:
    experiment: what runs.
    index: of the actor.
    settings: of the run.
    replay_addresses: of the replay server.
    policy_client: of the learner, from which variables come, or of the
      inference server.
    counter_client: of the counter, which grants steps.
  """
  with (
    processes.node(counter.actor_name(index)) as stop,
    contextlib.ExitStack() as stack,
  ):
    processes.keep_to_cpu(index)
    spec = experiment_environments.read_spec(experiment)
    builder = actor_loop.with_timeout(
      experiment.builder, settings.stall_timeout_s
    )
    policy = builder.make_policy(experiment.network_factory(spec), spec)
    client = processes.connect_to_replay(
      replay_addresses[0], settings.replay_start_s
    )
    adder = builder.make_adder(
      client, spec, policy, experiment.num_environments
    )
    stack.callback(adder.close)
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    loop = actor_loop.ActorLoop(experiment, index, settings, remote, stop)
    steps = loop.register()
    if steps is None:
      return
    key = jax.random.fold_in(jax.random.PRNGKey(experiment.seed), steps)
    key = jax.random.fold_in(key, 1 + index)
    rows = (adder, experiment.num_environments)
    if settings.inference_server:
      server = processes.Remote(policy_client, counter.INFERENCE, stop=stop)
      remote_policy = inference.RemotePolicy(server, index, policy, spec, stop)
      actor = inference.make_actor(remote_policy, key, *rows)
    else:
      learner = processes.Remote(policy_client, counter.LEARNER)
      source = remote_variables.make_source(
        experiment, settings, learner, stop, [adder]
      )
      actor = builder.make_actor(key, policy, source, *rows)
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
    learner = processes.Remote(learner_client, counter.LEARNER)
    source = remote_variables.make_source(experiment, settings, learner, stop)
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
        remote.make_ticket(),
        [episode.episode_return for episode in episodes],
        [episode.episode_length for episode in episodes],
      )
    remote.try_call('finish', counter.EVALUATOR)
