"""Actors' policies whose network is applied in another process.

See `inference` for that process.
"""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.runtime.distributed import environments, processes

_ASK_AGAIN_S = 0.1


class StatesLostError(environments.EnvironmentFailure):
  """The server has restarted, so current episodes cannot continue."""


class RemotePolicy:
  """Functions and variable source of an actor without parameters."""

  def __init__(
    self,
    server: processes.Remote,
    index: tuple[int, int],
    core: types.ActorCore,
    environment_spec: types.EnvironmentSpec,
    stop: threading.Event,
  ):
    """Makes no request yet.

    Args:
      server: an `InferenceServer`.
      index: index of the actor and index of the member.
      core: functions that the server computes.
      environment_spec: provides the structure of actions.
      stop: event that ends the waiting for the server.
    """
    self._server = server
    self._index = index
    self._stop = stop
    self._number = time.time_ns()  # Unused by an actor before this one.
    self._epoch: int | None = None
    state = jax.eval_shape(lambda: core.init(jax.random.PRNGKey(0), 1))
    self._state_structure: Any = jax.tree.structure(state.recurrent_state)
    self._structures: Any = [
      jax.tree.structure(tree)
      for tree in (environment_spec.actions, state.action, state.logits)
    ]
    self.core = core._replace(
      select_action=self._select_action, get_extras=self._get_extras
    )

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the server's variables, without parameters, for each name."""
    steps, internal_rewards = self._ask('describe', self._index[1])
    variables_ = types.ActorVariables(
      (), (), internal_rewards, jnp.int32(steps)
    )
    return [variables_ for _ in names]

  def _select_action(
    self,
    variables: types.ActorVariables,
    timestep: dm_env.TimeStep,
    state: types.ActorState,
  ) -> tuple[types.ArrayTree, types.ActorState]:
    del variables
    self._number += 1
    epoch, *trees = self._ask(
      'select_action',
      *self._index,
      self._number,
      [np.asarray(leaf) for leaf in jax.tree.leaves(timestep)],
    )
    # A new server lost the recurrent states, which matters only within an
    # episode: at `FIRST` they are reset.
    is_other = self._epoch not in (None, epoch)
    self._epoch = epoch
    if is_other and any(timestep.step_type != types.FIRST):
      raise StatesLostError(
        'the inference server was restarted, and recurrent states were lost.'
      )
    action, raw_action, logits = (
      structure.unflatten(leaves)
      for structure, leaves in zip(self._structures, trees, strict=True)
    )
    return action, types.ActorState(state.key, (), raw_action, logits)

  def _get_extras(self, state: types.ActorState) -> dict[str, Any]:
    fetch = functools.cache(lambda: self._ask('recurrent_state', *self._index))
    leaves = map(
      functools.partial(_FetchedLeaf, fetch),
      range(self._state_structure.num_leaves),
    )
    return {
      'logits': state.logits,
      'recurrent_state': self._state_structure.unflatten(leaves),
    }

  def _ask(self, method: str, *args: Any) -> Any:
    """Calls a method until it returns an answer."""
    while (reply := self._server.call(method, *args)) is None:
      if self._stop.wait(_ASK_AGAIN_S):
        raise processes.UnreachableError(
          f'inference must answer {method}, and did not before the run ended.'
        )
    return reply


def make_actors(
  server: processes.Remote,
  index: int,
  core: types.ActorCore,
  environment_spec: types.EnvironmentSpec,
  key: types.Key,
  adders: Sequence[Any],
  num_rows: int,
  stop: threading.Event,
) -> Any:
  """Makes the actors of all members, with policies in another process.

  Args:
    server: an `InferenceServer`.
    index: index of the actor.
    core: functions that the server computes.
    environment_spec: spec of one player.
    key: random key for the initial states.
    adders: one adder for each member.
    num_rows: M, number of seats of each member.
    stop: event that ends the waiting for the server.
  """
  from ftwax.agents.acme import actor
  from ftwax.agents.acme import variables as client_lib
  from ftwax.runtime.local import members

  made = []
  for member, adder in enumerate(adders):
    policy = RemotePolicy(server, (index, member), core, environment_spec, stop)
    made.append(
      actor.Actor(
        policy.core,
        jax.random.fold_in(key, member),
        client_lib.VariableClient(policy),
        adder,
        num_rows,
        compiles=False,
      )
    )
  return members.Actors(made, adders, at_once=True)


class _FetchedLeaf:
  """An array that is fetched only when read, since few of the states are."""

  def __init__(
    self, fetch: Callable[[], Sequence[types.NumpyArray]], index: int
  ):
    self._fetch = fetch
    self._index = index

  def __array__(
    self, dtype: Any = None, copy: bool | None = None
  ) -> types.NumpyArray:
    del copy  # Always a copy, from another process.
    return np.asarray(self._fetch()[self._index], dtype)
