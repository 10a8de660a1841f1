"""Parallel JAX games, stepped by one compiled call, and checks of JAX games."""

from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.environments import (
  curricula,
  environment_faults,
  episode_metrics,
  functional,
  games,
  validation,
  vector,
)


class CompiledGames:
  """`G` JAX games; see `game_vectors.GameVector`."""

  def __init__(
    self,
    game: functional.FunctionalGame,
    num_games: int,
    seed: int,
    name: str,
  ):
    """Prepares the games.

    Args:
      game: a single game, not a vector.
      num_games: `G`.
      seed: seed of all games.
      name: name of the games in messages.

    Raises:
      ValueError: if the game violates its spec, or its teams, events and
        actions are inconsistent.
    """
    self.game = game
    self.spec = games.spec_of(game)
    games.check_game(self.spec)
    self.num_games = num_games
    self._num_rows = num_games * self.spec.num_players
    self._checker = validation.Checker(
      game.spec, self._num_rows, self.spec.num_players, name
    )
    check_shapes(game)
    self._made = functional.vectorize(game, num_games)
    self._name = name
    self._functions = {
      'reset': jax.jit(self._reset_rows),
      'step': jax.jit(self._step_rows),
    }
    self._outcome = jax.jit(self._made.outcome)
    self._metrics = None
    if self._made.metrics is not None:
      self._metrics = jax.jit(self._made.metrics)
    self.measure(())
    self._parameters: curricula.Values = curricula.defaults(game.reset)
    self._key = jax.random.PRNGKey(seed)
    self._state: Any = None

  @property
  def state(self) -> functional.State | None:
    """States of the games, leaves [G, ...]; None before the first `reset`."""
    return None if self._state is None else self._state.state

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    self._checker.restart()
    self._key, self._state, timestep = self._call(
      'reset', self._key, self._parameters
    )
    return self._checker.check(timestep)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each game, or starts a new one after `LAST`."""
    if self._state is None:
      return self.reset()
    vector.action_leaves(self.spec.environment, action, self._num_rows)
    action = jax.tree.map(_as_32_bits, action)
    self._state, timestep = self._call('step', self._state, action)
    return self._checker.check(timestep)

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended."""
    outcomes = np.asarray(self._outcome(self._state))[np.asarray(places)]
    games.check_outcomes(outcomes, max(self.spec.teams) + 1)
    return outcomes

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics of episodes."""
    self._metric_names = names
    self._missing = episode_metrics.Missing(names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of games that have just ended."""
    if self._metrics is None:
      return [{} for _ in places]
    found = jax.device_get(self._metrics(self._state))
    chosen = []
    for place in places:
      own = episode_metrics.read({name: found[name][place] for name in found})
      self._missing.check(own)
      chosen.append(episode_metrics.select(self._metric_names, own))
    return chosen

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    self._parameters = {**self._parameters, **values}
    if self._state is not None:
      self._state = functional.set_parameters(self._state, values)

  def play_whole_games(self) -> None:
    """Does nothing: games have no lives."""

  def save(self) -> Any:
    """Returns the random key and the states of the games."""
    return self._key, self._state

  def restore(self, state: Any, timestep: dm_env.TimeStep) -> None:
    """Continues from the result of `save` and the timestep at that time."""
    self._key, self._state = state
    self._checker.continue_after(timestep.step_type)

  def close(self) -> None:
    """Does nothing, since JAX games hold no resources besides memory."""

  def _reset_rows(
    self, key: types.Key, parameters: curricula.Values
  ) -> tuple[types.Key, Any, Any]:
    key, reset_key = jax.random.split(key)
    state, timestep = self._made.reset(reset_key, parameters)
    return key, state, self._to_rows(timestep)

  def _step_rows(self, state: Any, action: types.ArrayTree) -> tuple[Any, Any]:
    seats = jax.tree.map(
      lambda leaf: leaf.reshape(self.num_games, -1, *leaf.shape[1:]), action
    )
    state, timestep = self._made.step(state, seats)
    return state, self._to_rows(timestep)

  def _to_rows(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    return jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), timestep
    )

  def _call(self, call: str, *args: Any) -> list[Any]:
    """Returns states, and a timestep of NumPy arrays."""
    try:
      *states, timestep = self._functions[call](*args)
      # Copies, since callers may write to them.
      return [*states, jax.tree.map(np.array, timestep)]
    except jax.errors.JaxRuntimeError as error:  # For example of a callback.
      environment_faults.fail(self._name, call, error)


def _as_32_bits(leaf: types.ArrayTree) -> types.NumpyArray:
  leaf = np.asarray(leaf)
  return leaf.astype(np.float32 if leaf.dtype.kind == 'f' else np.int32)


def check_shapes(
  made: functional.FunctionalEnvironment | functional.FunctionalGame,
) -> None:
  """Compares the results of reset and step with the spec and each other.

  Nothing is executed: shapes and dtypes come from abstract evaluation.

  Args:
    made: a single environment or game, not a vector.

  Raises:
    ValueError: if timesteps violate the spec, or the state or the timestep
      changes its structure, shape or dtype between steps.
  """
  axes: tuple[int, ...] = ()
  if isinstance(made, functional.FunctionalGame):
    axes = (len(made.teams),)
  key = jax.random.PRNGKey(0)
  state, timestep = _trace('reset', made.reset, key)

  def expect(leaf: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*axes, *leaf.shape), dtype or leaf.dtype)

  spec = made.spec
  scalar = jax.ShapeDtypeStruct((), np.float32)
  expected = dm_env.TimeStep(
    step_type=expect(scalar, np.int32),
    reward=expect(spec.rewards, np.float32),
    discount=expect(scalar),
    observation=jax.tree.map(expect, spec.observations),
  )
  _check_like(timestep, expected, 'its spec')
  zeros = trees.zeros_like_spec(spec.actions, ())
  action = jax.tree.map(lambda leaf: expect(_as_32_bits(leaf)), zeros)
  after = _trace('step', made.step, state, action)
  _check_like(after, (state, timestep), 'reset')


def _trace(call: str, function: Callable[..., Any], *args: Any) -> Any:
  """Returns the shapes and dtypes of the result of a user's function."""
  try:
    return jax.eval_shape(function, *args)
  except (Exception, SystemExit) as error:
    environment_faults.fail('in JAX', call, error)


def _check_like(tree: Any, expected: Any, source: str) -> None:
  """Raises a ValueError that names the first leaf that differs."""
  structure: Any = jax.tree.structure(expected)
  if jax.tree.structure(tree) != structure:
    raise ValueError(
      f'the tree that the environment returns ({jax.tree.structure(tree)}) must'
      f' have the structure of {source}, {structure}; return the same structure'
      ' at every step.'
    )
  pairs = zip(
    jax.tree.leaves_with_path(tree), jax.tree.leaves(expected), strict=True
  )
  for (path, leaf), demanded in pairs:
    if leaf.shape != demanded.shape or leaf.dtype != demanded.dtype:
      raise ValueError(
        f'{jax.tree_util.keystr(path)} of the environment (shape {leaf.shape},'
        f' dtype {leaf.dtype}) must be as in {source}, of shape'
        f' {demanded.shape} and dtype {demanded.dtype}; shapes and dtypes must'
        ' not change in an episode.'
      )
