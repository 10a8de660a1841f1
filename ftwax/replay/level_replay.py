"""Prioritized level replay (PLR): a curriculum over an environment's levels.

A level is what an environment draws at its reset, such as a map; the random key
of the reset stands for it. A level in the buffer is played again the more often
the larger the errors of the critic were when it was played last (Jiang et al.,
2021, "Prioritized Level Replay"), so that levels which are too easy or too hard
for the agent become rare. `G` levels are drawn at a time, for as many games.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types


@dataclasses.dataclass(frozen=True)
class LevelReplayConfig(types.Config):
  """Options of prioritized level replay.

  Defaults are those of robust PLR (Jiang et al., 2021, "Replay-Guided
  Adversarial Environment Design", table 4), but for fewer levels.

  Attributes:
    num_levels: K, number of levels in the buffer.
    replay_probability: probability that a game plays a level of the buffer
      rather than a new one.
    temperature: of the ranks of scores; the lower, the more often the levels
      with the largest scores are played.
    staleness: fraction of draws that go by the time since a level was played
      rather than by its score.

  Raises:
    ValueError: if a value is out of its range.
  """

  num_levels: int = 1000
  replay_probability: float = 0.5
  temperature: float = 0.3
  staleness: float = 0.3

  def __post_init__(self) -> None:
    self.check_types()
    if self.num_levels < 1:
      raise ValueError(
        f'num_levels ({self.num_levels}) must be at least 1; choose'
        f' {LevelReplayConfig.num_levels}.'
      )
    if not self.temperature > 0:
      raise ValueError(
        f'temperature ({self.temperature}) must be positive; choose'
        f' {LevelReplayConfig.temperature}.'
      )
    for name in ('replay_probability', 'staleness'):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) must be in [0, 1]; choose'
          f' {getattr(LevelReplayConfig, name)}.'
        )


class LevelState(NamedTuple):
  """The buffer, and the levels that are played at present.

  Attributes:
    keys: uint32 [K, 2], random keys of the levels in the buffer.
    scores: float32 [K], mean absolute TD errors when each was played last;
      -inf where the buffer is empty.
    drawn_at: int32 [K], the number of draws when each was drawn last.
    num_draws: int32 [], number of draws of `G` levels.
    playing: uint32 [G, 2], random keys of the levels that are played.
    slots: int32 [G], where these are in the buffer; K for new levels.
    errors: float32 [G], sums of absolute TD errors in each of these.
    num_errors: float32 [G], number of these errors.
  """

  keys: types.Array
  scores: types.Array
  drawn_at: types.Array
  num_draws: types.Array
  playing: types.Array
  slots: types.Array
  errors: types.Array
  num_errors: types.Array


def init(config: LevelReplayConfig, num_games: int) -> LevelState:
  """Returns an empty buffer, for `num_games` levels at a time."""
  num_levels = config.num_levels
  return LevelState(
    keys=jnp.zeros((num_levels, 2), jnp.uint32),
    scores=jnp.full((num_levels,), -jnp.inf),
    drawn_at=jnp.zeros((num_levels,), jnp.int32),
    num_draws=jnp.int32(0),
    playing=jnp.zeros((num_games, 2), jnp.uint32),
    slots=jnp.full((num_games,), num_levels, jnp.int32),
    errors=jnp.zeros((num_games,)),
    num_errors=jnp.zeros((num_games,)),
  )


def add_errors(
  state: LevelState, games: types.Array, errors: types.Array, mask: types.Array
) -> LevelState:
  """Adds TD errors of the levels that are played.

  Args:
    state: before.
    games: int32 [rows], the game of each row.
    errors: float32 [T, rows], TD errors.
    mask: float32 [T, rows], 0 for errors to leave out.
  """
  sizes = jnp.sum(jnp.abs(errors) * mask, axis=0)
  return state._replace(
    errors=state.errors.at[games].add(sizes),
    num_errors=state.num_errors.at[games].add(jnp.sum(mask, axis=0)),
  )


def draw(
  key: types.Key, state: LevelState, config: LevelReplayConfig
) -> LevelState:
  """Keeps the played levels by their errors, and draws `G` levels to play.

  No level is drawn twice at a time.

  Args:
    key: random key.
    state: after the levels in `playing` have been played.
    config: options.
  """
  state = _keep(state)
  num_levels, num_games = len(state.scores), len(state.slots)
  new_key, replay_key, which_key = jax.random.split(key, 3)
  # Sampling without replacement: the largest of logits with Gumbel noise.
  noise = jax.random.gumbel(which_key, (num_levels,))
  logits = jnp.log(_probabilities(state, config)) + noise
  padding = max(0, num_games - num_levels)
  logits = jnp.pad(logits, (0, padding), constant_values=-jnp.inf)
  best, slots = jax.lax.top_k(logits, num_games)
  is_replayed = jnp.isfinite(best) & jax.random.bernoulli(
    replay_key, config.replay_probability, (num_games,)
  )
  slots = jnp.where(is_replayed, slots, num_levels)
  new = jax.random.split(new_key, num_games)
  playing = jnp.where(
    is_replayed[:, None], state.keys.at[slots].get(mode='clip'), new
  )
  return state._replace(
    drawn_at=state.drawn_at.at[slots].set(state.num_draws, mode='drop'),
    num_draws=state.num_draws + 1,
    playing=playing,
    slots=slots,
    errors=jnp.zeros_like(state.errors),
    num_errors=jnp.zeros_like(state.num_errors),
  )


def _keep(state: LevelState) -> LevelState:
  """Scores the played levels, and keeps those with the largest scores."""
  num_levels = len(state.scores)
  scores = jnp.where(
    state.num_errors > 0,
    state.errors / jnp.maximum(1.0, state.num_errors),
    -jnp.inf,
  )
  is_new = state.slots == num_levels
  known = state.scores.at[state.slots].set(scores, mode='drop')
  every = jnp.concatenate([known, jnp.where(is_new, scores, -jnp.inf)])
  kept, places = jax.lax.top_k(every, num_levels)
  drawn_at = jnp.full(state.slots.shape, state.num_draws - 1)
  return state._replace(
    keys=jnp.concatenate([state.keys, state.playing])[places],
    scores=kept,
    drawn_at=jnp.concatenate([state.drawn_at, drawn_at])[places],
  )


def _probabilities(state: LevelState, config: LevelReplayConfig) -> types.Array:
  """Returns the probability of each level, [K]: equations 1 to 3 of PLR."""
  is_filled = jnp.isfinite(state.scores)
  # Levels are sorted by score, see `_keep`.
  ranks = 1.0 + jnp.arange(len(state.scores))
  by_score = jnp.where(is_filled, ranks ** (-1.0 / config.temperature), 0.0)
  ages = jnp.where(is_filled, state.num_draws - state.drawn_at, 0.0)

  def normalize(weights: types.Array) -> types.Array:
    return weights / jnp.maximum(jnp.sum(weights), 1e-9)

  return (1.0 - config.staleness) * normalize(
    by_score
  ) + config.staleness * normalize(ages)
