"""Four rooms: boards, walks and rewards, held to rules in NumPy."""

import dm_env
import episodes
import jax
import numpy as np
import pytest

from ftwax.environments import rooms

MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def _make_loop(side, max_steps=60, seed=0):
  made = rooms.make(side, max_steps)
  return made.spec, episodes.HostLoop(made, seed)


def _path_length(state):
  """Returns moves of the shortest way to the goal, by breadth-first search."""
  is_wall = np.asarray(state.is_wall)
  goal = tuple(np.asarray(state.goal))
  reached, distance = {tuple(np.asarray(state.position))}, 0
  while goal not in reached:
    more = {
      (row + down, column + right)
      for row, column in reached
      for down, right in MOVES
      if 0 <= row + down < len(is_wall)
      and 0 <= column + right < len(is_wall)
      and not is_wall[row + down, column + right]
    }
    assert not more <= reached, 'the goal cannot be reached'
    reached, distance = reached | more, distance + 1
  return distance


@pytest.mark.parametrize('side', [3, 5, 9])
def test_goals_are_in_the_room_across_and_can_be_reached(side):
  middle = side // 2
  spec, loop = _make_loop(side)
  starts = set()
  for _ in range(40):
    timestep = loop.reset()
    spec.observations.validate(timestep.observation)
    is_wall = np.asarray(loop.state.is_wall)
    position = np.asarray(loop.state.position)
    goal = np.asarray(loop.state.goal)
    assert not is_wall[tuple(position)]
    assert not is_wall[tuple(goal)]
    assert ((position < middle) != (goal < middle)).all()
    for arm in (
      is_wall[:middle, middle],
      is_wall[middle + 1 :, middle],
      is_wall[middle, :middle],
      is_wall[middle, middle + 1 :],
    ):
      assert arm.sum() == middle - 1
    assert is_wall.sum() == 4 * (middle - 1) + 1
    assert 4 <= _path_length(loop.state) <= side * side
    starts.add(tuple(position < middle))
  assert len(starts) == 4


def test_boards_show_walls_the_goal_and_the_agent():
  _, loop = _make_loop(9, seed=1)
  board = loop.reset().observation
  state = loop.state
  expected = 0.25 * np.asarray(state.is_wall)
  expected[tuple(np.asarray(state.goal))] = 0.5
  expected[tuple(np.asarray(state.position))] = 1.0
  np.testing.assert_array_equal(board, expected)


def test_walks_follow_the_rules():
  max_steps = 40
  _, loop = _make_loop(5, max_steps)
  rng = np.random.default_rng(0)
  ends = set()
  for _ in range(60):
    loop.reset()
    is_wall, goal = np.asarray(loop.state.is_wall), np.asarray(loop.state.goal)
    position = np.asarray(loop.state.position)
    for num_steps in range(1, max_steps + 1):
      action = rng.integers(4)
      timestep = loop.step(action)
      moved = np.clip(position + MOVES[action], 0, 4)
      position = position if is_wall[tuple(moved)] else moved
      np.testing.assert_array_equal(loop.state.position, position)
      found = (position == goal).all()
      assert timestep.reward == float(found)
      assert timestep.discount == 1.0 - found
      is_last = found or num_steps == max_steps
      assert (timestep.step_type == dm_env.StepType.LAST) == is_last
      if is_last:
        ends.add(bool(found))
        break
  assert ends == {False, True}


def test_episodes_differ():
  made = rooms.make()
  keys = jax.random.split(jax.random.PRNGKey(0), 8)
  _, timestep = jax.vmap(made.reset)(keys)
  boards = np.unique(np.asarray(timestep.observation), axis=0)
  assert len(boards) == 8


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'side': 8}, r'side \(8\) must be odd .*choose 9'),
    ({'side': 1}, r'side \(1\) must be odd and at least 3.*choose 3'),
    ({'max_steps': 0}, r'max_steps \(0\) must be at least 1; choose 60'),
  ],
)
def test_boards_without_rooms_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    rooms.make(**options)
