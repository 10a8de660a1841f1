"""The nodes of a run as a Launchpad program with Reverb, on Python 3.10.

The nodes are those of every distributed run. They are served by Courier, and
trajectories go through Reverb servers. Launchpad starts the processes; if one
of them dies, Launchpad ends the program, and `--resume` continues the run.
"""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# First, since it says what all others need.
from ftwax.acme import builder, loopback, namespaces, servers

# isort: split

import jax
import launchpad as lp
import numpy as np
import reverb
from absl import flags
from launchpad import address as lp_address
from launchpad.launch import worker_manager
from launchpad.nodes.courier import courier_utils
from launchpad.nodes.python import local_multi_processing

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, run_directory
from ftwax.runtime import (
  evaluation,
  generations,
  live_page,
  prepare,
  recorded,
  run_records,
  runs,
  signals,
)
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  engine,
  runner,
)
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.local import reverb_learning

LABELS = ('coordinator', 'replay', 'learner', 'actor', 'evaluator')

_POLL_S = 0.2

# Seconds that nodes serve after a signal, so that the coordinator can save, and
# those after which Launchpad kills them.
_GRACE_S, _NOTICE_S = 50.0, 60

# Maximum seconds until nodes know that the run is over.
_FINISH_S = 5.0


def make_program(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | str | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  settings: settings_lib.Settings | None = None,
  name: str = 'ftwax',
  program: lp.Program | None = None,
) -> lp.Program:
  """Makes the program: coordinator, replays, learners, actors, evaluator.

  It ends by itself when all steps are taken.

  Args:
    experiment: an agent or a population, and its task.
    eval_every: see `run.run_experiment`; None for no evaluator.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint in `run_dir`, by
      default in the newest run of this name.
    settings: numbers of nodes.
    name: name of the program.
    program: program to which the nodes are added; a new one if None.

  Returns:
    The program.

  Raises:
    ExposedError: if ports cannot be closed to other machines.
    RunDirectoryError: if the run directory cannot be made or resumed.
    ValueError: if a label is already used in `program`, or see `runner.check`.
  """
  period = evaluation.make_period(eval_every)
  settings = settings or settings_lib.Settings()
  parts = prepare.prepare(experiment)
  runner.check(parts, settings)
  recorded.check_reverb(parts)
  if settings.cluster != settings_lib.LOCAL:
    raise ValueError(
      f'cluster ({settings.cluster!r}) must be {settings_lib.LOCAL!r} with'
      ' Launchpad, as clusters need Ray; choose Python 3.11 or newer.'
    )
  if not experiment.expose:
    loopback.check()
  print(prepare.describe_replay(parts, is_local=False), end='', flush=True)
  program = program or lp.Program(name)
  in_use = sorted(set(LABELS) & set(program.groups))
  if in_use:
    raise ValueError(
      f'labels {in_use} must not occur twice in a program; choose other labels'
      f' than {LABELS} for your own nodes.'
    )
  # Errors of parts and nodes come before a run directory is made.
  directory = runs.open_run_directory(experiment, run_dir, resume)
  return _fill(
    program, experiment, directory, period, num_eval_episodes, settings
  )


def _fill(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  directory: pathlib.Path,
  period: evaluation.Period | None,
  num_eval_episodes: int,
  settings: settings_lib.Settings,
) -> lp.Program:
  """Adds the nodes of a run, which writes to `directory`, to a program."""
  handles = _add_nodes(
    program, experiment, settings, num_eval_episodes if period else None
  )
  program.add_node(
    CourierNode(
      experiment.expose,
      Coordination,
      experiment,
      period,
      num_eval_episodes,
      str(directory.absolute()),
      settings,
      handles,
    ),
    label='coordinator',
  )
  return program


def get_handles(program: lp.Program) -> dict[str, list[Any]]:
  """Returns handles of a program's nodes by label, for nodes of your own.

  Clients of `coordinator` answer `counts()`, those of `learner`
  `get_variables()`.

  Args:
    program: from `make_program`, before it is launched.
  """
  return {
    label: [node.create_handle() for node in program.groups[label]]
    for label in ('coordinator', 'learner')
  }


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  parts: prepare.Prepared,
  directory: pathlib.Path,
  eval_every: int | str | None,
  num_eval_episodes: int,
  settings: settings_lib.Settings,
) -> runs.RunResult:
  """Makes the program and launches it; see `run.run_experiment`."""
  if experiment.watch:  # Here, since no browser reaches the nodes' namespace.
    live_page.start(directory)
  if not experiment.expose:
    loopback.check()
  program = _fill(
    lp.Program('ftwax'),
    experiment.replace(watch=False),
    directory,
    evaluation.make_period(eval_every),
    num_eval_episodes,
    settings,
  )
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  flags.FLAGS['lp_termination_notice_secs'].value = _NOTICE_S
  # Nodes find the modules that this process finds.
  own = {'PYTHONPATH': os.pathsep.join(path for path in sys.path if path)}
  cpu = {**own, 'JAX_PLATFORMS': 'cpu'}
  with contextlib.ExitStack() as stack:
    interpreter = ''  # Launchpad's default.
    if not experiment.expose:
      interpreter = stack.enter_context(namespaces.make_interpreter())
    resources = {
      label: local_multi_processing.PythonProcess(
        env=own if label == 'learner' else cpu,
        _absolute_interpreter_path=interpreter,
      )
      for label in program.groups
    }
    with (
      warnings.catch_warnings(),
      _notices_as_requests() as answer,
    ):
      # Launchpad drops the objects of processes, and knows them by their ids.
      warnings.simplefilter('ignore', ResourceWarning)
      manager = lp.launch(
        program,
        launch_type='local_mp',
        terminal='current_terminal',
        local_resources=resources,
      )
      answer()
      manager.wait()
  if manager.stop_event().is_set():
    print('Interrupted.', run_records.describe_saved(directory), flush=True)
    raise KeyboardInterrupt
  return _read_result(parts, directory)


@contextlib.contextmanager
def _notices_as_requests() -> Iterator[Callable[[], None]]:
  """Ends a program by what clusters send as SIGTERM does: it saves.

  They may send it to the processes of nodes, too, which ignore it from their
  start on, as this process does until the caller says that they have started.
  What a program handles itself stays with it.

  A context manager.

  Yields:
    A function to call once the nodes have started.
  """
  is_main = threading.current_thread() is threading.main_thread()
  free = [
    signal.Signals[name]
    for name in (signals.NOTICES if is_main else ())
    if signal.getsignal(signal.Signals[name]) is signal.SIG_DFL
  ]

  def ask(signum: int, frame: Any) -> None:
    del signum, frame
    os.kill(os.getpid(), signal.SIGTERM)

  def answer() -> None:
    for signum in free:
      signal.signal(signum, ask)

  for signum in free:
    signal.signal(signum, signal.SIG_IGN)
  try:
    yield answer
  finally:
    for signum in free:
      signal.signal(signum, signal.SIG_DFL)


class Replay:
  """The Reverb servers of a learner's members."""

  def __init__(self, parts: prepare.Prepared, num_learners: int):
    """Starts a server for each member, which K learners share."""
    share = parts.experiment.population.num_members // num_learners
    self._servers = [
      servers.make_server(
        builder.make_tables(parts.replays), expose=parts.experiment.expose
      )
      for _ in range(share)
    ]

  def addresses(self) -> list[str]:
    """Returns the address of each member's server."""
    return [f'localhost:{server.port}' for server in self._servers]

  def close(self) -> None:
    """Stops the servers."""
    for server in self._servers:
      servers.stop(server)


class Server:
  """Serves the methods of a node until the coordinator has finished."""

  def __init__(self, make: Callable[..., Any], *clients: Any):
    """Makes the node at the first call.

    Args:
      make: makes the node.
      *clients: courier clients of other nodes, given to `make` as functions
        that return the addresses of replay servers.
    """
    self._make = functools.partial(
      make,
      *[functools.partial(_call, client, 'addresses') for client in clients],
    )
    self._node: Any = None
    self._lock = threading.Lock()  # Courier calls from several threads.
    self._is_finished = threading.Event()

  def call(self, method: str, payload: bytes) -> bytes:
    """Calls a method with pickled arguments; returns the pickled result."""
    return pickle.dumps(getattr(self._get(), method)(*pickle.loads(payload)))

  def get_variables(self, names: Sequence[str] = ()) -> list[Any]:
    """Returns the parameters of a learner's members, as acme's learners do.

    Args:
      names: ignored, since there is one tree.

    Returns:
      A list of one nested dict of arrays [N, ...].
    """
    del names
    return [jax.tree.map(np.asarray, self._get().variables().params)]

  def _get(self) -> Any:
    with self._lock:
      if self._node is None:
        self._node = self._make()
      return self._node

  def finish(self) -> None:
    """Ends the node."""
    self._is_finished.set()

  def run(self) -> None:
    """Waits for the end; after a signal, for some time."""
    stop = worker_manager.stop_event()
    while not self._is_finished.wait(_POLL_S) and not stop.is_set():
      pass
    if stop.is_set():
      self._is_finished.wait(_GRACE_S)
    if hasattr(self._node, 'close'):
      self._node.close()


class CourierEngine:
  """Carries the calls of a coordinator to nodes that Launchpad has started."""

  def __init__(self, clients: Mapping[str, Any]):
    """Connects to nodes.

    Args:
      clients: courier client of each node's `Server`, by the node's name.
    """
    self._clients = clients
    # A thread for each node keeps its calls in order.
    self._threads = {
      name: concurrent.futures.ThreadPoolExecutor(1) for name in clients
    }
    self._stop = worker_manager.stop_event()

  def start(self, nodes: Mapping[str, Callable[[], Any]]) -> None:
    """Does nothing: Launchpad has started the nodes."""

  def call(
    self, name: str, method: str, *args: Any, num_returns: int = 1
  ) -> list[engine.Reference]:
    """Calls a method of a node without waiting."""

    def call() -> Any:
      return _call(
        self._clients[name],
        method,
        *[arg.get() if isinstance(arg, _Part) else arg for arg in args],
      )

    future = self._threads[name].submit(call)
    if num_returns == 1:
      return [_Part(name, future, None)]
    return [_Part(name, future, index) for index in range(num_returns)]

  def ping(self, name: str) -> engine.Reference:
    """Answers at once: supervision is Launchpad's."""
    future: concurrent.futures.Future[float] = concurrent.futures.Future()
    future.set_result(0.0)
    return _Part(name, future, None)

  def wait(
    self, references: Sequence[engine.Reference], timeout_s: float
  ) -> list[engine.Reference]:
    """Waits until any reference is ready; returns those that are.

    Raises:
      KeyboardInterrupt: if the program is stopped.
    """
    if self._stop.is_set():
      raise KeyboardInterrupt
    if not references:
      time.sleep(timeout_s)
    concurrent.futures.wait(
      [reference.future for reference in references],
      timeout_s,
      concurrent.futures.FIRST_COMPLETED,
    )
    return [one for one in references if one.future.done()]

  def get(
    self, reference: engine.Reference, timeout_s: float | None = None
  ) -> Any:
    """Waits for a result and returns it; see `engine.Engine`."""
    try:
      return reference.get(timeout_s)
    except concurrent.futures.TimeoutError as error:
      raise TimeoutError(f'no answer within {timeout_s} s') from error
    except Exception as error:
      raise engine.NodeFailedError(
        f'{reference.name} failed: {error}'
      ) from error

  def replace(self, name: str) -> None:
    """Does nothing: supervision is Launchpad's."""

  def close(self) -> None:
    """Ends all nodes."""
    for threads in self._threads.values():
      threads.shutdown(wait=False, cancel_futures=True)
    # Sent before the process of the coordinator ends.
    concurrent.futures.wait(
      [client.futures.finish() for client in self._clients.values()], _FINISH_S
    )
    self._clients = {}


class _Part:
  """A result of a call, or one part of a result."""

  def __init__(
    self,
    name: str,
    future: 'concurrent.futures.Future[Any]',
    index: int | None,
  ):
    self.name = name
    self.future = future
    self._index = index

  def get(self, timeout_s: float | None = None) -> Any:
    result = self.future.result(timeout_s)
    return result if self._index is None else result[self._index]


class CourierNode(lp.CourierNode):
  """Launchpad's courier node with its port closed to other machines."""

  def __init__(self, expose: bool, *args: Any, **kwargs: Any):
    """Makes the node.

    Args:
      expose: whether to leave the port open to other machines.
      *args: constructor of the object that is served, and its arguments.
      **kwargs: keyword arguments of the constructor.
    """
    super().__init__(*args, **kwargs)
    self._expose = expose

  def run(self) -> None:
    """Serves until the object's `run` returns."""
    instance = self._construct_instance()
    port = lp_address.get_port_from_address(self._address.resolve())
    server = courier_utils.make_courier_server(
      instance, port=port, **self._courier_kwargs
    )
    server.Start()
    try:
      if not self._expose:
        loopback.close_to_others(port)
      instance.run()
    finally:
      server.Stop()
      server.Join()


def _add_nodes(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  num_eval_episodes: int | None,
) -> dict[str, Any]:
  """Adds all nodes but the coordinator; returns their handles by name."""
  handles: dict[str, Any] = {}
  num_learners = settings.num_learners

  def add(name: str, make: Callable[..., Any], *clients: Any) -> None:
    label = name.partition('/')[0]
    node = CourierNode(experiment.expose, Server, make, *clients)
    with program.group(label):
      handles[name] = program.add_node(node)

  for index in range(num_learners):
    add(
      f'replay/{index}',
      functools.partial(runner.make_node, experiment, Replay, num_learners),
    )
  replays = [handles[f'replay/{index}'] for index in range(num_learners)]
  nodes = runner.make_nodes(experiment, settings, num_eval_episodes)
  for name, make in nodes.items():
    label, _, number = name.partition('/')
    if label == 'learner':
      make = functools.partial(_make_learner, make)
      add(name, make, replays[int(number)])
    elif label == 'actor':
      make = functools.partial(_make_actor, make)
      add(name, make, *replays)
    else:
      add(name, make)
  return handles


def _make_learner(
  make: Callable[..., Any], addresses: Callable[[], Sequence[str]]
) -> Any:
  """Makes a learner that reads from Reverb servers, one for each member."""

  def make_learner(
    parts: prepare.Prepared, *args: Any
  ) -> reverb_learning.Learner:
    learner = reverb_learning.Learner(parts, *args)
    learner.read(parts, [reverb.Client(address) for address in addresses()])
    return learner

  return make(make_learner=make_learner)


def _make_actor(
  make: Callable[..., Any], *replays: Callable[[], Sequence[str]]
) -> Any:
  """Makes an actor that writes to the Reverb servers of all learners."""

  def make_writer(parts: prepare.Prepared) -> Callable[..., Any]:
    clients = [
      reverb.Client(address) for replay in replays for address in replay()
    ]
    writer = reverb_learning.Writer(parts, clients)

    def write(
      trajectories: types.Trajectory, variables: types.ActorVariables
    ) -> list[tuple[int]]:
      writer.write(
        trajectories,
        int(np.max(variables.steps)),
        np.asarray(variables.internal_rewards),
      )
      # Learners count them.
      return [(parts.seating.seats_per_member,)] * len(replays)

    return write

  return make(make_writer=make_writer)


class Coordination:
  """Runs the coordinator; its process gets Launchpad's signals."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    period: evaluation.Period | None,
    num_eval_episodes: int,
    run_dir: str,
    settings: settings_lib.Settings,
    clients: Mapping[str, Any],
  ):
    """Stores what `runner.run_with` needs, and the clients of all nodes."""
    self._courier = courier = CourierEngine(clients)
    self._run_with = functools.partial(
      runner.run_with,
      lambda: courier,
      prepare.prepare(experiment),
      pathlib.Path(run_dir),
      resume=True,
      period=period,
      num_eval_episodes=num_eval_episodes,
      settings=settings,
      see_records=self._see,
    )
    self._records: run_records.RunRecords | None = None

  def counts(self) -> dict[str, float]:
    """Returns the progress of the run; see `run_records.Counts`."""
    counts = self._records.counts if self._records else run_records.Counts()
    return counts._asdict()

  def run(self) -> None:
    """Runs to the end."""
    # Beside the main thread, in which Launchpad handles signals.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
      try:
        thread.submit(self._run_with).result()
      except KeyboardInterrupt:
        pass  # It has saved.
      finally:
        self._courier.close()

  def _see(self, records: run_records.RunRecords) -> None:
    self._records = records


def _call(client: Any, method: str, *args: Any) -> Any:
  return pickle.loads(client.call(method, pickle.dumps(args)))


def _read_result(
  parts: prepare.Prepared, directory: pathlib.Path
) -> runs.RunResult:
  """Returns the result of a run, read from its last checkpoint.

  Raises:
    NodeFailedError: if the run ended before all steps were taken.
  """
  if (directory / run_directory.ERROR_FILE).exists() or not (
    checkpoints.saved_steps(directory / 'checkpoints')
  ):
    raise engine.NodeFailedError(
      'The program ended early; see what its nodes have written, and'
      f' {directory / run_directory.ERROR_FILE}.'
    )
  with contextlib.ExitStack() as stack:
    records = run_records.RunRecords(parts, directory, stack)
    population = records.restore(_template(parts), run_records.POPULATION)
    return runs.RunResult(
      directory,
      records.counts,
      records.mean_return,
      population.members,
      len(records.recent_returns),
    )


def _template(parts: prepare.Prepared) -> state_lib.PopulationState:
  """Returns the shapes and dtypes of a population."""

  def make(key: types.Key) -> state_lib.PopulationState:
    keys = jax.random.split(key, parts.experiment.population.num_members)
    members = jax.vmap(parts.learner.init)(keys)
    return generations.make_population(parts, members, key)

  return jax.eval_shape(make, jax.random.PRNGKey(0))
