"""Maps: symmetric, closed, reachable over many keys; floods; bad sizes."""

import collections
import dataclasses
import functools

import jax
import numpy as np
import pytest

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import maps

pytestmark = pytest.mark.ci

CONFIGS = [
  capture_the_flag.CaptureTheFlagConfig(
    team_size=4, height=7, width=11, wall_density=1.0
  ),
  capture_the_flag.CaptureTheFlagConfig(),
  capture_the_flag.CaptureTheFlagConfig(
    team_size=1, height=15, width=21, wall_density=0.9
  ),
]
VARIED = capture_the_flag.CaptureTheFlagConfig(
  height=11, width=15, min_height=7, min_width=11
)


@functools.lru_cache
def draw(config, num_maps=500):
  make = jax.vmap(lambda key: maps.make_map(key, config))
  keys = jax.random.split(jax.random.PRNGKey(0), num_maps)
  return jax.device_get(jax.jit(make)(keys))


def is_turned(tiles):
  return np.array_equal(tiles, tiles[::-1, ::-1])


def is_mirrored(tiles):
  return np.array_equal(tiles, tiles[:, ::-1])


def reached_from(tiles, cell):
  """Returns the cells that a player who stands in `cell` can come to."""
  height, width = tiles.shape
  todo, seen = [divmod(int(cell), width)], set()
  while todo:
    row, column = todo.pop()
    seen.add((row, column))
    for r, c in (
      (row + 1, column),
      (row - 1, column),
      (row, column + 1),
      (row, column - 1),
    ):
      inside = 0 <= r < height and 0 <= c < width
      if inside and tiles[r, c] in (maps.FLOOR, maps.STAND):
        if (r, c) not in seen:
          todo.append((r, c))
  return seen


@pytest.mark.parametrize('config', [*CONFIGS, VARIED])
def test_all_that_is_open_can_be_reached_from_every_base(config):
  drawn = draw(config)
  for tiles, stands, pads in zip(*drawn, strict=True):
    is_open = {tuple(place) for place in np.argwhere(maps.is_walkable(tiles))}
    assert reached_from(tiles, stands[0]) == is_open
    assert divmod(int(stands[1]), config.width) in is_open
    for pad in pads:
      place = divmod(int(pad), config.width)
      assert reached_from(tiles, pad) == is_open | {place}


@pytest.mark.parametrize('config', CONFIGS)
def test_maps_are_closed_and_symmetric_in_both_ways(config):
  tiles, stands, pads = draw(config)
  border = np.ones(tiles.shape[1:], bool)
  border[1:-1, 1:-1] = False
  assert np.all(tiles[:, border] == maps.WALL)
  num_turned = num_mirrored = 0
  for i in range(len(tiles)):
    row, column = np.divmod(pads[i], config.width)
    mirrored_pads = row * config.width + config.width - 1 - column
    turned_pads = tiles[i].size - 1 - pads[i]
    team = slice(0, config.team_size), slice(config.team_size, None)
    turned = is_turned(tiles[i]) and np.array_equal(
      turned_pads[team[0]], pads[i][team[1]]
    )
    mirrored = is_mirrored(tiles[i]) and np.array_equal(
      mirrored_pads[team[0]], pads[i][team[1]]
    )
    assert turned or mirrored
    num_turned += turned and not mirrored
    num_mirrored += mirrored and not turned
  assert min(num_turned, num_mirrored) > 0.3 * len(tiles)
  assert np.all(stands[:, 0] % config.width < stands[:, 1] % config.width)


def test_maps_differ_and_are_seldom_left_open():
  tiles = draw(CONFIGS[1]).tiles
  assert len(np.unique(tiles.reshape(len(tiles), -1), axis=0)) > 450
  num_inner = np.sum(tiles[:, 1:-1, 1:-1] == maps.WALL, axis=(1, 2))
  assert np.mean(num_inner == 0) < 0.02


def test_a_map_without_walls_is_an_open_field():
  config = capture_the_flag.CaptureTheFlagConfig(wall_density=0.0)
  tiles = maps.make_map(jax.random.PRNGKey(0), config).tiles
  assert np.sum(tiles == maps.WALL) == 2 * (config.height + config.width) - 4


def test_sizes_vary_from_map_to_map():
  sizes = collections.Counter()
  for tiles in draw(dataclasses.replace(VARIED, wall_density=0.0)).tiles:
    rows, columns = np.nonzero(tiles != maps.WALL)
    assert rows.min() == columns.min() == 1
    height, width = rows.max() + 2, columns.max() + 2
    assert np.all(tiles[1 : height - 1, 1 : width - 1] != maps.WALL)
    sizes[height, width] += 1
  assert set(sizes) == {(h, w) for h in (7, 9, 11) for w in (11, 13, 15)}
  assert min(sizes.values()) > 30


def test_rows_of_bases_do_not_depend_on_the_width():
  found = collections.Counter()
  drawn = draw(dataclasses.replace(VARIED, min_height=None, wall_density=0.0))
  for tiles, stands in zip(drawn.tiles, drawn.stands, strict=True):
    width = np.nonzero(tiles != maps.WALL)[1].max() + 2
    found[int(stands[0]) // VARIED.width, width] += 1
  rows = {row for row, _ in found}
  assert len(found) == len(rows) * 3
  assert min(found.values()) > 0.3 * max(found.values())


def test_maps_of_varied_sizes_are_symmetric():
  for tiles in draw(VARIED).tiles:
    width = np.nonzero(tiles != maps.WALL)[1].max() + 2
    assert any(
      np.all(tiles[height:] == maps.WALL)
      and (
        is_turned(tiles[:height, :width]) or is_mirrored(tiles[:height, :width])
      )
      for height in (7, 9, 11)
    )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'team_size': 5},
      r'team_size \(5\) of .* must be at least 1 and at most 4; ch',
    ),
    ({'team_size': 0}, r'team_size \(0\)'),
    ({'height': 10}, r'height \(10\) .* must be odd and from 7 to 255; .* 11'),
    ({'width': 9}, r'width \(9\) .* must be odd and from 11 to 255'),
    ({'min_width': 15}, r'min_width \(15\) .* odd and from 11 to 13; .* 13'),
    ({'min_height': 8}, r'min_height \(8\) .* must be odd and from 7 to 11'),
    (
      {'wall_density': 1.5},
      r'wall_density \(1.5\) .* at least 0 and at most 1',
    ),
    ({'num_steps': 0}, r'num_steps \(0\) .* must be at least 1'),
    ({'tag_cooldown': -1}, r'tag_cooldown \(-1\) .* must be at least 0'),
    ({'view_size': 4}, r'view_size \(4\) .* must be odd'),
    ({'view_behind': 7}, r'view_behind \(7\) .* must be from 0 to 6'),
    ({'observation': 'sound'}, r"observation \('sound'\) .* must be one of"),
    ({'action': 'joystick'}, r"action \('joystick'\) .* must be one of"),
  ],
)
def test_bad_sizes_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    capture_the_flag.CaptureTheFlagConfig(**changes)
