"""Players that can take seats without a person: members, scripts and others."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import compilation, distributions, trees, types
from ftwax.agents.actor_critic import acting, normalization
from ftwax.environments import functional, games
from ftwax.inference import loaded_agent, loading
from ftwax.losses import latent_kl
from ftwax.population import players
from ftwax.records import files, run_directory, tournament_files
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib

RANDOM = 'random'
STILL = 'still'

# Rating of a player without records; the initial rating of a population, and
# that of the anchor of a tournament.
_UNKNOWN_RATING = 1000.0


class NamedPlayers:
  """The players that can take a seat of a game.

  Attributes:
    names: names of the players: members first, then scripts, `RANDOM` if the
      actions are discrete, and `STILL`.
    ratings: Elo ratings by name.
  """

  def __init__(
    self,
    spec: games.GameSpec,
    scripts: Mapping[str, functional.Script],
    source: str | os.PathLike[str] | None = None,
    experiment: experiment_lib.ExperimentConfig | None = None,
  ):
    """Makes the players of a game and, optionally, of its population.

    Args:
      spec: spec of the game.
      scripts: scripts of the game; see `functional.FunctionalGame`.
      source: source of the members; see `loading.load`. None for no members.
      experiment: experiment of the members; see `loading.load`.

    Raises:
      ValueError: as in `loading.load`, or if the members play another game.
    """
    self._spec = spec
    self.source, self._experiment = source, experiment
    self._agents: dict[str, loaded_agent.LoadedAgent] = {}
    self._players = {
      name: players.scripted(script) for name, script in scripts.items()
    }
    actions = spec.environment.actions
    choices = map(distributions.num_choices, jax.tree.leaves(actions))
    if None not in choices:  # All are discrete.
      self._players[RANDOM] = players.uniform(actions)
    self._acts: dict[str, Callable[..., Any]] = {}
    self.ratings = files.read_or_warn(read_ratings, source) or {}
    if source is not None:
      # Not greedy, as in the training and tournaments that rated them.
      loaded = loading.load_members(source, False, experiment)
      players.check_specs({'member 0': loaded[0].player}, spec.environment)
      self._agents = {f'member {i}': agent for i, agent in enumerate(loaded)}
    self.names = [*self._agents, *self._players, STILL]

  def rating(self, name: str) -> float:
    """Returns the rating of a player; the initial rating if it has none."""
    return self.ratings.get(name, _UNKNOWN_RATING)

  def start(self, name: str, key: types.Key) -> Any:
    """Returns the initial state of a player in a game."""
    if name == STILL:
      return ()
    is_member = name in self._agents
    player = self._agents[name].player if is_member else self._players[name]
    return player.init(key, 1)

  def act(
    self,
    name: str,
    game_state: Any,
    seat: int,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    """Selects the action of a player.

    Args:
      name: name of the player, not `STILL`.
      game_state: state of the game; None for a Python game.
      seat: seat of the player.
      timestep: timestep observed on the seat, without a batch axis.
      state: state of the player.

    Returns:
      The action, without a batch axis, and the player's new state.
    """
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], timestep)
    if name in self._agents:
      variables = self._agents[name].variables
      action, state = self._select(variables, rows, state)
    else:
      if name not in self._acts:
        own = compilation.jit_unoptimized(self._players[name].act)
        self._acts[name] = own
      act = self._acts[name]
      one = jax.tree.map(lambda leaf: leaf[None], game_state)
      action, state = act(one, np.array([seat], np.int32), rows, state)
    action = jax.device_get(action)
    return trees.take(action, 0), state

  def look(
    self, name: str, timestep: dm_env.TimeStep, state: Any
  ) -> dict[str, Any]:
    """Returns internal values of a member before it acts, as JSON.

    Returns:
      'value'; and if the network has them, 'surprise', KL(posterior || prior)
      in nats, and 'reads', the read weights [R, N] of its memory. Empty for
      other players.
    """
    if name not in self._agents:
      return {}
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], timestep)
    variables = self._agents[name].variables
    seen = jax.device_get(self._see(variables, rows, state))
    return {key: np.round(leaf[0], 4).tolist() for key, leaf in seen.items()}

  @functools.cached_property
  def _select(self) -> Any:
    # Members differ only in their variables, so one compilation suffices.
    actor = self._agents['member 0'].actor
    return compilation.jit_unoptimized(actor.select_action)

  @functools.cached_property
  def _see(self) -> Any:
    assert self.source is not None
    network = loading.read_network(self.source, self._experiment)

    def see(
      variables: types.ActorVariables,
      timestep: dm_env.TimeStep,
      state: types.ActorState,
    ) -> dict[str, types.Array]:
      rows = acting.with_own_reward(variables.internal_rewards, timestep)
      rows = normalization.with_normalized_observation(
        variables.observation_statistics, rows
      )
      output, _ = network.unroll(
        variables.params,
        variables.hyperparameters,
        None,
        jax.tree.map(
          lambda leaf: leaf[None],
          acting.make_network_input(
            rows, acting.previous_action_of(timestep, state.action)
          ),
        ),
        acting.is_first(timestep)[None],
        state.recurrent_state,
      )
      return trees.take(_insights(output), 0)

    return compilation.jit_unoptimized(see)


def _insights(output: types.NetworkOutput) -> dict[str, types.Array]:
  insights = {'value': output.value}
  auxiliary = output.auxiliary
  if {'loc', 'scale', 'tick'} <= set(auxiliary) and len(auxiliary['loc']) > 1:
    kl = latent_kl.latent_kl(
      auxiliary['loc'], auxiliary['scale'], auxiliary['tick']
    )
    insights['surprise'] = kl.posterior_prior
  if 'read_weights' in auxiliary:
    insights['reads'] = jnp.asarray(auxiliary['read_weights'])
  return insights


def read_ratings(source: str | os.PathLike[str] | None) -> dict[str, float]:
  """Returns the ratings recorded by a run or an exported population.

  Raises:
    ValueError: if they are damaged.
  """
  if source is None:
    return {}
  directory = loading.find(source)
  about = directory / run_directory.ABOUT_FILE
  if about.exists():
    return files.parse_json(about, _ratings, 'ratings of shared agents')
  results = tournament_files.read(directory)
  if results is not None:  # In training, only members are rated.
    members = [f'member {index}' for index in range(results.num_members)]
    names = [*members, *results.players[results.num_members :]]
    return {
      name: _UNKNOWN_RATING + float(rating)
      for name, rating in zip(names, results.ratings, strict=True)
    }
  past = history.find(directory)
  last = past.ratings[-1] if past is not None else ()
  return {f'member {index}': float(rating) for index, rating in enumerate(last)}


def _ratings(plain: Any) -> dict[str, float]:
  ratings = plain.get('ratings', {})
  return {name: float(rating) for name, rating in ratings.items()}
