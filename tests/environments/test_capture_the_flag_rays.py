"""Rays against a slow ray caster, and the game that is seen through them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftwax
from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import (
  browser,
  columns,
  features,
  game_config,
  maps,
  rays,
  rules,
)

GRID = capture_the_flag.CaptureTheFlagConfig(height=9, width=13)
CONFIG = dataclasses.replace(GRID, observation='rays', compass=False)


def cross(angle, cell):
  """Returns where a ray from (0, 0) enters a cell of two axes; None if never.

  The interval of the ray within the cell's sides on both axes, without tracing.
  """
  enter, leave = 0.0, np.inf
  for middle, speed in zip(cell, (np.cos(angle), np.sin(angle)), strict=True):
    if abs(speed) < 1e-12:
      if abs(middle) >= 0.5:
        return None
      continue
    ends = sorted([(middle - 0.5) / speed, (middle + 0.5) / speed])
    enter, leave = max(enter, ends[0]), min(leave, ends[1])
  return enter if leave - enter > 1e-9 else None


def cast_slowly(state, config, player):
  """Returns the nearness of what a player's rays hit, [channels, num_rays]."""
  tiles, teams = np.asarray(state.map.tiles), np.asarray(config.teams)
  here = np.divmod(int(state.cell[player]), config.width)
  up = maps.STEPS[int(state.direction[player])]
  right = maps.STEPS[(int(state.direction[player]) + 1) % 4]
  own, enemy = teams[player], 1 - teams[player]
  is_in = np.asarray(state.waiting) == 0
  others = [p for p in range(len(teams)) if p != player and is_in[p]]
  cells = np.asarray(state.cell)
  groups = [
    np.flatnonzero(tiles.ravel() == maps.WALL),
    [cells[p] for p in others if teams[p] == own],
    [cells[p] for p in others if teams[p] == enemy],
    [state.flag_cell[own]], [state.flag_cell[enemy]],
    [state.map.stands[own]], [state.map.stands[enemy]],
  ]  # fmt: skip
  seen = np.zeros((len(groups), config.num_rays))
  if not is_in[player]:
    return seen
  for ray in range(config.num_rays):
    share = (ray + 0.5) / config.num_rays - 0.5
    angle = np.deg2rad(config.view_angle) * share
    for channel, places in enumerate(groups):
      found = []
      for place in places:
        offset = np.array(np.divmod(int(place), config.width)) - here
        found.append(cross(angle, (offset @ up, offset @ right)))
      near = [1 / (1 + each) for each in found if each is not None]
      seen[channel, ray] = max(near, default=0)
    seen[1:, ray] *= seen[1:, ray] > seen[0, ray]
  return seen


def scatter(key, state, config):
  """Puts players, flags and waiting at random."""
  free = np.flatnonzero(np.asarray(maps.is_walkable(state.map.tiles)).ravel())
  generator = np.random.default_rng(key)
  cells = generator.choice(free, config.num_players + 2, replace=False)
  waiting = np.where(generator.random(config.num_players) < 0.2, 5, 0)
  return state._replace(
    cell=jnp.array(cells[:-2], jnp.int32),
    flag_cell=jnp.array(cells[-2:], jnp.int32),
    direction=jnp.array(generator.integers(4, size=config.num_players)),
    waiting=jnp.array(waiting, jnp.int32),
  )


@pytest.mark.parametrize(
  'changes',
  [
    {},
    # Rays at 45 degrees, which go through corners.
    {'num_rays': 12, 'view_angle': 120, 'team_size': 3},
    {'num_rays': 7, 'view_angle': 170, 'team_size': 1, 'wall_density': 0.1},
  ],
)
def test_rays_hit_what_a_slow_ray_caster_hits(changes):
  config = dataclasses.replace(CONFIG, **changes)
  start = jax.jit(lambda key: rules.start(key, config))
  cast = jax.jit(lambda state: rays.cast(state, config))
  num_seen = np.zeros(len(features.CHANNELS))
  for seed in range(20):
    state = scatter(seed, start(jax.random.PRNGKey(seed)), config)
    seen = np.asarray(cast(state))
    for player in range(config.num_players):
      slow = cast_slowly(state, config, player)
      np.testing.assert_allclose(seen[player], slow, rtol=1e-5)
      num_seen += (slow > 0).any(axis=1)
  assert (num_seen[[0, *range(2, 7)]] > 0).all()


def test_the_middle_ray_is_the_line_of_fire():
  game = capture_the_flag.make(CONFIG)
  middle = CONFIG.num_rays // 2
  assert rays.angles(CONFIG)[middle] == pytest.approx(0, abs=1e-12)
  aim = jax.jit(lambda state: rules.aim(state, state.direction, CONFIG))
  cast = jax.jit(lambda state: rays.cast(state, CONFIG))
  start, num_hits = jax.jit(game.reset), 0
  for seed in range(60):
    state, _ = start(jax.random.PRNGKey(seed))
    state = scatter(seed, state, CONFIG)._replace(
      waiting=jnp.zeros(CONFIG.num_players, jnp.int32)
    )
    near = np.asarray(cast(state))[:, 2, middle]
    # The near side of a cell is half a cell nearer than its middle.
    is_near = near > 1 / (1 + CONFIG.tag_range - 0.5 + 0.25)
    can_hit = np.asarray(aim(state)).any(axis=1)
    # An opponent behind another or a mate changes nothing: rays go through.
    np.testing.assert_array_equal(can_hit, is_near)
    num_hits += can_hit.sum()
  assert num_hits > 10


def test_teams_that_change_places_see_the_same():
  start = jax.jit(lambda key: rules.start(key, CONFIG))
  observe = jax.jit(lambda state: rays.observe(state, CONFIG))
  swap = np.array([2, 3, 0, 1])
  for seed in range(5):
    state = scatter(seed, start(jax.random.PRNGKey(seed)), CONFIG)
    state = state._replace(score=jnp.array([2, 1]), carrier=jnp.array([-1, 1]))
    carrier = jnp.where(state.carrier < 0, -1, swap[state.carrier])
    other = state._replace(
      map=state.map._replace(
        stands=state.map.stands[::-1], pads=state.map.pads[swap]
      ),
      cell=state.cell[swap],
      direction=state.direction[swap],
      waiting=state.waiting[swap],
      cooldown=state.cooldown[swap],
      flag_cell=state.flag_cell[::-1],
      carrier=carrier[::-1],
      score=state.score[::-1],
    )
    np.testing.assert_array_equal(observe(state), observe(other)[swap])


@pytest.mark.parametrize('observation', ['rays', 'columns'])
def test_equal_moves_make_equal_games_in_all_views(observation):
  seen = dataclasses.replace(CONFIG, observation=observation, num_steps=60)
  grid = dataclasses.replace(GRID, num_steps=60)
  games = [capture_the_flag.make(config) for config in (grid, seen)]
  keys = jax.random.split(jax.random.PRNGKey(3), 60)

  def play(game):
    state, first = game.reset(jax.random.PRNGKey(7))

    def step(state, key):
      # Scripts act in each view, on the state.
      names = ('tactician', 'attacker')
      action = [
        game.scripts[names[seat // 2]](key, state, jnp.int32(seat))
        for seat in range(4)
      ]
      action = jax.tree.map(lambda *parts: jnp.stack(parts), *action)
      state, timestep = game.step(state, action)
      return state, (state, timestep._replace(observation=()))

    _, steps = jax.lax.scan(step, state, keys)
    return state, first._replace(observation=()), steps

  plays = [jax.jit(lambda game=game: play(game))() for game in games]
  jax.tree.map(np.testing.assert_array_equal, *plays)
  _, _, (states, timesteps) = plays[1]
  assert np.asarray(timesteps.reward).sum() > 0
  assert (np.diff(states.direction, axis=0) != 0).any()


@pytest.mark.parametrize(
  ('options', 'shape'),
  [
    pytest.param({}, (7 * 49 + 17,), marks=pytest.mark.ci),
    ({'compass': True, 'cue_steps': 3}, (7 * 49 + 18,)),
    pytest.param({'num_rays': 31}, (7 * 31 + 17,), marks=pytest.mark.ci),
    ({'observation': 'columns', 'num_rays': 72}, (48, 72, 3)),
  ],
)
def test_views_have_their_specs_and_are_read_from_them(options, shape):
  config = dataclasses.replace(CONFIG, **options)
  game = capture_the_flag.make(config)
  ftwax.check_environment(game, num_steps=20)
  assert game.spec.observations.shape == shape
  assert game.spec.observations.name == config.observation
  read = browser.read_config(game.spec, team_size=2)
  assert capture_the_flag.make(read).spec == game.spec
  _, timestep = game.reset(jax.random.PRNGKey(0))
  view = browser.make_page(config).view(timestep.observation[0])
  if config.observation == 'rays':
    sent = [*np.ravel(view['rays']), *view['scalars']]
    np.testing.assert_allclose(sent, timestep.observation[0], atol=1e-3)
  else:
    assert view['frame'].startswith('data:image/png')
  for name in ('observation', 'num_rays'):
    assert getattr(read, name) == getattr(config, name)


def test_without_a_compass_only_what_a_ray_hits_has_a_position():
  start = jax.jit(lambda key: rules.start(key, CONFIG))
  observe = jax.jit(lambda state: rays.observe(state, CONFIG))
  with_compass = dataclasses.replace(CONFIG, compass=True)
  told = jax.jit(lambda state: rays.observe(state, with_compass))
  grid = jax.jit(lambda state: features.observe(state, GRID))
  num_rays, num_cells = 7 * CONFIG.num_rays, 7 * GRID.view_size**2
  seen = []
  for seed in range(10):
    state = scatter(seed, start(jax.random.PRNGKey(seed)), CONFIG)
    vector, all_told = np.asarray(observe(state)), np.asarray(told(state))
    scalars = np.asarray(grid(state))[:, num_cells:]
    np.testing.assert_array_equal(all_told[:, num_rays:], scalars)
    hit = vector[:, :num_rays].reshape(4, 7, -1)[:, -4:].any(axis=-1)
    seen.append(hit)
    expected = np.where(np.tile(hit, 2), scalars[:, :8], 0)
    np.testing.assert_array_equal(vector[:, num_rays : num_rays + 8], expected)
    np.testing.assert_array_equal(vector[:, num_rays + 8 :], scalars[:, 8:])
  assert 0 < np.mean(seen) < 1


def test_pictures_show_the_nearest_and_leave_room_for_sky_and_floor():
  config = dataclasses.replace(CONFIG, observation='columns', num_rays=72)
  height, width, _ = columns.shape(config)
  near = np.zeros((7, width), np.float32)
  near[0] = 1 / (1 + 6.5)  # A wall, half as high as the picture or less.
  near[2, 30:40] = 1 / (1 + 3.5)  # An opponent before it,
  near[1, 35:50] = 1 / (1 + 1.5)  # and a mate before both.
  near[5] = 1.0  # On the own stand, which is no sight.
  image = np.asarray(columns.draw(jnp.asarray(near)[None], config))[0]
  assert image.shape == (height, width, 3)
  image = image.astype(int)
  sky, floor = image[0, 36], image[-1, 5]
  assert sky[2] > sky[0] and floor[0] > floor[2]
  feet = image[height // 2 + 2]
  is_wall = abs(np.ptp(feet, axis=-1)) < 10
  is_red, is_blue = feet[:, 0] > feet[:, 2] + 50, feet[:, 2] > feet[:, 0] + 50
  np.testing.assert_array_equal(np.flatnonzero(is_red), np.arange(30, 35))
  np.testing.assert_array_equal(np.flatnonzero(is_blue), np.arange(35, 50))
  assert is_wall[:30].all() and is_wall[50:].all()


@pytest.mark.parametrize(
  'height', [352, pytest.param(1300, marks=pytest.mark.ci)]
)
def test_films_show_views_of_any_height(height):
  """More columns than a config has rays are pixels of several columns."""
  game = capture_the_flag.make(CONFIG)

  @jax.jit
  def look(key):
    return columns.look(game.reset(key)[0], jnp.array(0), CONFIG, height)

  image = np.asarray(look(jax.random.PRNGKey(0)))
  assert image.shape[0] == height
  assert image.shape[1] == pytest.approx(1.5 * height, abs=6)
  scale = -(-3 * height // (2 * game_config.MAX_RAYS))
  np.testing.assert_array_equal(image[:, ::scale], image[:, scale - 1 :: scale])
  assert len(np.unique(image.reshape(-1, 3), axis=0)) > 5


def test_who_waits_sees_nothing():
  for observation in ('rays', 'columns'):
    config = dataclasses.replace(CONFIG, observation=observation)
    module = {'rays': rays, 'columns': columns}[observation]
    state = rules.start(jax.random.PRNGKey(0), config)
    state = state._replace(waiting=jnp.array([4, 0, 0, 0]))
    observe = jax.jit(module.observe, static_argnums=1)
    seen = np.asarray(observe(state, config))
    sight = seen[:, : 7 * 49] if observation == 'rays' else seen
    assert not sight[0].any() and sight[1].any()
