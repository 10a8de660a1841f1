"""Makes the Launchpad program of an experiment."""

import dataclasses
import pathlib
import socket
from typing import Any

import cloudpickle
import launchpad as lp
import psutil
from launchpad.nodes import base

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import experiment_environments, run_directory
from ftwax.runtime.distributed import (
  counter,
  learner,
  nodes,
)
from ftwax.runtime.distributed import settings as settings_lib

LABELS = ('counter', 'replay', 'learner', 'actor', 'evaluator')

# Resident memory of a node, most of it code: TensorFlow, JAX and Reverb.
_NODE_BYTES = 600 * 2**20

# A call that takes longer has failed.
_CALL_TIMEOUT_S = 20.0
_VARIABLES_TIMEOUT_S = 10.0


def make_distributed_experiment(
  experiment: experiment_lib.ExperimentConfig,
  num_actors: int,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  settings: settings_lib.Settings | None = None,
  name: str = 'ftwax',
  program: lp.Program | None = None,
) -> lp.Program:
  """Makes the program: counter, replay, learner, actors, evaluator.

  It ends by itself when all steps are taken. Launched by `launchpad.launch`
  nothing restarts a node that dies; `runner.run_distributed` does.

  Args:
    experiment: what to run.
    num_actors: processes that act, each in `experiment.num_environments`.
    eval_every: actor steps between evaluations; None for no evaluator.
    num_eval_episodes: episodes of an evaluation, at the least.
    run_dir: directory of the run, made by `run_directory`; the learner goes on
      from the newest checkpoint in it. By default a new one in `runs/<name>`.
    settings: periods and limits.
    name: of the program.
    program: to which the nodes are added; a new one if None.

  Returns:
    The program.

  Raises:
    ValueError: there are too many actors for the machine, a label is in use in
      `program`, a part of the experiment cannot be sent to another process, or
      the experiment keeps no checkpoints.
    OSError: the replay server's port is taken.
  """
  if run_dir is None:
    prepare(experiment, num_actors, eval_every)
    run_dir = run_directory.create(
      'runs', experiment.name, experiment.seed, experiment
    )
  experiment = prepare(experiment, num_actors, eval_every)
  settings = settings or settings_lib.Settings()
  program = program or lp.Program(name)
  in_use = sorted(set(LABELS) & set(program.groups))
  if in_use:
    raise ValueError(
      f'labels {in_use} must not be used twice in a program; choose other'
      f' labels than {LABELS} for your own nodes.'
    )
  directory = str(pathlib.Path(run_dir).absolute())

  counter_node = lp.CourierNode(
    counter.Counter, experiment, directory, num_actors, eval_every
  )
  program.add_node(counter_node, label='counter')

  def counter_handle():
    return _client_of(counter_node, _CALL_TIMEOUT_S)

  replay_node = ReplayNode(experiment, directory, settings, counter_handle())
  replay_address = program.add_node(replay_node, label='replay')
  learner_node = lp.CourierNode(
    learner.Learner,
    experiment,
    directory,
    settings,
    replay_address,
    counter_handle(),
  )
  program.add_node(learner_node, label='learner')
  with program.group('actor'):
    for index in range(num_actors):
      program.add_node(
        lp.PyNode(
          nodes.run_actor,
          experiment,
          index,
          settings,
          replay_address,
          _client_of(learner_node, _VARIABLES_TIMEOUT_S),
          counter_handle(),
        )
      )
  if eval_every:
    program.add_node(
      lp.PyNode(
        nodes.run_evaluator,
        experiment,
        num_eval_episodes,
        settings,
        _client_of(learner_node, _VARIABLES_TIMEOUT_S),
        counter_handle(),
      ),
      label='evaluator',
    )
  return program


def prepare(
  experiment: experiment_lib.ExperimentConfig,
  num_actors: int,
  eval_every: int | None,
) -> experiment_lib.ExperimentConfig:
  """Checks what can be checked before anything is started.

  Args:
    experiment: what to run.
    num_actors: processes that act.
    eval_every: actor steps between evaluations; None for no evaluator.

  Returns:
    The experiment, with the environment's spec.

  Raises:
    ValueError: see `make_distributed_experiment`.
    OSError: the replay server's port is taken.
  """
  _check(experiment, num_actors, eval_every)
  _check_picklable(experiment)
  return experiment.replace(
    environment_spec=experiment_environments.read_spec(experiment)
  )


class ReplayNode(lp.PyNode):
  """The replay server; its handle is an address rather than a client.

  Launchpad's own node loads TensorFlow already where the program is made, and
  cannot be told when to end.
  """

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    counter_handle: Any,
  ):
    """Makes the node; see `nodes.run_replay`."""
    self._address = lp.Address('reverb')
    self._port = experiment.replay_port
    super().__init__(
      nodes.run_replay,
      experiment,
      directory,
      settings,
      AddressHandle(self._address),
      counter_handle,
    )
    self.allocate_address(self._address)

  def create_handle(self) -> 'AddressHandle':
    """Returns what becomes the server's address where it is used."""
    return self._track_handle(AddressHandle(self._address))

  def bind_addresses(self, **kwargs: Any) -> None:
    """Binds the address to the experiment's port, or to a free one."""
    if self._port is None:
      super().bind_addresses(**kwargs)
    else:
      self._address.bind(_FixedPort(self._port))


class AddressHandle(base.Handle):
  """Becomes an address, `host:port`."""

  def __init__(self, address: lp.Address):
    self._address = address

  def dereference(self) -> str:
    """Returns the address."""
    return self._address.resolve()


class _FixedPort(lp.AbstractAddressBuilder):
  def __init__(self, port: int):
    self._port = port

  def build(self) -> str:
    return f'localhost:{self._port}'


def _client_of(node: lp.CourierNode, timeout_s: float) -> lp.CourierHandle:
  """Returns a handle whose client fails at once if the node is not there."""
  handle = node.create_handle()
  handle.set_client_kwargs(call_timeout=timeout_s, wait_for_ready=False)
  return handle


def _check(experiment, num_actors, eval_every):
  if isinstance(experiment, experiment_lib.PopulationExperimentConfig):
    raise ValueError(
      f'experiment ({experiment.name!r}, of a population) must be of one agent'
      " for a distributed run; train populations with runtime='device'."
    )
  if num_actors < 1:
    raise ValueError(f'num_actors ({num_actors}) must be at least 1; choose 2.')
  if experiment.checkpointing is None:
    raise ValueError(
      'checkpointing (None) must be set for a distributed run, in which a'
      ' learner that dies goes on from its checkpoint; choose'
      ' CheckpointingConfig().'
    )
  num_nodes = 3 + num_actors + bool(eval_every)
  available = psutil.virtual_memory().available
  if num_nodes * _NODE_BYTES > available:
    fitting = available // _NODE_BYTES - 3 - bool(eval_every)
    raise ValueError(
      f'num_actors ({num_actors}) must fit into memory, where {num_nodes} nodes'
      f' take {num_nodes * _NODE_BYTES / 2**30:.1f} GiB and'
      f' {available / 2**30:.1f} GiB are available; choose'
      f' {max(fitting, 1)} or fewer, with more environments each.'
    )
  port = experiment.replay_port
  if port is not None:
    try:
      socket.create_server(('', port)).close()
    except OSError as error:
      raise OSError(
        f'replay_port ({port}) must be free and is in use; choose another, or'
        ' None for any that is free.'
      ) from error


def _check_picklable(experiment):
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
