"""Makes the Launchpad program of an experiment."""

import dataclasses
import functools
import math
import pathlib
import socket
from collections.abc import Sequence
from typing import NamedTuple

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
  inference,
  nodes,
  program_learners,
  replay_node,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

LABELS = (
  'counter',
  'replay',
  'keeper',
  'learner',
  'inference',
  'actor',
  'evaluator',
)

# Memory of the libraries that nodes share (TensorFlow, JAX and Reverb), and of
# each small node in addition.
_SHARED_BYTES = 450 * 2**20
_NODE_BYTES = 100 * 2**20

# Shorter than for other calls, since callers already have variables.
_VARIABLES_TIMEOUT_S = 10.0


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

  Adds an inference server with `settings.inference_server`, and a keeper if
  several learners hold the members of a population.

  The program ends when all steps are taken. If launched by `launchpad.launch`,
  nodes that die are not restarted; `runner.run_experiment` restarts them.

  Args:
    experiment: an agent or a population, and its task.
    eval_every: number of actor steps between evaluations; None for no
      evaluator.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run, made by `run_directory`; the learner
      continues from its newest checkpoint. By default a new one in
      `runs/<name>`.
    settings: periods and limits.
    name: name of the program.
    program: program to which the nodes are added; a new one if None.

  Returns:
    The program.

  Raises:
    ExposedError: if ports cannot be closed to other machines.
    ValueError: if there are too many actors for the machine's memory, a label
      is already used in `program`, a part of the experiment cannot be pickled,
      or the experiment keeps no checkpoints.
    OSError: if the replay server's port is taken.
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
      f'labels {in_use} must not occur twice in a program; choose other labels'
      f' than {LABELS} for your own nodes.'
    )
  directory = str(pathlib.Path(run_dir).absolute())
  handles = _add_servers(program, experiment, settings, directory, eval_every)
  num_members = experiment.population.num_members
  with program.group('actor'):
    for index in range(settings.num_actors):
      own = shares.learners_of(index, settings.num_learners, num_members)
      program.add_node(
        lp.PyNode(
          nodes.run_actor,
          experiment,
          index,
          settings,
          [handles.replays[number] for number in own],
          handles.keeper,
          handles.policies[:1]
          if settings.inference_server
          else [handles.policies[number] for number in own],
          handles.counter,
        )
      )
  if eval_every:
    program.add_node(
      lp.PyNode(
        nodes.run_evaluator,
        experiment,
        num_eval_episodes,
        settings,
        handles.variables,
        handles.counter,
      ),
      label='evaluator',
    )
  return program


class _Handles(NamedTuple):
  """Handles of the servers of a program.

  Attributes:
    replays: one for each learner; becomes the addresses of its replay servers.
    counter: handle of the counter.
    keeper: handle of the node that seats members.
    variables: handles of the learners that hold different members.
    policies: handles of all learners, or of the inference server.
  """

  replays: Sequence[base.Handle]
  counter: lp.CourierHandle
  keeper: lp.CourierHandle
  variables: Sequence[lp.CourierHandle]
  policies: Sequence[lp.CourierHandle]


def _add_servers(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  directory: str,
  eval_every: int | None,
) -> _Handles:
  """Adds counter, replays, learners and an optional inference server."""
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
  call = functools.partial(
    program_learners.client_of, timeout_s=program_learners.CALL_TIMEOUT_S
  )
  counter_handle = call(counter_node)
  with program.group('replay'):
    replays = [
      program.add_node(
        replay_node.ReplayNode(
          experiment, directory, settings, index, counter_handle
        )
      )
      for index in range(settings.num_learners)
    ]
  learners, keeper = program_learners.add(
    program, experiment, directory, settings, replays, counter_handle
  )
  # Learners of a single member all have the same variables.
  own = learners if keeper is not learners[0] else learners[:1]
  variables = [
    program_learners.client_of(learner, _VARIABLES_TIMEOUT_S) for learner in own
  ]
  policies = learners
  if settings.inference_server:
    num_threads = program_learners.num_threads(experiment, settings)
    policies = [
      courier_node(
        inference.InferenceServer,
        experiment,
        settings,
        variables,
        counter_handle,
        courier_kwargs={'thread_pool_size': num_threads},
      )
    ]
    program.add_node(policies[0], label='inference')
  return _Handles(
    replays,
    counter_handle,
    call(keeper),
    variables,
    [call(policy) for policy in policies],
  )


def _settle_waiting(
  settings: settings_lib.Settings, experiment: experiment_lib.ExperimentConfig
) -> settings_lib.Settings:
  """Returns settings without `actors_wait` if actors cannot fill a batch.

  Actors that wait for the learner must together write the trajectories of a
  batch to a replay server, otherwise the learner would wait for them as well.
  """
  num_actors, num_learners = settings.num_actors, settings.num_learners
  if experiment.population.num_members == 1:
    num_actors //= num_learners
  num_written = num_actors * experiment.make_seating().seats_per_member
  batch_size = shares.replay_config(experiment, num_learners).batch_size
  fills = num_written >= batch_size
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
    experiment: an agent or a population, and its task.
    eval_every: number of actor steps between evaluations; None for no
      evaluator.
    settings: settings of the run.

  Returns:
    The experiment with the spec of its game.

  Raises:
    ExposedError: if ports cannot be closed to other machines.
    ValueError: see `make_distributed_experiment`.
    OSError: if the replay server's port is taken.
  """
  shares.check(experiment, settings)
  num_nodes = 1 + 2 * settings.num_learners + settings.num_actors
  num_nodes += bool(eval_every) + settings.inference_server
  num_nodes += shares.has_keeper(
    experiment.population.num_members, settings.num_learners
  )
  _check(experiment, settings.num_actors, num_nodes)
  _check_picklable(experiment)
  spec = experiment.read_game_spec()
  memory_checks.check_fits(experiment.agent, experiment.num_environments, spec)
  players.check_specs(experiment.opponents, spec.environment)
  prepared = experiment.replace(game_spec=spec)
  prepared.make_seating()
  return prepared


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
        f' processes ({error}); create its unpicklable parts in the process'
        ' that uses them, e.g. in a function at the top level of a module.'
      ) from error
