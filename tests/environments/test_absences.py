"""What seats are owed while they wait, and games whose seats come and go."""

import pathlib
import re

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seat_games

from ftwax import types
from ftwax.environments import absences, functional, game_vectors, validation
from ftwax.replay import trajectories

F, M, L, A = types.FIRST, types.MID, types.LAST, types.ABSENT


def _play(library, kinds, paid, discounts):
  """Returns rewards and discounts that a seat gets."""
  got, owed = [], None
  for kind, reward, discount in zip(kinds, paid, discounts, strict=True):
    timestep = dm_env.TimeStep(
      library.array([kind], library.int32),
      library.array([reward], library.float32),
      library.array([discount], library.float32),
      (),
    )
    if owed is None:
      owed = absences.start(timestep)
    else:
      timestep, owed = absences.pay(owed, timestep)
    assert isinstance(timestep.reward, type(owed.reward))
    got.append((float(timestep.reward[0]), float(timestep.discount[0])))
  return [list(numbers) for numbers in zip(*got, strict=True)]


@pytest.mark.parametrize('library', [np, jnp], ids=['numpy', 'jax'])
def test_what_is_paid_while_a_seat_waits_follows_its_decision(library):
  rewards, discounts = _play(
    library,
    [F, A, A, M, L, A, F, M],
    [0, 1, 2, 4, 8, 16, 32, 64],
    [1, 1, 0.5, 0.5, 0, 0, 1, 1],
  )
  assert rewards == [0, 0, 0, 7, 8, 0, 0, 64]
  assert discounts[:5] == [1, 1, 1, 0.25, 0]
  assert discounts[6:] == [1, 1]


@pytest.mark.parametrize('library', [np, jnp], ids=['numpy', 'jax'])
def test_events_are_owed_one_by_one(library):
  def row(kind, reward):
    return dm_env.TimeStep(
      library.array([kind], library.int32),
      library.array([reward], library.float32),
      library.ones(1, library.float32),
      (),
    )

  owed = absences.start(row(F, [0, 0]))
  for kind, reward in ((A, [1, 0]), (M, [0, 2])):
    timestep, owed = absences.pay(owed, row(kind, reward))
  np.testing.assert_array_equal(timestep.reward, [[1, 2]])


def _compact_by_hand(kinds):
  """Returns the places of the timesteps that stay, and their step types."""
  places = [place for place, kind in enumerate(kinds) if kind != A]
  types_of = [kinds[place] for place in places]
  if len(places) < len(kinds):
    types_of = [*types_of[:-1], L] if types_of else []
  rest = [L] * (len(kinds) - len(types_of))
  return places, [*types_of, *rest]


@pytest.mark.parametrize('library', [np, jnp], ids=['numpy', 'jax'])
def test_absent_timesteps_are_left_out_of_trajectories(library):
  rng = np.random.default_rng(0)
  kinds = rng.integers(0, 4, (7, 3, 4)).astype(np.int32)
  kinds[:, 0, 0], kinds[:, 0, 1] = M, A
  number = np.arange(7 * 12, dtype=np.float32).reshape(7, 3, 4)
  timestep = dm_env.TimeStep(kinds, number, number, {'x': number[..., None]})
  trajectory = types.Trajectory(
    timestep, number, number[:-1, ..., None], np.zeros((3, 4, 2)), None, number
  )
  compacted = trajectories.compact(jax.tree.map(library.asarray, trajectory))
  assert isinstance(compacted.timestep.reward, np.ndarray) == (library is np)
  for game in range(3):
    for seat in range(4):
      at = (slice(None), game, seat)
      places, expected = _compact_by_hand(kinds[at])
      assert compacted.timestep.step_type[at].tolist() == expected
      kept = number[at][places]
      for leaf in (
        compacted.timestep.reward,
        compacted.previous_action,
        compacted.value,
        compacted.timestep.observation['x'][..., 0],
      ):
        np.testing.assert_array_equal(leaf[at][: len(kept)], kept)
      logits = compacted.logits[..., 0][at]
      same = [place for place in places if place < 6]
      np.testing.assert_array_equal(logits[: len(same)], number[at][same])


def test_games_in_jax_and_in_python_give_the_same_seats():
  table = seat_games.TABLE
  rows = np.tile(table, (1, 3))
  for made in (
    game_vectors.make_games(lambda seed: seat_games.make(), [0], 'jax'),
    game_vectors.make_games(
      lambda seed: seat_games.make_parallel(seed), [0], 'python'
    ),
  ):
    timesteps = [made.reset()]
    action = np.zeros(seat_games.NUM_SEATS, np.int32)
    timesteps += [made.step(action) for _ in range(rows.shape[1] - 1)]
    kinds = np.stack([one.step_type for one in timesteps], axis=1)
    np.testing.assert_array_equal(kinds, rows)
    reward = np.stack([one.reward for one in timesteps], axis=1)
    # The last seat is paid for two steps of waiting with its third decision.
    assert reward[3, :9].tolist() == [0, 0, 0, 0, 1, 0, 0, 3, 1]
    assert reward[2, :9].tolist() == [0, 1, 1, 0, 0, 1, 1, 1, 1]
    assert reward[1, :9].tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    discount = np.stack([one.discount for one in timesteps], axis=1)
    assert discount[1, 3] == 1 and discount[2, 2] == 0


_PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'who_acts_when.md'
CASES = re.findall(r'^\| ([a-z -]+) \| `([FML -]+)` ', _PAGE.read_text(), re.M)


def _read(letters):
  return ['FML-'.index(letter) for letter in letters.split()]


def _play_table(made, num_steps):
  timesteps = [made.reset()]
  action = np.zeros(made.spec.num_players, np.int32)
  timesteps += [made.step(action) for _ in range(num_steps - 1)]
  return np.stack([one.step_type for one in timesteps], axis=1)


def test_the_page_has_all_cases():
  names = [name for name, _ in CASES]
  assert {'death', 'own time limit', 'return', 'all at once'} < set(names)
  assert len(names) == 9


@pytest.mark.parametrize(('case', 'letters'), CASES)
def test_who_acts_when(case, letters):
  rows = [_read('F M M M L'), _read(letters)]
  if case == 'arrival in mid-game':  # Three agents and more.
    rows += [_read(other) for _, other in CASES[:2]]
  table = np.array((rows * 2)[: seat_games.NUM_SEATS])
  for make in (
    lambda seed: seat_games.make(table),
    lambda seed: seat_games.make_parallel(seed, table),
  ):
    made = game_vectors.make_games(make, [0], 'table')
    kinds = _play_table(made, 10)
    np.testing.assert_array_equal(kinds, np.tile(table, (1, 2)))


def test_a_game_ends_when_all_seats_do():
  games = functional.vectorize(seat_games.make(), 2)
  state, _ = games.reset(jax.random.PRNGKey(0))
  for step in range(1, 10):
    state, timestep = games.step(state, jnp.zeros((2, 4), jnp.int32))
    assert absences.is_over(timestep.step_type).tolist() == [step == 8] * 2
    assert absences.has_moved(timestep.step_type).all() == (step < 9)


@pytest.mark.parametrize(
  ('kinds', 'is_good'),
  [
    ([F, A, M, L, A, F], True),
    ([A, A, F, L, L, F], True),
    ([F, A, F], False),
    ([F, L, M], False),
    ([F, L, A, M], False),
    ([F, 4], False),
  ],
)
def test_the_order_of_step_types_is_checked(kinds, is_good):
  spec = seat_games.make().spec
  checker = validation.Checker(spec, 1, 1, 'seats')
  seen = np.zeros((1, *spec.observations.shape), np.float32)
  message = ''
  try:
    for kind in kinds:
      checker.check(
        dm_env.TimeStep(
          np.array([kind], np.int32),
          np.zeros(1, np.float32),
          np.ones(1, np.float32),
          seen,
        )
      )
  except validation.InvalidTimestepError as error:
    message = str(error)
  assert ('step_type' not in message) == is_good


def test_seats_are_absent_only_where_the_spec_says_so():
  spec = seat_games.make().spec._replace(absences=False)
  checker = validation.Checker(spec, 1, 1, 'seats')
  seen = np.zeros((1, *spec.observations.shape), np.float32)
  row = dm_env.TimeStep(np.array([A], np.int32), np.zeros(1), np.ones(1), seen)
  with pytest.raises(validation.InvalidTimestepError, match='step_type'):
    checker.check(row)
