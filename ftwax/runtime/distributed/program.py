"""Makes the Launchpad program of an experiment."""

import dataclasses
import functools
import math
import pathlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import launchpad as lp
import psutil
from launchpad.nodes import base

from ftwax import loopback
from ftwax.population import players
from ftwax.records import run_directory
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import memory_checks
from ftwax.runtime.distributed import (
  counter,
  courier_nodes,
  follower_node,
  inference,
  learner_node,
  nodes,
  replay_node,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

LABELS = ('counter', 'replay', 'learner', 'inference', 'actor', 'evaluator')

# Memory of the code that nodes share, TensorFlow, JAX and Reverb, and of a
# small node beside that.
_SHARED_BYTES = 450 * 2**20
_NODE_BYTES = 100 * 2**20

# A call that takes longer has failed.
_CALL_TIMEOUT_S = 20.0
_VARIABLES_TIMEOUT_S = 10.0

# Requests of actors that died may hold a thread of a server for a while.
_SPARE_THREADS = 16


def make_distributed_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  settings: settings_lib.Settings | None = None,
  name: str = 'ftwax',
  program: lp.Program | None = None,
) -> lp.Program:
  """Makes the program: counter, replay, learner, actors, evaluator.

  With `settings.inference_server` there is that, too.

  It ends by itself when all steps are taken. Launched by `launchpad.launch`
  nothing restarts a node that dies; `runner.run_distributed` does.

  Args:
    experiment: an agent or a population and its task.
    eval_every: actor steps between evaluations; None for no evaluator.
    num_eval_episodes: episodes of an evaluation, at the least.
    run_dir: directory of the run, made by `run_directory`; the learner
      continues from the newest checkpoint in it. By default a new one in
      `runs/<name>`.
    settings: periods and limits.
    name: of the program.
    program: to which the nodes are added; a new one if None.

  Returns:
    The program.

  Raises:
    ExposedError: ports cannot be closed to other machines.
    ValueError: there are too many actors for the machine, a label is in use in
      `program`, a part of the experiment cannot be sent to another process, or
      the experiment keeps no checkpoints.
    OSError: the replay server's port is taken.
  """
  settings = settings or settings_lib.Settings()
  prepared = prepare(experiment, eval_every, settings)
  if run_dir is None:
    run_dir = run_directory.create(
      'runs', experiment.name, experiment.seed, experiment
    )
  experiment = prepared
  settings = _settle_waiting(settings, experiment)
  program = program or lp.Program(name)
  in_use = sorted(set(LABELS) & set(program.groups))
  if in_use:
    raise ValueError(
      f'labels {in_use} must not be used twice in a program; choose other'
      f' labels than {LABELS} for your own nodes.'
    )
  directory = str(pathlib.Path(run_dir).absolute())
  handles = _add_servers(program, experiment, settings, directory, eval_every)
  with program.group('actor'):
    for index in range(settings.num_actors):
      program.add_node(
        lp.PyNode(
          nodes.run_actor,
          experiment,
          index,
          settings,
          handles.replays[index % settings.num_learners],
          handles.learner(_CALL_TIMEOUT_S),
          handles.policies[index % settings.num_learners](_CALL_TIMEOUT_S),
          handles.counter(_CALL_TIMEOUT_S),
        )
      )
  if eval_every:
    program.add_node(
      lp.PyNode(
        nodes.run_evaluator,
        experiment,
        num_eval_episodes,
        settings,
        handles.learner(_VARIABLES_TIMEOUT_S),
        handles.counter(_CALL_TIMEOUT_S),
      ),
      label='evaluator',
    )
  return program


class _Handles(NamedTuple):
  """Handles of the servers of a program.

  Attributes:
    replays: become the addresses of the replay servers of each learner.
    counter: returns a handle of the counter, whose calls fail after a time.
    learner: likewise of the first learner.
    policies: likewise of each learner, or of the inference server in its place.
  """

  replays: Sequence[base.Handle]
  counter: Callable[[float], lp.CourierHandle]
  learner: Callable[[float], lp.CourierHandle]
  policies: Sequence[Callable[[float], lp.CourierHandle]]


def _add_servers(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  directory: str,
  eval_every: int | None,
) -> _Handles:
  """Adds counter, replays, learners and, if asked for, inference server."""
  courier_node = functools.partial(courier_nodes.CourierNode, experiment.expose)
  counter_node = courier_node(
    counter.Counter,
    experiment,
    directory,
    settings.num_actors,
    eval_every,
    settings.num_learners,
  )
  program.add_node(counter_node, label='counter')
  counter_handle = functools.partial(_client_of, counter_node)
  counter_client = counter_handle(_CALL_TIMEOUT_S)
  with program.group('replay'):
    replays = [
      program.add_node(
        replay_node.ReplayNode(
          experiment, directory, settings, index, counter_client
        )
      )
      for index in range(settings.num_learners)
    ]
  # Each request of an actor holds a thread until it has a reply.
  num_members = experiment.population.num_members
  num_threads = settings.num_actors * num_members + _SPARE_THREADS
  courier_kwargs = {'thread_pool_size': num_threads}
  learners = _add_learners(
    program,
    experiment,
    settings,
    directory,
    replays,
    counter_client,
    courier_kwargs,
  )
  policies = learners
  if settings.inference_server:
    server = courier_node(
      inference.InferenceServer,
      experiment,
      settings,
      _client_of(learners[0], _VARIABLES_TIMEOUT_S),
      counter_client,
      courier_kwargs=courier_kwargs,
    )
    program.add_node(server, label='inference')
    policies = [server for _ in learners]
  return _Handles(
    replays,
    counter_handle,
    functools.partial(_client_of, learners[0]),
    [functools.partial(_client_of, policy) for policy in policies],
  )


def _add_learners(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  directory: str,
  replays: Sequence[base.Handle],
  counter_client: lp.CourierHandle,
  courier_kwargs: dict[str, Any],
) -> list[lp.CourierNode]:
  """Adds the first learner, where the coordinator is, and its followers."""
  addresses = [lp.Address('coordinator')] if settings.num_learners > 1 else []
  coordinator = replay_node.AddressesHandle(addresses)
  courier_node = functools.partial(
    courier_nodes.CourierNode, experiment.expose, courier_kwargs=courier_kwargs
  )
  first = courier_node(
    learner_node.Learner,
    experiment,
    directory,
    settings,
    replays[0],
    counter_client,
    0,
    coordinator,
  )
  for address in addresses:
    first.allocate_address(address)
  followers = [
    courier_node(
      follower_node.Follower,
      experiment,
      settings,
      replay,
      counter_client,
      index,
      coordinator,
    )
    for index, replay in enumerate(replays[1:], 1)
  ]
  learners = [first, *followers]
  with program.group('learner'):
    for learner in learners:
      program.add_node(learner)
  return learners


def _settle_waiting(
  settings: settings_lib.Settings, experiment: experiment_lib.ExperimentConfig
) -> settings_lib.Settings:
  """Returns settings in which actors wait for the learner only if they can.

  Those of a replay server together must have written the trajectories of a
  batch.
  """
  num_actors, num_learners = settings.num_actors, settings.num_learners
  if experiment.population.num_members == 1:
    num_actors //= num_learners
  num_written = num_actors * experiment.make_seating().seats_per_member
  builder = shares.replay_builder(experiment, num_learners)
  fills = num_written >= builder.config.batch_size
  return dataclasses.replace(
    settings, actors_wait=settings.actors_wait and fills
  )


def prepare(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None,
  settings: settings_lib.Settings,
) -> experiment_lib.ExperimentConfig:
  """Checks an experiment before anything is started.

  Args:
    experiment: an agent or a population and its task.
    eval_every: actor steps between evaluations; None for no evaluator.
    settings: of the run.

  Returns:
    The experiment, with the spec of its game.

  Raises:
    ExposedError: ports cannot be closed to other machines.
    ValueError: see `make_distributed_experiment`.
    OSError: the replay server's port is taken.
  """
  shares.check(experiment, settings)
  num_nodes = 1 + 2 * settings.num_learners + settings.num_actors
  num_nodes += bool(eval_every) + settings.inference_server
  _check(experiment, settings.num_actors, num_nodes)
  _check_picklable(experiment)
  spec = experiment.read_game_spec()
  memory_checks.check_fits(experiment, spec)
  players.check_specs(experiment.opponents, spec.environment)
  prepared = experiment.replace(game_spec=spec)
  prepared.make_seating()
  return prepared


def _client_of(node: lp.CourierNode, timeout_s: float) -> lp.CourierHandle:
  """Returns a handle whose client fails at once if the node is not there."""
  handle = node.create_handle()
  handle.set_client_kwargs(call_timeout=timeout_s, wait_for_ready=False)
  return handle


def _check(
  experiment: experiment_lib.ExperimentConfig, num_actors: int, num_nodes: int
) -> None:
  if experiment.checkpointing is None:
    raise ValueError(
      'checkpointing (None) must be set for a distributed run, in which a'
      ' learner that dies continues from its checkpoint; choose'
      ' CheckpointingConfig().'
    )
  available = psutil.virtual_memory().available
  needed = _SHARED_BYTES + num_nodes * _NODE_BYTES
  if needed > available:
    fitting = num_actors - math.ceil((needed - available) / _NODE_BYTES)
    raise ValueError(
      f'num_actors ({num_actors}) must fit into memory, where {num_nodes} nodes'
      f' take {needed / 2**30:.1f} GiB or more and'
      f' {available / 2**30:.1f} GiB are available; choose'
      f' {max(fitting, 1)} or fewer, with more environments each.'
    )
  if not experiment.expose:
    loopback.check()
  port = experiment.replay_port
  if port is not None:
    try:
      socket.create_server(('', port)).close()
    except OSError as error:
      raise OSError(
        f'replay_port ({port}) must be free and is in use; choose another, or'
        ' None for any that is free.'
      ) from error


def _check_picklable(experiment: experiment_lib.ExperimentConfig) -> None:
  for field in dataclasses.fields(experiment):
    value = getattr(experiment, field.name)
    try:
      cloudpickle.dumps(value)
    except Exception as error:
      raise ValueError(
        f'{field.name} ({value!r}) must be picklable, to be sent to other'
        f' processes ({error}); make what it holds in the process that uses it,'
        ' for instance with a function at the top level of a module.'
      ) from error
