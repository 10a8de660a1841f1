"""Acts on the host: many steps of many games that Python steps.

One call of a compiled function acts for all members. What it returns and what
the games show is written to arrays of NumPy, which are trajectories of the
layout of `device.rollout`.
"""

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import compilation, distributions, trees, types
from ftwax.environments import episode_metrics
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import sharding
from ftwax.runtime.device import compiled_arena
from ftwax.runtime.device import rollout as rollout_lib
from ftwax.runtime.local import arena as arena_lib


class ActorsState(NamedTuple):
  """State of actors and of their games, if these can be saved.

  Attributes:
    arena: the games.
    actor: state of the actors, leaves [N, M, ...].
    returns: see `rollout.RolloutState.episode_return`, [N, M].
    lengths: int32 [N, M], numbers of actions in the current episodes.
    played: bool [G], whether each game has ended in the round.
    round_steps: int64 [], steps of each game in the round.
    anchor: see `rollout.RolloutState`.
  """

  arena: arena_lib.ArenaState
  actor: types.ActorState
  returns: types.NumpyArray
  lengths: types.NumpyArray
  played: types.NumpyArray
  round_steps: types.NumpyArray
  anchor: Any = ()


class _Packed(NamedTuple):
  """State of the actors as `Actors._choose` takes and returns it.

  Attributes:
    recurrent_state: leaves [N, M, ...].
    rest: int32 [K], the other leaves of the state and the actions as games take
      them, in one array, since a call takes longer with each.
  """

  recurrent_state: types.RecurrentState
  rest: types.Array


class Actors:
  """The actors of all members, and the games that they play.

  Attributes:
    arena: the games.
    num_steps: number of actions of the present rollout, or the last one.
  """

  _actor: _Packed

  def __init__(
    self,
    policy: types.ActorCore,
    arena: arena_lib.Arena,
    observers: Sequence[experiment_lib.Observer] = (),
    fitness: str = '',
  ):
    """Takes the games; call `begin` or `restore` next.

    Args:
      policy: functions of an actor.
      arena: the games.
      observers: see single steps.
      fitness: the metric in the results of games that are not rated, if any.
    """
    seating = arena.router.seating
    self.arena = arena
    self.num_steps = 0
    self._shape = seating.num_members, seating.seats_per_member
    self._policy = policy
    self._act = jax.jit(self._choose)
    self._init = compilation.jit_unoptimized(
      jax.vmap(lambda key: policy.init(key, self._shape[1]))
    )
    self._observers = [one for one in observers if one.sees_steps]
    self._played: types.NumpyArray = np.zeros(seating.num_games, bool)
    self._round_steps = 0
    self._measured: list[Mapping[str, float]] = []
    self._fitness = fitness
    self._absences = arena.absences
    self._anchor: Any = ()

  def begin(self, key: types.Key, seats: types.NumpyArray) -> None:
    """Seats players and starts all games; begins a round.

    Args:
      key: random key of the actors and opponents.
      seats: see `arena.Arena.seat`.
    """
    seats_key, actor_key = jax.random.split(key)
    self.arena.seat(seats_key, seats)
    self._timestep = self.arena.reset()
    for observer in self._observers:
      observer.observe_first(self.arena, self._timestep)
    actor = self._init(jax.random.split(actor_key, self._shape[0]))
    self._set_actor(actor)
    if self._absences:
      rows = self._to_members(self._timestep)
      first = rollout_lib.first_anchor(rows, actor)
      self._anchor = jax.tree.map(np.asarray, first)
    shape = self._shape + self._timestep.reward.shape[1:]
    self._returns: types.NumpyArray = np.zeros(shape, np.float32)
    self._lengths: types.NumpyArray = np.zeros(self._shape, np.int32)
    self.begin_round()

  def begin_round(self) -> None:
    """Begins a round in which members keep their seats."""
    self._played = np.zeros_like(self._played)
    self._round_steps = 0

  def is_round_over(self, steps_per_round: int) -> bool:
    """Returns whether a round is long enough and all games have ended.

    In single-seat games episodes continue across rounds.

    Args:
      steps_per_round: minimum number of steps of each game.
    """
    is_solo = self.arena.router.seating.is_solo
    is_long = self._round_steps >= steps_per_round
    return is_long and (is_solo or bool(self._played.all()))

  def rollout(
    self,
    variables: types.ActorVariables,
    into: types.Trajectory,
    max_num_steps: int | None = None,
  ) -> Generator[None, None, rollout_lib.Episodes]:
    """Acts for `T` steps.

    Args:
      variables: the policies, leaves [N, ...]; see `put`.
      into: arrays of NumPy to fill, leaves [T + 1 or T, N, M, ...].
      max_num_steps: number of actions after which it stops early, so that the
        trajectory is incomplete; None for no limit.

    Yields:
      Between two steps, when a run may be interrupted.

    Returns:
      The episodes at each step, leaves [T, N, M] or fewer, and [T, G] in the
      results of rated games.
    """
    rows, anchor = _Rows(into), self._anchor
    rows.set_state(self._actor.recurrent_state)
    rows.set_timestep(0, self._timestep)
    # The rest of the state before each step and after the last one.
    states = np.empty((rows.num_steps + 2, len(self._actor.rest)), np.int32)
    self.num_steps = 0
    results: list[compiled_arena.Results] = []
    for step in range(rows.num_steps):
      if step:
        yield
      states[step] = self._actor.rest
      self._step(variables, rows, step)
      results += self._take_results()
      if max_num_steps is not None and self.num_steps >= max_num_steps:
        break
    # The last timestep's action is chosen in the next rollout, its value here.
    last = self._act(variables, self._timestep, self._actor)
    states[step + 1 : step + 3] = self._actor.rest, last.rest
    self._fill_choices(into, states[: step + 3])
    self._round_steps += step + 1
    episodes = self._count(into, step + 1, results)
    if self._absences and step + 1 == rows.num_steps:
      # The same arrays, which may be part of larger ones.
      compacted = rollout_lib.without_absences(into, anchor)
      jax.tree.map(np.copyto, into, compacted)
    return episodes

  def take_metrics(self) -> list[Mapping[str, float]]:
    """Returns the metrics of games that ended since the last call."""
    measured, self._measured = self._measured, []
    return measured

  def save(self) -> ActorsState | None:
    """Returns the state between rollouts; None if games cannot be saved."""
    arena = self.arena.save()
    if arena is None:
      return None
    return ActorsState(
      arena,
      self._unpack(self._actor.rest)._replace(
        recurrent_state=self._actor.recurrent_state
      ),
      # Rollouts change these in place.
      self._returns.copy(),
      self._lengths.copy(),
      self._played.copy(),
      np.array(self._round_steps, np.int64),
      self._anchor,
    )

  def restore(self, state: ActorsState) -> None:
    """Continues from a saved state."""
    self._timestep = self.arena.restore(state.arena)
    self._set_actor(state.actor)
    self._returns = np.array(state.returns)
    self._lengths = np.array(state.lengths)
    self._played = np.array(state.played)
    self._round_steps = int(state.round_steps)
    self._anchor = jax.tree.map(np.asarray, state.anchor)

  def act(self, variables: types.ActorVariables) -> dm_env.TimeStep:
    """Takes a step without recording it; returns the members' timesteps."""
    self._actor = self._act(variables, self._timestep, self._actor)
    self._timestep = self.arena.step(self._sent())
    return self._timestep

  def _choose(
    self,
    variables: types.ActorVariables,
    timestep: dm_env.TimeStep,
    state: _Packed,
  ) -> _Packed:
    """Returns the state after a step, for rows [N * M, ...]; compiled."""
    select_action = sharding.over_members(
      self._policy.select_action, self._shape[0]
    )
    actor = self._states.unpack(state.rest)
    action, actor = select_action(
      variables,
      self._to_members(timestep),
      actor._replace(recurrent_state=state.recurrent_state),
    )
    action = jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), action
    )
    own = self._states.pack(actor._replace(recurrent_state=()))
    return _Packed(
      actor.recurrent_state, jnp.concatenate([own, self._actions.pack(action)])
    )

  def _set_actor(self, actor: types.ActorState) -> None:
    """Continues from a state, leaves [N, M, ...]."""
    spec = self.arena.action_spec()
    none = distributions.no_action(spec, (self.arena.num_environments,))
    sent = jax.eval_shape(
      functools.partial(distributions.to_environment, spec), none
    )
    own = jax.tree.map(np.asarray, actor._replace(recurrent_state=()))
    self._states, self._actions = trees.Packing(own), trees.Packing(sent)
    # Nothing was sent yet.
    rest: Any = np.pad(self._states.pack(own), (0, self._actions.size))
    # Where `put` has the variables: states in other places compile anew.
    self._actor = put(_Packed(actor.recurrent_state, rest))

  def _unpack(self, rest: Any) -> types.ActorState:
    """Returns states without the recurrent ones, leaves [..., N, M, ...].

    Args:
      rest: see `_Packed`, [..., K].
    """
    actor: types.ActorState = self._states.unpack(np.asarray(rest))
    return actor

  def _sent(self) -> types.ArrayTree:
    """Returns the actions that were selected last, leaves [N * M, ...]."""
    rest = np.asarray(self._actor.rest)
    action: types.ArrayTree = self._actions.unpack(rest[self._states.size :])
    return action

  def _to_members(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Returns rows [N * M, ...] as leaves [N, M, ...]."""
    return jax.tree.map(
      lambda leaf: leaf.reshape(*self._shape, *leaf.shape[1:]), timestep
    )

  def _step(
    self, variables: types.ActorVariables, rows: '_Rows', step: int
  ) -> None:
    """Acts in all games, and fills a row of timesteps."""
    before = self._actor
    self._actor = self._act(variables, self._timestep, before)
    if self._absences:
      self._move_anchor(before)
    decides = self._timestep.step_type < types.LAST
    self.num_steps += int(np.count_nonzero(decides))
    action = self._sent()
    self._timestep = timestep = self.arena.step(action)
    rows.set_timestep(step + 1, timestep)
    self._last_measured = self.arena.episode_metrics()
    self._measured += self._last_measured
    for observer in self._observers:
      observer.observe(self.arena, timestep, action)

  def _move_anchor(self, before: _Packed) -> None:
    """Moves the anchors of seats that are not absent to the last choice."""
    timestep = self._to_members(self._timestep)
    choice = rollout_lib.choice_of(
      timestep, self._unpack(before.rest), self._unpack(self._actor.rest)
    )
    own = rollout_lib.Anchor(timestep, choice, before.recurrent_state)
    self._anchor = rollout_lib.newer(own, self._anchor)

  def _fill_choices(
    self, into: types.Trajectory, states: types.NumpyArray
  ) -> None:
    """Fills the rows of choices, without logits at the last timestep.

    Args:
      into: see `rollout`; its timesteps are filled.
      states: int32 [S + 2, K], before the `S + 1` choices and after the last.
    """
    num_rows = len(states) - 1
    choice = rollout_lib.choice_of(
      trees.take(into.timestep, slice(num_rows)),
      self._unpack(states[:-1]),
      self._unpack(states[1:]),
    )

    def fill(to: Any, leaf: Any) -> None:
      to[:num_rows] = leaf[: len(to)]

    own = into.previous_action, into.logits, into.seed, into.value
    jax.tree.map(fill, rollout_lib.Choice(*own), choice)

  def _take_results(self) -> list[compiled_arena.Results]:
    """Returns the results of a step, if games are rated or have a fitness."""
    seating = self.arena.router.seating
    if seating.is_solo and not self._fitness:
      return []
    ended: Any = self.arena.ended
    self._played |= ended
    if seating.is_rated:
      outcomes: Any = self.arena.outcomes()
      return [compiled_arena.Results(ended, outcomes)]
    if not self._fitness:
      return []
    nothing: Any = ()
    values: Any = np.full(ended.shape, np.nan, np.float32)
    values[ended] = [self._read_fitness(one) for one in self._last_measured]
    return [compiled_arena.Results(ended, nothing, {self._fitness: values})]

  def _read_fitness(self, measured: Mapping[str, float]) -> float:
    """Returns the fitness of an episode.

    Raises:
      ValueError: if the environment did not measure it.
    """
    if self._fitness not in measured:
      raise ValueError(
        f"fitness ('{episode_metrics.PREFIX}{self._fitness}') must be measured"
        ' at the end of each episode, and is not in the info of one, which has'
        f' {sorted(measured) or "no such numbers"}; add it there, or choose'
        f' {episode_metrics.RETURN!r}.'
      )
    return measured[self._fitness]

  def _count(
    self,
    filled: types.Trajectory,
    num_steps: int,
    results: list[compiled_arena.Results],
  ) -> rollout_lib.Episodes:
    """Returns the episodes of the steps that are filled."""
    step_types = filled.timestep.step_type[: num_steps + 1]
    # An action follows each decision.
    step_type, moved = step_types[1:], step_types[:-1] < types.LAST
    ended = step_type == types.LAST
    rewards = filled.timestep.reward[1 : num_steps + 1]
    # At `FIRST`, whatever the games say.
    rewards[step_type == types.FIRST] = 0.0
    returns, lengths = np.empty_like(rewards), np.empty_like(step_type)
    for step in range(num_steps):
      self._returns += rewards[step]
      self._lengths += moved[step]
      # A seat that is out when its game ends repeats `LAST`.
      ended[step] &= self._lengths > 0
      returns[step], lengths[step] = self._returns, self._lengths
      self._returns[ended[step]] = 0.0
      self._lengths[ended[step]] = 0
    found: Any = ()
    if results:
      found = jax.tree.map(lambda *leaves: np.stack(leaves), *results)
    # Without faults: timesteps are checked where games are stepped.
    statistics: Any = moved, ended, returns, lengths, found, ()
    return rollout_lib.Episodes(*statistics)


class _Rows:
  """The rows of trajectories, leaves [T + 1, N, M, ...] or [T, N, M, ...].

  Their leaves are flattened once: traversing the trees at every step would cost
  more than copying the data.
  """

  def __init__(self, into: types.Trajectory):
    self._state = jax.tree.leaves(into.recurrent_state)
    self._timesteps = jax.tree.leaves(into.timestep)
    self.num_steps = len(self._timesteps[0]) - 1

  def set_state(self, state: types.RecurrentState) -> None:
    """Copies the state before the first timestep."""
    for to, leaf in zip(self._state, jax.tree.leaves(state), strict=True):
      to[...] = leaf

  def set_timestep(self, row: int, timestep: dm_env.TimeStep) -> None:
    """Copies a timestep, leaves [N * M, ...]."""
    leaves = jax.tree.leaves(timestep)
    for to, leaf in zip(self._timesteps, leaves, strict=True):
      to[row] = leaf.reshape(to.shape[1:])


def make_arrays(
  template: types.Trajectory, num_members: int, num_columns: int
) -> types.Trajectory:
  """Returns arrays for `Actors.rollout` to fill, as they come.

  Args:
    template: a trajectory; see `replay.trajectories.make_template`.
    num_members: N.
    num_columns: number of trajectories of a member.
  """
  shape = num_members, num_columns

  def with_rows(leaf: Any) -> types.NumpyArray:
    return np.empty((leaf.shape[0], *shape, *leaf.shape[1:]), leaf.dtype)

  arrays: types.Trajectory = jax.tree.map(
    with_rows,
    template._replace(
      recurrent_state=(), value=np.zeros(template.seed.shape, np.float32)
    ),
  )
  return arrays._replace(
    recurrent_state=jax.tree.map(
      lambda leaf: np.empty((*shape, *leaf.shape), leaf.dtype),
      template.recurrent_state,
    )
  )


# Axes of rows in the leaves of trajectories.
_ROW_AXES = types.Trajectory(2, 2, 2, 1, 2, 2)


def take(
  trajectories: types.Trajectory, rows: slice, offset: int = 0
) -> types.Trajectory:
  """Returns some rows of each member, or members if `offset` is -1."""
  # Without copying.
  return map_rows(
    lambda axis, leaf: leaf[(slice(None),) * (axis + offset) + (rows,)],
    trajectories,
  )


def map_rows(
  function: Callable[..., Any], *trajectories: types.Trajectory
) -> Any:
  """Maps `function(axis_of_rows, *leaves)`; members are the axis before."""
  return trees.map_axes(function, _ROW_AXES, *trajectories)


def put(tree: Any) -> Any:
  """Returns arrays on the first CPU, where actors act."""
  device = jax.local_devices(backend='cpu')[0]

  def is_there(leaf: Any) -> bool:
    is_fixed = isinstance(leaf, jax.Array) and leaf.committed
    return is_fixed and leaf.devices() == {device}

  # `device_put` takes long even if there is nothing to do.
  is_done = all(map(is_there, jax.tree.leaves(tree)))
  return tree if is_done else jax.device_put(tree, device)


def batches(
  trajectories: types.Trajectory, size: int
) -> Iterator[types.Trajectory]:
  """Yields batches of `size` rows of each member, in their order."""
  num_rows = trajectories.timestep.step_type.shape[2]
  for start in range(0, num_rows - size + 1, size):
    yield take(trajectories, slice(start, start + size))
