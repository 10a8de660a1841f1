"""What players see and how games are handed out, in cases made by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.environments import capture_the_flag, functional
from ftwax.environments.capture_the_flag import (
  actions,
  features,
  maps,
  rendering,
  rules,
)

pytestmark = pytest.mark.slow

CONFIG = capture_the_flag.CaptureTheFlagConfig(
  height=7, width=11, wall_density=0.0, view_size=5, view_behind=1, tile_size=3
)
COMMANDS = {'move': 5, 'turn': 3, 'tag': 2}


@pytest.fixture(scope='module')
def field():
  """An open field; row 3 is the middle one, with both stands and no pad."""
  start = jax.jit(rules.start, static_argnums=1)
  state = start(jax.random.PRNGKey(0), CONFIG)
  np.testing.assert_array_equal(state.map.stands, [36, 40])
  return state


def put(state, places, directions):
  cells = [row * CONFIG.width + column for row, column in places]
  return state._replace(cell=jnp.array(cells), direction=jnp.array(directions))


def see(state, player, config=CONFIG):
  """Returns the channels [V, V] and scalars of a player's features, by name."""
  vector = np.asarray(features.observe(state, config)[player])
  size = config.view_size
  num_cells = len(features.CHANNELS) * size * size
  channels = vector[:num_cells].reshape(-1, size, size)
  return (
    dict(zip(features.CHANNELS, channels, strict=True)),
    dict(zip(features.SCALARS, vector[num_cells:], strict=True)),
  )


def places(channel):
  return [tuple(map(int, place)) for place in np.argwhere(channel)]


# Where the player stands in its own view: row 3, column 2.
@pytest.mark.parametrize(
  ('direction', 'mate', 'opponent'),
  [
    (maps.NORTH, (2, 2), (3, 4)),
    (maps.EAST, (3, 1), (1, 2)),
    (maps.SOUTH, (4, 2), (3, 0)),
    (maps.WEST, (3, 3), None),  # Two behind: out of sight.
  ],
)
def test_views_turn_with_the_player(field, direction, mate, opponent):
  state = put(field, [(3, 4), (2, 4), (3, 6), (5, 9)], [direction, 0, 0, 0])
  channels, _ = see(state, 0)
  assert places(channels['teammates']) == [mate]
  assert places(channels['opponents']) == ([opponent] if opponent else [])


def test_walls_pads_flags_and_stands_are_where_they_are(field):
  # In front of the own base, looking west: pads are at (2, 1) and (4, 1).
  state = put(field, [(3, 3), (2, 8), (3, 9), (5, 9)], [maps.WEST, 0, 0, 0])
  channels, scalars = see(state, 0)
  wall = np.zeros((5, 5))
  wall[0] = 1  # The border, three ahead.
  wall[1, [1, 3]] = 1  # Pads, two ahead.
  np.testing.assert_array_equal(channels['wall'], wall)
  assert places(channels['own_flag']) == [(3, 2)]
  assert places(channels['own_stand']) == [(3, 2)]
  assert places(channels['enemy_flag']) == []
  assert places(channels['enemy_stand']) == []
  assert scalars['own_flag_ahead'] == scalars['own_flag_right'] == 0
  assert scalars['enemy_flag_ahead'] == pytest.approx(-4 / 11)
  assert scalars['own_flag_is_home'] == scalars['enemy_flag_is_home'] == 1
  # An opponent sees the same things as not its own, from the other side.
  _, scalars = see(state._replace(direction=jnp.array([3, 0, 0, 0])), 2)
  assert scalars['own_flag_right'] == pytest.approx(-2 / 11)
  assert scalars['enemy_flag_right'] == pytest.approx(-6 / 11)
  assert scalars['enemy_flag_ahead'] == 0


def test_without_a_compass_only_what_is_in_view_has_a_way(field):
  config = dataclasses.replace(CONFIG, compass=False)
  # The first player looks west at its own stand, the second has all behind it.
  state = put(field, [(3, 4), (1, 1), (3, 6), (5, 9)], [maps.WEST, 0, 0, 0])
  channels, scalars = see(state, 0, config)
  assert places(channels['own_flag']) == [(2, 2)]
  for thing in ('own_flag', 'own_stand'):
    assert scalars[f'{thing}_ahead'] == pytest.approx(1 / 11)
    assert scalars[f'{thing}_right'] == 0
  ways = ('flag_ahead', 'flag_right', 'stand_ahead', 'stand_right')
  assert not any(scalars[f'enemy_{way}'] for way in ways)
  _, scalars = see(state, 1, config)
  assert not any(
    scalars[f'{who}_{way}'] for who in ('own', 'enemy') for way in ways
  )
  assert scalars['own_flag_is_home'] == 1
  _, with_compass = see(state, 1)
  assert with_compass['enemy_stand_right'] > 0 > with_compass['own_flag_ahead']
  # Who waits has no view, not even of what lies at its feet.
  state = put(field, [(3, 3), (1, 1), (3, 6), (5, 9)], [maps.WEST, 0, 0, 0])
  _, scalars = see(state._replace(waiting=jnp.array([5, 0, 0, 0])), 0, config)
  assert not any(
    scalars[f'{who}_{way}'] for who in ('own', 'enemy') for way in ways
  )


def test_what_lies_beyond_the_border_is_wall(field):
  state = put(field, [(1, 9), (2, 8), (3, 9), (5, 9)], [maps.NORTH, 0, 0, 0])
  channels, _ = see(state, 0)
  expected = np.zeros((5, 5))
  expected[:3] = 1  # The border and two rows that are not there.
  expected[:, 3:] = 1
  expected[4, 2] = 1  # A pad of the other team, behind.
  np.testing.assert_array_equal(channels['wall'], expected)


def test_own_state_is_told(field):
  state = put(field, [(3, 4), (2, 4), (3, 6), (5, 9)], [0, 0, 0, 0])
  state = state._replace(
    carrier=jnp.array([rules.NOBODY, 0]),
    flag_cell=jnp.array([36, 37]),
    cooldown=jnp.array([0, 2, 0, 0]),
    score=jnp.array([1, 3]),
    num_steps=jnp.int32(75),
  )
  _, scalars = see(state, 0)
  assert scalars['i_carry_the_flag'] == scalars['enemy_flag_is_carried'] == 1
  assert scalars['enemy_flag_is_home'] == 0
  assert scalars['i_can_tag'] == 1
  assert scalars['time_left'] == 0.75
  assert scalars['lead'] == pytest.approx(np.tanh(-2 / 3), abs=1e-6)
  _, mate = see(state, 1)
  assert mate['i_carry_the_flag'] == mate['i_can_tag'] == 0
  _, enemy = see(state, 2)
  assert enemy['own_flag_is_carried'] == 1 and enemy['lead'] > 0


def test_who_waits_sees_nothing_and_is_not_seen(field):
  state = put(field, [(3, 4), (2, 4), (3, 6), (5, 9)], [1, 0, 0, 0])
  state = state._replace(waiting=jnp.array([0, 0, 5, 0]))
  channels, scalars = see(state, 2)
  assert not any(channel.any() for channel in channels.values())
  assert scalars['time_i_wait'] == 0.5 and scalars['i_can_tag'] == 0
  channels, _ = see(state, 0)
  assert places(channels['opponents']) == []
  rgb = rendering.observe(state, CONFIG)
  assert not np.any(rgb[2]) and np.all(rgb[0].max(axis=-1) > 0)
  whole = capture_the_flag.render(state, CONFIG, tile_size=1)
  np.testing.assert_array_equal(whole[3, 6], whole[1, 6])


def test_both_teams_see_the_same_at_the_start_of_a_turned_map():
  config = dataclasses.replace(CONFIG, height=11, width=13, wall_density=0.7)
  start = jax.jit(rules.start, static_argnums=1)
  num_turned = 0
  for seed in range(12):
    state = start(jax.random.PRNGKey(seed), config)
    tiles = np.asarray(state.map.tiles)
    last = tiles.size - 1
    is_turned = np.array_equal(tiles, tiles[::-1, ::-1]) and np.array_equal(
      last - state.map.pads[:2], state.map.pads[2:]
    )
    num_turned += is_turned
    for observe in (features.observe, rendering.observe):
      seen = np.asarray(observe(state, config))
      assert np.array_equal(seen[:2], seen[2:]) == is_turned
  assert num_turned > 1


def test_images_are_of_tiles_of_the_chosen_size(field):
  state = put(field, [(3, 4), (2, 4), (3, 6), (5, 9)], [maps.NORTH, 0, 0, 0])
  small = np.asarray(rendering.observe(state, CONFIG))
  assert small.shape == (4, 15, 15, 3) and small.dtype == np.uint8
  large = rendering.observe(state, dataclasses.replace(CONFIG, tile_size=9))
  np.testing.assert_array_equal(
    np.asarray(large)[:, 4::9, 4::9], small[:, 1::3, 1::3]
  )
  tiles = small[0].reshape(5, 3, 5, 3, 3)  # [row, y, column, x, color]
  center = tiles[:, 1, :, 1]
  blue, red = center[3, 2].astype(int), center[3, 4].astype(int)
  assert blue[2] > 2 * blue[0] and red[0] > 2 * red[2]
  np.testing.assert_array_equal(center[2, 2], center[3, 2])  # Its teammate.
  # The light nose points ahead: up, as its teammate's does.
  assert tiles[3, 0, 2, 1].min() > 200 and tiles[3, 2, 2, 1].min() < 200


def test_a_view_is_a_negative_while_it_tells_that_a_game_is_reversed(field):
  config = dataclasses.replace(CONFIG, cue_steps=2)
  usual = rendering.observe(field, CONFIG)
  np.testing.assert_array_equal(rendering.observe(field, config), usual)
  state = field._replace(
    is_reversed=jnp.bool_(True), cue_steps=jnp.int32(config.cue_steps)
  )
  np.testing.assert_array_equal(rendering.observe(state, config), 255 - usual)
  state = state._replace(num_steps=jnp.int32(2))
  np.testing.assert_array_equal(rendering.observe(state, config), usual)


def test_the_renderer_shows_the_map(field):
  state = put(field, [(3, 4), (2, 4), (3, 6), (5, 9)], [0, 1, 2, 3])
  image = np.asarray(capture_the_flag.render(state, CONFIG, tile_size=3))
  assert image.shape == (21, 33, 3) and image.dtype == np.uint8
  center = image[1::3, 1::3].astype(int)
  tiles = np.asarray(state.map.tiles)
  walls = center[tiles == maps.WALL]
  assert np.all(walls == walls[0])
  assert center[3, 4][2] > center[3, 4][0] and center[3, 6][0] > center[3, 6][2]
  flags = center[3, 3], center[3, 7]
  assert flags[0][2] > flags[0][0] and flags[1][0] > flags[1][2]


@pytest.mark.parametrize(
  ('observation', 'action'), [('features', 'composite'), ('rgb', 'flat')]
)
def test_games_keep_their_spec(key, observation, action):
  config = dataclasses.replace(
    CONFIG, observation=observation, action=action, num_steps=3
  )
  spec = capture_the_flag.make(config).spec
  vector = functional.vectorize(capture_the_flag.make(config), 2)
  assert vector.teams == (0, 0, 1, 1) and len(vector.event_names) == 13
  state, timestep = jax.jit(vector.reset)(key)
  choice = jax.tree.map(lambda leaf: jnp.ones((2, 4), jnp.int32), spec.actions)
  step = jax.jit(vector.step)
  for expected in (0, 1, 1, 2, 0, 1):
    np.testing.assert_array_equal(timestep.step_type, np.full((2, 4), expected))
    np.testing.assert_array_equal(
      timestep.discount, np.full((2, 4), float(expected != 2))
    )
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[1, 3], timestep)
    spec.observations.validate(one.observation)
    spec.rewards.validate(one.reward)
    spec.discounts.validate(one.discount)
    state, timestep = step(state, choice)
  assert vector.outcome(state).shape == (2, 2)


def test_flat_actions_count_all_composite_ones():
  config = dataclasses.replace(CONFIG, action='flat')
  composite = actions.decode_action(jnp.arange(30), config)
  assert len(np.unique(np.stack(composite), axis=1).T) == 30
  for part, num_choices in COMMANDS.items():
    values = getattr(composite, part)
    assert int(values.min()) == 0 and int(values.max()) == num_choices - 1
  np.testing.assert_array_equal(
    actions.encode_action(composite, config), np.arange(30)
  )
