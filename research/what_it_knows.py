"""What a trained agent knows and does, for the rows of `paper.py`.

Two copies of a member play against two scripted opponents. In each step, facts
about the game are read from the game's state, beside the recurrent states of
the agent and of an untrained one that observes the same games. After Jaderberg
et al., 2019 (arXiv:1807.01281), figures 3 and 4.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.environments import capture_the_flag, functional
from ftwax.environments.capture_the_flag import rules
from ftwax.inference import loaded_agent, loading
from ftwax.population import players
from ftwax.records import checkpoints


class Options(NamedTuple):
  """Games to play.

  Attributes:
    run: directory of a run, or a population of ftwax.
    opponent: the opposing script.
    num_games: number of games.
    seed: random seed of the games.
    member: the member that plays.
  """

  run: str
  opponent: str
  num_games: int
  seed: int
  member: int = 0


# Distance, in cells, within which a player is near a stand or a teammate.
_NEAR = 3

SITUATIONS = (
  'none of these',
  'our flag is away',
  'team mate carries',
  'I carry',
)


class Facts(NamedTuple):
  """Facts about each seat at one step, bool [S] if not said otherwise.

  Attributes:
    cell: int32 [S], where the player is, row by row.
    carries: whether the player carries the opponents' flag.
    flag_is_away: whether its team's flag is away from its stand.
    flag_is_stray: whether its team's flag is away and not carried.
    teammate_carries: whether a teammate carries the opponents' flag.
    base_is_empty: whether no player of its team is near the team's stand.
    waits: whether the player waits after a tag.
    at_own_base: whether it is near its team's stand.
    at_other_base: whether it is near the opponents' stand.
    beside_teammate: whether it is near a teammate.
  """

  cell: types.Array
  carries: types.Array
  flag_is_away: types.Array
  flag_is_stray: types.Array
  teammate_carries: types.Array
  base_is_empty: types.Array
  waits: types.Array
  at_own_base: types.Array
  at_other_base: types.Array
  beside_teammate: types.Array


class Record(NamedTuple):
  """Games that were played, on S seats.

  Attributes:
    facts: leaves [T, G, S], or of what else was read.
    states: float32 [T, G, S, D], recurrent states of the agent.
    untrained: likewise, of an untrained agent in its place.
  """

  facts: Any
  states: types.NumpyArray
  untrained: types.NumpyArray


def read_facts(
  state: rules.State, config: capture_the_flag.CaptureTheFlagConfig
) -> Facts:
  """Returns the facts about the players of team 0, leaves [S]."""
  num_seats = config.team_size
  carries = rules.carries_flag(state, config)[:num_seats]
  near = functools.partial(_is_near, width=config.width)
  own, other = state.map.stands[0], state.map.stands[1]
  is_active = state.waiting[:num_seats] == 0
  cells = state.cell[:num_seats]
  others = ~np.eye(num_seats, dtype=bool)
  is_beside = near(cells[:, None], cells[None]) & others
  at_own_base = near(cells, own) & is_active
  is_stray = (state.carrier[0] == rules.NOBODY) & ~rules.is_home(state)[0]
  spread = functools.partial(jnp.broadcast_to, shape=(num_seats,))
  return Facts(
    cell=cells,
    carries=carries,
    flag_is_away=spread(~rules.is_home(state)[0]),
    flag_is_stray=spread(is_stray),
    teammate_carries=jnp.any(carries[None] & others, axis=1),
    base_is_empty=spread(~jnp.any(at_own_base)),
    waits=~is_active,
    at_own_base=at_own_base,
    at_other_base=near(cells, other) & is_active,
    beside_teammate=jnp.any(is_beside & is_active[None], axis=1) & is_active,
  )


def _is_near(a: types.Array, b: types.Array, width: int) -> types.Array:
  rows = jnp.abs(a // width - b // width)
  return rows + jnp.abs(a % width - b % width) <= _NEAR


def play(
  agent: loaded_agent.LoadedAgent,
  untrained: types.ActorVariables,
  game: functional.FunctionalGame,
  config: capture_the_flag.CaptureTheFlagConfig,
  options: Options,
  read: Callable[..., Any] = read_facts,
) -> Record:
  """Plays the games; an untrained agent observes the same steps.

  Args:
    agent: plays on all seats of the first team.
    untrained: variables of the untrained agent.
    game: the game.
    config: its config.
    options: number of games, opponent and seed.
    read: returns facts about the first team, given `(state, config)`.
  """
  num_seats, num_games = config.team_size, options.num_games
  script = players.scripted(game.scripts[options.opponent])
  actor = agent.actor
  opponents = np.arange(num_seats, config.num_players, dtype=np.int32)

  def merge(leaf: types.Array) -> types.Array:
    return leaf.reshape(-1, *leaf.shape[2:])

  def step(carry: Any, _: None) -> tuple[Any, Any]:
    state, timestep, own, naive, script_state = carry
    rows, other_rows = (
      jax.tree.map(lambda leaf, seats=seats: merge(leaf[:, seats]), timestep)
      for seats in (slice(num_seats), slice(num_seats, None))
    )
    action, own = actor.select_action(agent.variables, rows, own)
    _, naive = actor.select_action(untrained, rows, naive)
    # Replace its own action by the action taken, as its next input.
    naive = actor.replace_action(naive, action)
    states = jax.tree.map(
      lambda leaf: jnp.repeat(leaf, num_seats, axis=0), state
    )
    answer, script_state = script.act(
      states, jnp.tile(opponents, num_games), other_rows, script_state
    )
    joined = jax.tree.map(
      lambda ours, theirs: jnp.concatenate(
        [ours.reshape(num_games, -1), theirs.reshape(num_games, -1)], axis=1
      ),
      action,
      answer,
    )
    facts = jax.vmap(functools.partial(read, config=config))(state)
    out = facts, _flatten(own), _flatten(naive)
    stepped = jax.vmap(game.step)(state, joined)
    return (*stepped, own, naive, script_state), out

  @jax.jit
  def run(key: types.Key) -> Any:
    keys = jax.random.split(key, 4)
    started = jax.vmap(game.reset)(jax.random.split(keys[0], num_games))
    num_rows = num_games * num_seats
    carry = (
      *started,
      actor.init(keys[1], num_rows),
      actor.init(keys[2], num_rows),
      script.init(keys[3], num_rows),
    )
    return jax.lax.scan(step, carry, length=config.num_steps)[1]

  facts, states, naive = jax.device_get(run(jax.random.PRNGKey(options.seed)))
  shape = config.num_steps, num_games, num_seats, -1
  return Record(facts, states.reshape(shape), naive.reshape(shape))


def _flatten(state: types.ActorState) -> types.Array:
  """Flattens a recurrent state to [B, D], leaving out memory matrices.

  Values are squashed by tanh, as an LSTM squashes its cell: some cells count
  steps and would otherwise dominate the first principal component.
  """
  leaves = [
    leaf
    for leaf in jax.tree.leaves(state.recurrent_state)
    if leaf.ndim == 2 and jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  return jnp.tanh(jnp.concatenate(leaves, axis=1))


def behave(facts: Facts) -> list[float]:
  """Returns shares of the steps in play: at our base, theirs, beside a mate."""
  in_play = max(float((~facts.waits).mean()), 1e-9)
  shares = facts.at_own_base, facts.at_other_base, facts.beside_teammate
  return [float(share.mean()) / in_play for share in shares]


def count_visits(facts: Facts, height: int, width: int) -> types.Floats:
  """Returns the share of the steps in play in each cell, [height, width]."""
  cells = facts.cell[~facts.waits]
  counts = np.bincount(cells, minlength=height * width)
  return counts.reshape(height, width) / max(1, len(cells))


def plot_visits(visits: Mapping[str, types.Floats]) -> matplotlib.figure.Figure:
  """Plots where players were, one map of all games for each stage.

  Args:
    visits: by stage, from `count_visits`.
  """
  figure = matplotlib.figure.Figure(
    (2.4 * len(visits), 2.1), dpi=110, layout='constrained'
  )
  highest = np.max([np.sqrt(shares) for shares in visits.values()])
  for index, (name, shares) in enumerate(visits.items(), start=1):
    axes: Any = figure.add_subplot(1, len(visits), index)
    # Roots, since most of the time is spent in a few cells.
    axes.imshow(np.sqrt(shares), vmin=0.0, vmax=highest, cmap='Blues')
    axes.set_title(name, fontsize=8)
    axes.set_axis_off()
  return figure


def situations(facts: Facts) -> types.NumpyArray:
  """Returns indices into `SITUATIONS`, int, of the shape of the facts."""
  return np.select(
    [facts.carries, facts.teammate_carries, facts.flag_is_away], [3, 2, 1], 0
  )


def load_stages(options: Options) -> dict[str, loaded_agent.LoadedAgent]:
  """Returns the untrained agent and the agents of all checkpoints, by name."""
  source = options.run
  load = functools.partial(loading.load, source, options.member, greedy=False)
  newest = load()
  untrained = loaded_agent.LoadedAgent(
    newest.actor,
    loading.initial_variables(source, options.seed),
    newest.game_spec,
  )
  stages = {'untrained': untrained}
  directory = pathlib.Path(source) / 'checkpoints'
  if directory.is_dir():
    with checkpoints.Checkpointer(directory) as checkpointer:
      steps = checkpointer.steps()
    stages |= {f'{step:,} steps': load(step=step) for step in steps[:-1]}
  return {**stages, 'trained': newest}
