"""What a critic sees of a game beside what its players see."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_other_games

from ftwax import types
from ftwax.environments import (
  capture_the_flag,
  compiled_games,
  jaxmarl_adapter,
)
from ftwax.environments.capture_the_flag import maps, rules, team_state

CONFIG = capture_the_flag.CaptureTheFlagConfig(
  height=11, width=15, min_height=7, min_width=11, team_state=True
)
# The direction of each in the mirror.
MIRROR = np.array([maps.NORTH, maps.WEST, maps.SOUTH, maps.EAST])


def play(config, num_steps=60):
  """Returns the states and timesteps of a random game, leaves [T, ...]."""
  game = capture_the_flag.make(config)

  def go_on(state, key):
    keys = jax.random.split(key, 3)
    action = {
      name: jax.random.randint(k, (4,), 0, high)
      for k, (name, high) in zip(
        keys, {'move': 5, 'turn': 3, 'tag': 2}.items(), strict=True
      )
    }
    state, timestep = game.step(state, action)
    return state, (state, timestep)

  @jax.jit
  def run(key):
    state, _ = game.reset(key)
    return jax.lax.scan(go_on, state, jax.random.split(key, num_steps))[1]

  return run(jax.random.PRNGKey(3))


@pytest.fixture(scope='module')
def played():
  return play(CONFIG)


def exchange_teams(state, config):
  """Returns the same moment with teams exchanged and columns mirrored."""
  last = int((state.map.stands % config.width).sum())

  def place(cells):
    row, column = np.divmod(np.asarray(cells), config.width)
    return row * config.width + last - column

  tiles = np.full_like(state.map.tiles, maps.WALL)
  tiles[:, : last + 1] = np.asarray(state.map.tiles)[:, last::-1]
  swap = np.array([2, 3, 0, 1])
  carrier = np.asarray(state.carrier)[::-1]
  return state._replace(
    map=maps.Map(
      jnp.asarray(tiles),
      jnp.asarray(place(state.map.stands)[::-1].copy()),
      jnp.asarray(place(state.map.pads)[swap]),
    ),
    cell=jnp.asarray(place(state.cell)[swap]),
    direction=jnp.asarray(MIRROR[np.asarray(state.direction)][swap]),
    waiting=state.waiting[swap],
    cooldown=state.cooldown[swap],
    carrier=jnp.asarray(np.where(carrier >= 0, (carrier + 2) % 4, carrier)),
    flag_cell=jnp.asarray(place(state.flag_cell)[::-1].copy()),
    flag_timer=state.flag_timer[::-1],
    score=state.score[::-1],
  )


def test_each_team_sees_the_game_from_its_own_side(played):
  states, _ = played
  for time in (0, 20, 59):
    state = jax.tree.map(lambda leaf, time=time: leaf[time], states)
    # The own flag of team 0 is carried, and that of team 1 has fallen.
    state = state._replace(
      carrier=jnp.array([3, rules.NOBODY]), flag_timer=jnp.array([0, 5])
    )
    seen = team_state.observe(state, CONFIG)
    other = team_state.observe(exchange_teams(state, CONFIG), CONFIG)
    np.testing.assert_allclose(seen[2:], other[:2], atol=1e-6)
    assert not np.allclose(seen[:2], seen[2:])


def test_the_state_names_all_things(played):
  states, _ = played
  state = jax.tree.map(lambda leaf: leaf[40], states)
  seen = np.asarray(team_state.observe(state, CONFIG))
  num_cells = CONFIG.height * CONFIG.width
  tiles = np.asarray(state.map.tiles).ravel()
  np.testing.assert_array_equal(
    seen[0, :num_cells], (tiles == maps.WALL) | (tiles == maps.PAD)
  )
  for player, order in ((0, (0, 1, 2, 3)), (1, (1, 0, 2, 3))):
    for index, other in enumerate(order):
      start = num_cells + 9 * index
      row, column, *facing, waits, can_tag, carries = seen[player, start:][:9]
      cell = int(state.cell[other])
      np.testing.assert_allclose(
        [row * CONFIG.height, column * CONFIG.width],
        divmod(cell, CONFIG.width),
        atol=1e-4,
      )
      assert np.argmax(facing) == state.direction[other]
      assert waits == pytest.approx(state.waiting[other] / 10)
      assert can_tag == (state.cooldown[other] == 0) * (waits == 0)
      assert carries == rules.carries_flag(state, CONFIG)[other]
  assert seen[0, -2] == pytest.approx(1 - 41 / CONFIG.num_steps)


def test_players_see_what_they_saw(played):
  _, timesteps = played
  plain = CONFIG.replace(team_state=False)
  _, expected = play(plain)
  np.testing.assert_array_equal(
    timesteps.observation['features'], expected.observation
  )
  compiled_games.check_shapes(capture_the_flag.make(CONFIG))


@pytest.mark.parametrize('has_world', [True, False])
def test_jaxmarl_tells_its_world_or_what_all_see(has_world, key):
  class World(test_other_games.FakeMarl):
    def _see(self, time):
      seen = super()._see(time)
      world = {'world_state': jnp.arange(5) + time} if has_world else {}
      return {**seen, **world}

  game = jaxmarl_adapter.from_jaxmarl(World(), (0, 0, 1), team_state=True)
  compiled_games.check_shapes(game)
  _, timestep = jax.jit(game.reset)(key)
  whole = np.arange(5) if has_world else np.ones(8)
  np.testing.assert_array_equal(
    timestep.observation[types.PRIVILEGED], [whole] * 3
  )


def test_pettingzoo_tells_its_state_or_is_refused():
  pytest.importorskip('pettingzoo', reason='the extra envs is not there')
  from ftwax.environments import pettingzoo_adapter

  class Parallel:
    possible_agents = agents = ('a', 'b')

    def observation_space(self, agent):
      return gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent):
      return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
      self.time = 0
      return self._see(), {agent: {} for agent in self.agents}

    def _see(self):
      return {agent: np.zeros(1, np.float32) for agent in self.agents}

    def step(self, actions):
      self.time += 1
      no = dict.fromkeys(self.agents, False)
      zero = dict.fromkeys(self.agents, 0.0)
      return self._see(), zero, no, no, {agent: {} for agent in self.agents}

  class Told(Parallel):
    def state(self):
      return np.array([[self.time, 7]])

  game = pettingzoo_adapter.PettingZooGame(Told(), (0, 0), team_state=True)
  game.reset()
  timestep = game.step(np.zeros(2, np.int32))
  np.testing.assert_array_equal(
    timestep.observation[types.PRIVILEGED], [[1, 7]] * 2
  )
  with pytest.raises(ValueError, match=r'team_state \(True\) of Parallel must'):
    pettingzoo_adapter.PettingZooGame(Parallel(), (0, 0), team_state=True)
