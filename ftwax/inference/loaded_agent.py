"""Trained agents of earlier runs: acting, evaluation, films and sharing."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import compilation, types
from ftwax.environments import (
  action_masks,
  adapting,
  environment_faults,
  game_vectors,
  games,
  specified,
)
from ftwax.inference import filming, play, sharing
from ftwax.population import players


class LoadedAgent:
  """A trained agent that acts in one environment and does not learn.

  Attributes:
    actor: functions of the agent's actor.
    variables: variables of the agent, without a member axis.
    player: the agent as a player; see `ExperimentConfig.opponents`.
    game_spec: spec of the game that it was trained in, as its policy sees it.
    name: name of the agent in films.
  """

  def __init__(
    self,
    actor: types.ActorCore,
    variables: types.ActorVariables,
    game_spec: games.GameSpec,
    source: pathlib.Path | None = None,
    member: int = 0,
  ):
    """Wraps the functions and variables of an agent's actor.

    Args:
      actor: functions of the actor.
      variables: variables of the agent, without a member axis.
      game_spec: spec of the game that it was trained in.
      source: directory of its records, for `save`.
      member: index of the agent in its population.
    """
    self.name = f'member {member}'
    self._source, self._member = source, member
    self.actor = actor
    self.variables = variables
    # What a critic sees in training is asked of nobody.
    game_spec = game_spec._replace(environment=game_spec.environment.public)
    self.game_spec = game_spec
    self.player = players.frozen(actor, variables, game_spec.environment)
    # One program, not one for each of its operations.
    self._init = compilation.jit_unoptimized(actor.init, static_argnums=1)
    self._state = self.initial_state()
    self._select = jax.jit(actor.select_action)
    self._encode: Callable[[Any], Any] = lambda value: value
    self._decode: Callable[[Any], Any] = lambda value: value
    if game_spec.spaces:
      from ftwax.environments import gymnasium_spaces  # Needs an extra.

      self._encode, self._decode = gymnasium_spaces.make_converters(
        game_spec.spaces
      )

  def __repr__(self) -> str:
    return f'LoadedAgent({self.name!r}, {str(self._source)!r})'

  @compilation.usual_settings()
  def act(self, timestep: dm_env.TimeStep) -> types.ArrayTree:
    """Returns the action for a timestep of one environment.

    The recurrent state is reset at `FIRST`.

    Args:
      timestep: timestep without a batch axis; reward and discount may be None
        at `FIRST`.

    Raises:
      ValueError: if the timestep does not match the game that the agent was
        trained in.
    """
    if timestep.step_type == types.FIRST:
      self._check(timestep)
    row = _as_row(timestep.observation)
    action, self._state = self._select_rows(
      row, self._state, timestep.reward, timestep.first()
    )
    return _first_row(action)

  @compilation.usual_settings()
  def initial_state(
    self, num_rows: int | None = None, seed: int = 0
  ) -> types.ActorState:
    """Returns the state before the first step of an episode; see `step`.

    Args:
      num_rows: B, environments that `step` acts in at a time; None for one
        without a batch axis.
      seed: seed of the samples of an agent that is loaded with `greedy=False`.
    """
    state: types.ActorState = self._init(
      jax.random.PRNGKey(seed), num_rows or 1
    )
    return state

  @compilation.usual_settings()
  def step(
    self,
    observation: Any,
    state: types.ActorState | None = None,
    reward: Any = None,
    first: Any = None,
    action_mask: Any = None,
  ) -> tuple[Any, types.ActorState]:
    """Returns the action for an observation, and the agent's next state.

    Both are in the Gymnasium spaces of the environment that the agent was
    trained in, or else arrays of its specs.

    Args:
      observation: of one environment, or of `B`, leaves [B, ...].
      state: what the last step returned, or `initial_state`. None begins an
        episode.
      reward: of the last step, a number or [B]; None for 0, as in the first.
        Agents that see their rewards act worse without it.
      first: whether the observation is the first of an episode, a bool or [B];
        None if that is so only without a state.
      action_mask: legal actions, nonzero where an action is allowed, if the
        environment states them beside the observation: `info['action_mask']`,
        or what its `action_masks()` returns.

    Raises:
      ValueError: if the observation or the mask does not match the game that
        the agent was trained in, or the mask is missing.
    """
    try:
      observation = self._encode(observation)
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'observation ({observation!r:.60}) must be one of the game that the'
        f' agent was trained in ({type(error).__name__}: {error}); give all'
        f' parts of {self.game_spec.environment.observations}.'
      ) from None
    observation = self._with_mask(observation, action_mask)
    leaf, spec = (
      jax.tree.leaves(tree)[0]
      for tree in (observation, self.game_spec.environment.observations)
    )
    is_batch = np.ndim(leaf) > len(spec.shape)
    if not is_batch:
      observation = _as_row(observation)
    self._check_observation(_first_row(observation))
    if first is None:
      first = state is None
    if state is None:
      state = self.initial_state(len(jax.tree.leaves(observation)[0]))
    action, state = self._select_rows(observation, state, reward, first)
    if not is_batch:
      action = _first_row(action)
    return self._decode(action), state

  def _see(self, observation: Any) -> Any:
    specs = self.game_spec.environment.observations
    return types.see_public(observation, specs)

  def _with_mask(self, observation: Any, action_mask: Any) -> Any:
    """Returns an observation with legal actions, if its spec has them."""
    spec = self.game_spec.environment
    source = action_masks.describe(spec)
    is_seen = types.ACTION_MASK in specified.entries(observation)
    if source is None or is_seen:
      if action_mask is not None:
        raise ValueError(
          f'action_mask ({action_mask!r:.60}) must be None: the agent was'
          f' trained with legal actions from {source or "nowhere"}; leave it'
          ' out.'
        )
      return observation
    if action_mask is None:
      raise ValueError(
        'action_mask (None) must be given, since the agent was trained with'
        f' legal actions from {source}; pass step(..., action_mask={source}).'
      )
    masks = action_masks.Masks(spec.actions, None)
    return masks.see(observation, masks.read(action_mask))

  def _select_rows(
    self,
    observation: types.ArrayTree,
    state: types.ActorState,
    reward: Any,
    first: Any,
  ) -> tuple[types.ArrayTree, types.ActorState]:
    """Returns actions and the next state, leaves [B, ...]."""
    observation = self._see(observation)
    num_rows = len(jax.tree.leaves(observation)[0])
    shape = (num_rows, *self.game_spec.environment.rewards.shape)
    rows = dm_env.TimeStep(
      step_type=np.broadcast_to(
        np.where(first, types.FIRST, types.MID), num_rows
      ).astype(np.int32),
      reward=np.broadcast_to(
        np.asarray(0.0 if reward is None else reward, np.float32), shape
      ),
      discount=np.ones(num_rows, np.float32),
      observation=observation,
    )
    return self._select(self.variables, rows, state)

  @compilation.usual_settings()
  def evaluate(
    self,
    environment: play.Environment,
    num_episodes: int = 10,
    seed: int = 0,
  ) -> types.NumpyArray:
    """Plays episodes in a single-agent environment.

    Args:
      environment: a JAX or Python environment, which stays open, or the name of
        a Gymnasium environment.
      num_episodes: number of episodes.
      seed: seed of a JAX or Gymnasium environment.

    Returns:
      float32 [num_episodes], the returns; events of a vector reward are summed.

    Raises:
      ValueError: if `num_episodes` is less than 1, the environment is a game of
        several players, or the agent was not trained in it.
    """
    if num_episodes < 1:
      raise ValueError(
        f'num_episodes ({num_episodes}) must be at least 1; choose 10.'
      )
    adapted = adapting.wrap(environment, seed)
    game = game_vectors.make_games(lambda seed: adapted, [seed], 'evaluation')
    if game.spec.num_players > 1:
      raise ValueError(
        f'environment ({game.spec.num_players} players) must be of one agent;'
        ' use `ftwax evaluate` for games.'
      )

    def act(rows: dm_env.TimeStep) -> types.ArrayTree:
      return _as_row(self.act(_first_row(rows)))

    returns: list[float] = []
    length = 0
    for _, rows in play.play(game, act):
      timestep = _first_row(rows)
      length += 1
      if timestep.first():
        returns.append(0.0)
        length = 0
      else:
        returns[-1] += np.sum(timestep.reward)
      environment_faults.warn_of_endless('evaluation', length)
      if timestep.last() and len(returns) == num_episodes:
        break
    return np.array(returns, np.float32)

  @compilation.usual_settings()
  def record(
    self,
    environment: play.Environment,
    path: str | os.PathLike[str],
    seats: Sequence['LoadedAgent | str'] | None = None,
    *,
    seed: int = 0,
    max_num_steps: int = 1_000,
    frames_per_second: float = 15.0,
    num_games: int = 1,
    seat: int | None = None,
  ) -> pathlib.Path:
    """Films episodes of the agent.

    Args:
      environment: a JAX or Python environment or game, or the name of a
        Gymnasium environment. It is drawn by its `display` or its `render`,
        which returns uint8 [H, W, 3]; otherwise the film shows the first
        player's observed image. Gymnasium environments passed as objects need
        `render_mode='rgb_array'`.
      path: path of the GIF.
      seats: the player on each seat, or one for all: an agent, or the name of a
        script of the game, such as 'random'. Defaults to this agent.
      seed: seed of the players, and of a JAX game.
      max_num_steps: maximum number of steps in the film.
      frames_per_second: frame rate of the film.
      num_games: number of episodes in the film.
      seat: seat of the player whose view is shown beside the game, from 0, in
        games that draw it.

    Returns:
      The path.

    Raises:
      ValueError: if the agents were trained in another game, there is no such
        script or seat, or the environment cannot be drawn.
    """
    return filming.record(
      environment,
      path,
      [
        (seat, None) if isinstance(seat, str) else (seat.name, seat.player)
        for seat in (seats or [self])
      ],
      seed,
      max_num_steps,
      frames_per_second,
      num_games,
      seat,
    )

  def save(
    self,
    directory: str | os.PathLike[str],
    about: Mapping[str, Any] | None = None,
  ) -> pathlib.Path:
    """Writes the agent to a folder that can be shared; see `loading.export`.

    `loading.load` reads it back.

    Args:
      directory: a new directory.
      about: see `loading.export`.

    Returns:
      The path of the folder.

    Raises:
      FileExistsError: if the directory exists.
      ValueError: if the agent was not loaded from records.
    """
    if self._source is None:
      raise ValueError(
        'agent must come from `ftwax.load` to be saved, since its records go'
        ' with it; load it from the directory of its run.'
      )
    path = pathlib.Path(directory)
    variables = _as_row(self.variables)
    sharing.write_folder(self._source, path, [self._member], variables, about)
    return path

  def _check(self, timestep: dm_env.TimeStep) -> None:
    """Raises a ValueError unless the timestep matches the agent's game."""
    spec = self.game_spec.environment
    self._check_observation(timestep.observation)
    reward = np.shape(timestep.reward)
    if timestep.reward is not None and reward != spec.rewards.shape:
      raise ValueError(
        f'reward (shape {reward}) must be of shape {spec.rewards.shape}, as in'
        ' the game that the agent was trained in; give a timestep of that game.'
      )

  def _check_observation(self, observation: types.ArrayTree) -> None:
    seen = jax.tree.map(np.shape, self._see(observation))
    expected = jax.tree.map(
      lambda leaf: leaf.shape, self.game_spec.environment.observations
    )
    if seen != expected:
      raise ValueError(
        f'observation (shape {seen}) must be of shape {expected}, as in the'
        ' game that the agent was trained in; give an observation of that game.'
      )


def _first_row(tree: Any) -> Any:
  return jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree)


def _as_row(tree: Any) -> Any:
  return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
