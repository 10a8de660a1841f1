"""Scripted players: who beats whom, and single decisions made by hand."""

import functools

import episodes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import (
  actions,
  maps,
  opponents,
  rules,
)

pytestmark = pytest.mark.slow

NUM_GAMES = 16
CONFIG = capture_the_flag.CaptureTheFlagConfig(num_steps=150)


@functools.lru_cache
def scores(first, second):
  """Returns the scores [games, 2] of two strengths."""
  plays = [
    episodes.play_all(opponents.make_script(name, CONFIG), CONFIG)
    for name in (first, second)
  ]
  is_first = jnp.asarray(np.array(CONFIG.teams) == 0)

  def step(state, key):
    keys = jax.random.split(key)
    played = [play(k, state) for play, k in zip(plays, keys, strict=True)]
    action = jax.tree.map(lambda a, b: jnp.where(is_first, a, b), *played)
    action = actions.decode_action(action, CONFIG)
    return rules.step(state, action, CONFIG)[0], None

  def run(key):
    start_key, key = jax.random.split(key)
    keys = jax.random.split(key, CONFIG.num_steps)
    return jax.lax.scan(step, rules.start(start_key, CONFIG), keys)[0].score

  keys = jax.random.split(jax.random.PRNGKey(0), NUM_GAMES)
  return np.asarray(jax.jit(jax.vmap(run))(keys))


@pytest.mark.parametrize(
  ('strong', 'weak', 'min_wins', 'min_lead'),
  [
    ('attacker', 'wanderer', 0.4, 0.6),
    ('tactician', 'attacker', 0.9, 2.5),
    ('tactician', 'wanderer', 0.9, 3),
  ],
)
def test_the_stronger_team_wins(strong, weak, min_wins, min_lead):
  score = scores(strong, weak)
  lead = score[:, 0] - score[:, 1]
  assert np.mean(lead > 0) >= min_wins
  assert np.mean(lead) >= min_lead
  assert np.mean(lead < 0) <= 0.1


FIELD = capture_the_flag.CaptureTheFlagConfig(
  height=7, width=11, wall_density=0.0
)


@functools.lru_cache
def make_chooser(strength):
  script = opponents.make_script(strength, FIELD)
  return jax.jit(jax.vmap(script, in_axes=(0, None, None)))


def decide(strength, places, directions, player=0, **changes):
  """Returns what a script does, most often of 40 times, in an open field."""
  start = jax.jit(rules.start, static_argnums=1)
  state = start(jax.random.PRNGKey(0), FIELD)._replace(
    cell=jnp.array([row * FIELD.width + column for row, column in places]),
    direction=jnp.array(directions),
    **{name: jnp.array(value) for name, value in changes.items()},
  )
  keys = jax.random.split(jax.random.PRNGKey(1), 40)
  action = make_chooser(strength)(keys, state, jnp.int32(player))
  assert all(part.dtype == jnp.int32 for part in action.values())
  most = {
    name: int(np.argmax(np.bincount(part))) for name, part in action.items()
  }
  return rules.MOVES[most['move']], rules.TURNS[most['turn']], most['tag']


def test_attackers_fetch_the_flag_and_bring_it_home():
  places = [(3, 5), (5, 1), (1, 9), (5, 9)]
  looks = [maps.EAST] * 4
  assert decide('attacker', places, looks) == ('forward', 'none', 0)
  # Behind it: it turns by a quarter and walks aside.
  looks = [maps.WEST] * 4
  assert decide('attacker', places, looks)[0] in ('left', 'right')
  carrying = {'carrier': [rules.NOBODY, 0], 'flag_cell': [36, 38]}
  assert decide('attacker', places, looks, **carrying) == (
    'forward', 'none', 0,
  )  # fmt: skip


def test_tacticians_tag_whom_they_can_reach_by_a_turn():
  places = [(3, 5), (5, 1), (3, 7), (5, 9)]
  looks = [maps.EAST, 0, 0, 0]
  assert decide('tactician', places, looks) == ('stay', 'none', 1)
  looks = [maps.NORTH, 0, 0, 0]
  assert decide('tactician', places, looks) == ('stay', 'right', 1)
  looks = [maps.WEST, 0, 0, 0]  # Out of reach by one turn.
  assert decide('tactician', places, looks)[2] == 0
  cooling = {'cooldown': [2, 0, 0, 0]}
  looks = [maps.EAST, 0, 0, 0]
  assert decide('tactician', places, looks, **cooling)[2] == 0


def test_guards_stay_home_and_fetch_their_flag_back():
  places = [(1, 9), (3, 4), (1, 8), (5, 8)]
  looks = [0, maps.EAST, 0, 0]
  assert decide('tactician', places, looks, player=1)[0] == 'stay'
  lying = {'flag_cell': [38, 40], 'flag_timer': [20, 0]}
  assert decide('tactician', places, looks, player=1, **lying)[0] == 'forward'


def test_unknown_strengths_are_refused():
  with pytest.raises(ValueError, match=r"strength \('god'\) of a scripted"):
    opponents.make_script('god', CONFIG)
