"""The worker nodes of a run: replay, actor and evaluator.

Each is a function that runs in a process of a Launchpad program, or in tests in
a thread. Functions import what they need themselves, since some nodes do not
need TensorFlow.
"""

import contextlib
import itertools
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax

from ftwax.agents.actor_critic import replays
from ftwax.runtime import evaluation, prepare
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  actor_loop,
  counter,
  environments,
  processes,
  remote_policy,
  remote_variables,
  shares,
)
from ftwax.runtime.distributed import (
  settings as settings_lib,
)

_POLL_S = 1.0


def run_replay(
  experiment: experiment_lib.ExperimentConfig,
  directory: str,
  settings: settings_lib.Settings,
  index: int,
  addresses: Sequence[str],
  counter_client: Any,
) -> None:
  """Serves the replay tables until actors and learner have ended.

  Servers continue from their newest checkpoints in the run directory.

  Args:
    experiment: provides the tables.
    directory: directory of the run.
    settings: settings of the run.
    index: index of the node and of the learner that reads the tables.
    addresses: addresses of the servers; each server has all tables of one
      member that the learner holds.
    counter_client: client of the counter.
  """
  name = shares.node_names('replay', settings.num_learners)[index]
  with (
    processes.node(name) as stop,
    contextlib.ExitStack() as stack,
  ):
    processes.keep_to_cpu(0)
    from ftwax.replay.reverb import servers as servers_lib

    checkpoints_dir = pathlib.Path(directory) / 'replay'
    spec = experiment.read_game_spec().environment
    agent = shares.replay_config(experiment, settings.num_learners)
    policy = agent.make_policy(agent.make_network(spec), spec)
    servers = []
    for server_index, address in enumerate(addresses, index * len(addresses)):
      path = checkpoints_dir / str(server_index)
      tables = replays.make_tables(agent, spec, policy)
      port = int(address.rpartition(':')[2])
      server = servers_lib.make_server(tables, port, experiment.expose, path)
      stack.callback(servers_lib.stop, server)
      servers.append((server.localhost_client(), path))

    def save_all() -> None:
      for client, path in servers:
        servers_lib.save(client, path)

    remote = processes.Remote(counter_client, 'counter')
    saved_at = time.monotonic()
    while not stop.wait(_POLL_S):
      if remote.try_call('report_replay', index, _statistics(servers)):
        break
      if time.monotonic() - saved_at >= settings.replay_save_s:
        save_all()
        saved_at = time.monotonic()
    save_all()
    # Servers stop before the run hears that they are done.
    stack.close()
    remote.try_call('finish', name)


def _statistics(servers: Sequence[Any]) -> dict[str, Any]:
  """Returns the size and limit of each table, summed over servers."""
  sizes: dict[str, Any] = {}
  for client, _ in servers:
    for name, info in client.server_info(timeout=10).items():
      size, limit = sizes.get(name, (0, 0))
      sizes[name] = [size + info.current_size, limit + info.max_size]
  return sizes


def run_actor(
  experiment: experiment_lib.ExperimentConfig,
  index: int,
  settings: settings_lib.Settings,
  replay_addresses: Sequence[Sequence[str]],
  keeper_client: Any,
  policy_clients: Sequence[Any],
  counter_client: Any,
) -> None:
  """Plays games for all members until no steps are left.

  Args:
    experiment: an agent or a population, and its task.
    index: index of the actor.
    settings: settings of the run.
    replay_addresses: addresses of the members' replay servers, one list for
      each learner.
    keeper_client: client of the node that seats members: the keeper, or the
      learner of all members.
    policy_clients: clients of the learners that read these servers and provide
      variables, or of the inference server.
    counter_client: client of the counter, which grants steps.
  """
  with (
    processes.node(counter.actor_name(index)) as stop,
    contextlib.ExitStack() as stack,
  ):
    if not experiment.environment_processes:  # Children would share the CPU.
      processes.keep_to_cpu(index)
    from ftwax.runtime.local import members

    spec = experiment.read_game_spec()
    seating = experiment.make_seating()
    num_rows = seating.seats_per_member
    agent = experiment.agent.replace(replay_timeout_s=settings.stall_timeout_s)
    policy = agent.make_policy(
      agent.make_network(spec.environment), spec.environment
    )
    adders = []
    for address in itertools.chain(*replay_addresses):
      client = processes.connect_to_replay(address, settings.replay_start_s)
      adders.append(
        replays.make_adder(agent, spec.environment, policy, client, num_rows)
      )
      stack.callback(adders[-1].close)
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    keeper = processes.Remote(keeper_client, counter.KEEPER, stop=stop)
    loop = actor_loop.ActorLoop(
      experiment, index, settings, remote, keeper, seating, stop
    )
    steps = loop.register()
    if steps is None:
      return
    # An actor that replaces a dead one does not repeat its random numbers.
    key = jax.random.fold_in(jax.random.PRNGKey(experiment.seed), steps)
    key = jax.random.fold_in(key, 1 + index)
    if settings.inference_server:
      (client,) = policy_clients
      server = processes.Remote(client, counter.INFERENCE, stop=stop)
      actors = remote_policy.make_actors(
        server, index, policy, spec.environment, key, adders, num_rows, stop
      )
      stack.callback(actors.close)
    else:
      learners = [
        processes.Remote(client, 'learner', stop=stop)
        for client in policy_clients
      ]
      sources = remote_variables.make_member_sources(
        experiment, settings, learners, stop, adders
      )
      actors = members.make_actors(key, policy, sources, num_rows, adders)
    processes.yield_to_others()
    loop.run(actors)
    remote.try_call('finish', counter.actor_name(index))


def run_evaluator(
  experiment: experiment_lib.ExperimentConfig,
  num_episodes: int,
  settings: settings_lib.Settings,
  learner_clients: Sequence[Any],
  counter_client: Any,
) -> None:
  """Evaluates the newest policies whenever the counter requests it.

  Args:
    experiment: an agent or a population, and its task.
    num_episodes: minimum number of episodes of each member in an evaluation.
    settings: settings of the run.
    learner_clients: clients of the learners that hold different members and
      provide their variables.
    counter_client: client of the counter.
  """
  with (
    processes.node(counter.EVALUATOR) as stop,
    contextlib.ExitStack() as stack,
  ):
    if not experiment.environment_processes:
      processes.keep_to_cpu(0)
    from ftwax.runtime.local import evaluations

    learners = [
      processes.Remote(client, 'learner') for client in learner_clients
    ]
    evaluator = evaluations.Evaluator(
      # Read again, for the scripts of the game.
      prepare.prepare(experiment.replace(game_spec=None)),
      remote_variables.make_member_sources(
        experiment, settings, learners, stop
      ),
      num_episodes,
      (environments.EVALUATION,),
    )
    stack.callback(evaluator.close)
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    while not stop.is_set():
      order = remote.call('poll_evaluator')
      if order == counter.LEAVE:
        break
      if order == counter.WAIT:
        stop.wait(_POLL_S)
        continue
      row = evaluation.make_row(evaluator.run())
      remote.call('report_evaluation', remote.make_number(), row)
    remote.try_call('finish', counter.EVALUATOR)
