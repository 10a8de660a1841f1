"""A process that applies the networks for all actors; see `remote_policy`.

As in SEED RL (Espeholt et al., 2020, arXiv:1910.06591): actors send timesteps
and get actions; states stay with the server, for they may be large. Where all
actors' rows are one batch, more of them cost little, and parameters travel to
one place only. Unlike with actors of their own parameters, a trajectory may see
several sets of parameters; the logits that go with it are those that acted.

The server's rows are those of actor 0, then 1 and so on. It computes all rows
at a time, so as to be compiled once, and keeps those whose actors asked.
"""

import concurrent.futures
import functools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  counter,
  processes,
  remote_variables,
)
from ftwax.runtime.distributed import settings as settings_lib

_POLL_S = 0.5

# Less than the time after which a client's call has failed.
_REPLY_TIMEOUT_S = 15.0


class _Request(NamedTuple):
  actor: int
  member: int
  timestep: list[types.NumpyArray]
  reply: concurrent.futures.Future[Any]


class InferenceServer:
  """Chooses actions; the public methods are called by courier."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    settings: settings_lib.Settings,
    learner_clients: Sequence[Any],
    counter_client: Any,
  ):
    """Prepares a server, which `run` makes.

    Args:
      experiment: an agent or a population of N members and its task.
      settings: of the run; each of its actors acts on M seats of each member.
      learner_clients: of the learners that hold different members, from which
        variables come.
      counter_client: of the counter, which knows when all actors have ended.
    """
    self._experiment = experiment
    self._settings = settings
    self._learners = [
      processes.Remote(client, 'learner') for client in learner_clients
    ]
    self._counter = processes.Remote(counter_client, 'counter')
    self._requests: queue.Queue[_Request] = queue.Queue()
    # Of each actor and member, the number of the last request and its reply.
    self._replies: dict[
      tuple[int, int], tuple[int, concurrent.futures.Future[Any]]
    ] = {}
    self._lock = threading.Lock()
    # No other server of the run has the same.
    self._epoch = time.time_ns() % 2**31
    self._batches: list[_Batch] = []  # One for each member.

  def describe(self, member: int) -> list[Any] | None:
    """Returns learner steps and internal rewards; None if not ready."""
    return self._batches[member].describe() if self._batches else None

  def select_action(
    self,
    actor: int,
    member: int,
    number: int,
    timestep: Sequence[types.NumpyArray],
  ) -> list[Any] | None:
    """Chooses actions for a member on the seats of an actor.

    Args:
      actor: index of the actor.
      member: index of the member.
      number: of the request. A request with the number of the last one gets its
        reply, since it is that one sent twice.
      timestep: leaves [M, ...].

    Returns:
      The server's epoch, and leaves [M, ...] of the actions as environments
      take them, of the actions, and of their logits. None to ask once more.
    """
    with self._lock:
      last_number, reply = self._replies.get((actor, member), (None, None))
      if reply is None or last_number != number:
        reply = concurrent.futures.Future()
        self._replies[actor, member] = number, reply
        self._requests.put(_Request(actor, member, list(timestep), reply))
    try:
      return [self._epoch, *reply.result(_REPLY_TIMEOUT_S)]
    except concurrent.futures.TimeoutError:
      return None

  def recurrent_state(
    self, actor: int, member: int
  ) -> list[types.NumpyArray] | None:
    """Returns the state before the next timestep; None if not ready.

    Args:
      actor: index of an actor that waits for no action of the member.
      member: index of the member.

    Returns:
      Leaves [M, ...].
    """
    return self._batches[member].read_state(actor) if self._batches else None

  def run(self) -> None:
    """Serves until all actors have ended."""
    with processes.node(counter.INFERENCE) as stop:
      sources = remote_variables.make_member_sources(
        self._experiment, self._settings, self._learners, stop
      )
      num_members = self._experiment.population.num_members
      key = jax.random.PRNGKey(self._experiment.seed)
      key = jax.random.fold_in(key, self._epoch)
      made = _make_functions(self._experiment)
      self._batches = [
        _Batch(
          made,
          own_source,
          self._settings.num_actors,
          jax.random.fold_in(key, member),
        )
        for member, own_source in enumerate(sources)
      ]
      next_time = 0.0
      while not stop.is_set():
        self._serve(self._gather(self._settings.num_actors * num_members))
        if time.monotonic() >= next_time:
          if self._counter.try_call('report_inference'):
            break
          next_time = time.monotonic() + _POLL_S
      self._counter.try_call('finish', counter.INFERENCE)

  def _gather(self, max_requests: int) -> list[_Request]:
    """Returns requests of all actors, or of those that asked in time."""
    try:
      requests = [self._requests.get(timeout=_POLL_S)]
    except queue.Empty:
      return []
    deadline = time.monotonic() + self._settings.inference_wait_s
    while len(requests) < max_requests:
      try:
        seconds = max(deadline - time.monotonic(), 0.0)
        requests.append(self._requests.get(timeout=seconds))
      except queue.Empty:
        break
    return requests

  def _serve(self, requests: Sequence[_Request]) -> None:
    for member, batch in enumerate(self._batches):
      own = [request for request in requests if request.member == member]
      if not own:
        continue
      chosen = batch.select_actions(
        {request.actor: request.timestep for request in own}
      )
      for request in own:  # One that died may have been replaced meanwhile.
        request.reply.set_result(chosen[request.actor])


class _Functions(NamedTuple):
  """Functions and sizes that the batches of all members share.

  Attributes:
    spec: of one player.
    core: functions of an actor.
    step: see `_step`; compiled.
    num_rows: M, seats of a member in an actor.
  """

  spec: types.EnvironmentSpec
  core: types.ActorCore
  step: Callable[..., Any]
  num_rows: int


def _make_functions(
  experiment: experiment_lib.ExperimentConfig,
) -> _Functions:
  spec = experiment.read_game_spec()
  core = experiment.builder.make_policy(
    experiment.network_factory(spec.environment), spec.environment
  )
  seating = experiment.make_seating()
  step = jax.jit(functools.partial(_step, core.select_action), donate_argnums=2)
  return _Functions(spec.environment, core, step, seating.seats_per_member)


class _Batch:
  """The rows of one member in all actors."""

  def __init__(
    self,
    functions: _Functions,
    source: Any,
    num_actors: int,
    key: types.Key,
  ):
    from ftwax.agents.actor_critic.shells import variables as client_lib

    spec, self._num_rows = functions.spec, functions.num_rows
    num_rows = num_actors * self._num_rows
    self._timestep = dm_env.TimeStep(
      step_type=np.zeros(num_rows, np.int32),
      reward=trees.zeros_like_spec(spec.rewards, (num_rows,)),
      discount=np.zeros(num_rows, np.float32),
      observation=trees.zeros_like_spec(spec.observations, (num_rows,)),
    )
    self._state = functions.core.init(key, num_rows)
    self._step = functions.step
    self._client = client_lib.VariableClient(source, jax.devices()[0])
    self._lock = threading.Lock()

  def describe(self) -> list[Any]:
    return [self._client.steps, self._client.internal_rewards]

  def read_state(self, index: int) -> list[types.NumpyArray]:
    with self._lock:
      leaves = jax.tree.leaves(self._state.recurrent_state)
      return [np.array(leaf[self._rows(index)]) for leaf in leaves]

  def select_actions(
    self, timesteps: Mapping[int, Sequence[types.NumpyArray]]
  ) -> dict[int, list[list[types.NumpyArray]]]:
    """Returns what actors get, given their timesteps."""
    self._client.update()
    asked = np.zeros(len(self._timestep.reward), bool)
    for index, timestep in timesteps.items():
      rows = self._rows(index)
      asked[rows] = True
      for to, leaf in zip(
        jax.tree.leaves(self._timestep), timestep, strict=True
      ):
        to[rows] = leaf
    with self._lock:
      action, self._state = self._step(
        self._client.variables, self._timestep, self._state, asked
      )
      chosen = [  # Copies: the state's memory is used again.
        [np.array(leaf) for leaf in jax.tree.leaves(tree)]
        for tree in (action, self._state.action, self._state.logits)
      ]
    return {
      index: [[leaf[self._rows(index)] for leaf in leaves] for leaves in chosen]
      for index in timesteps
    }

  def _rows(self, index: int) -> slice:
    return slice(index * self._num_rows, (index + 1) * self._num_rows)


def _step(
  select_action: types.SelectAction,
  variables_: types.ActorVariables,
  timestep: dm_env.TimeStep,
  state: types.ActorState,
  asked: types.Array,
) -> tuple[types.ArrayTree, types.ActorState]:
  """Chooses for all rows; the states of those not asked for stay."""
  action, new_state = select_action(variables_, timestep, state)

  parts = [
    (new.recurrent_state, new.action, new.logits) for new in (new_state, state)
  ]
  return action, types.ActorState(
    new_state.key, *trees.where_rows(asked, *parts)
  )
