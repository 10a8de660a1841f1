"""JaxMARL's interface and those of grid worlds, by fakes of them."""

import types as python_types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import (
  compiled_games,
  functional,
  jax_adapters,
  jaxmarl_adapter,
)


def _run(made, actions, key):
  state, timestep = jax.jit(made.reset)(key)
  timesteps, step = [timestep], jax.jit(made.step)
  for action in actions:
    state, timestep = step(state, action)
    timesteps.append(timestep)
  return state, jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps)


class FakeMarl:
  """Two dogs see three numbers, and a fox two; over after two steps.

  Each is paid its action, and the second dog so when it is done after a step.
  """

  agents = ('dog_0', 'dog_1', 'fox_0')

  def action_space(self, agent):
    return python_types.SimpleNamespace(n=4 if agent == 'fox_0' else 2)

  def _see(self, time):
    sizes = {'dog_0': 3, 'dog_1': 3, 'fox_0': 2}
    return {name: jnp.full(size, 1.0 + time) for name, size in sizes.items()}

  def reset(self, key):
    del key
    return self._see(0), jnp.zeros((), jnp.int32)

  def step_env(self, key, state, actions):
    del key
    rewards = {agent: actions[agent] for agent in self.agents}
    over = state + 1 == 2
    dones = {**dict.fromkeys([*self.agents, '__all__'], over), 'dog_1': True}
    shaped = {'shaped_reward': dict.fromkeys(self.agents, 10.0)}
    return self._see(state + 1), state + 1, rewards, dones, shaped


def test_agents_of_jaxmarl_are_players_with_roles(key):
  game = jaxmarl_adapter.from_jaxmarl(FakeMarl(), teams=(0, 0, 1))
  compiled_games.check_shapes(game)
  assert game.roles == (0, 0, 1) and game.spec.actions.num_values == 4
  state, seen = _run(game, [jnp.array([1, 0, 3])] * 2, key)
  np.testing.assert_array_equal(seen.step_type, [[0] * 3, [1] * 3, [2] * 3])
  np.testing.assert_array_equal(seen.reward, [[0] * 3, [1, 0, 3], [1, 0, 3]])
  np.testing.assert_array_equal(seen.discount, [[1] * 3, [1] * 3, [0] * 3])
  np.testing.assert_array_equal(
    seen.observation['observation'][1], [[2, 2, 2], [2, 2, 2], [2, 2, 0]]
  )
  np.testing.assert_array_equal(
    seen.observation[types.ACTION_MASK][0], [[1, 1, 0, 0]] * 2 + [[1] * 4]
  )
  np.testing.assert_array_equal(game.outcome(state), [1.0, 6.0])


def test_who_is_done_in_jaxmarl_is_paid_until_the_game_ends(key):
  game = jaxmarl_adapter.from_jaxmarl(FakeMarl())
  assert not game.spec.absences
  _, seen = _run(game, [jnp.array([0, 1, 0])] * 2, key)
  np.testing.assert_array_equal(seen.reward[:, 1], [0, 1, 1])
  np.testing.assert_array_equal(seen.step_type[:, 1], [0, 1, 2])
  np.testing.assert_array_equal(seen.discount[:, 1], [1, 1, 0])


class Units(NamedTuple):
  unit_alive: Any


class Nested(NamedTuple):
  state: Any


@pytest.mark.parametrize(
  ('is_alive', 'won'),
  [([0, 1, 0, 0, 0], 1), ([0, 0, 0, 0, 0], 0), ([1, 1, 1, 0, 1], 0)],
)
def test_a_team_of_smax_has_won_if_it_alone_is_left(key, is_alive, won):
  class Smax(FakeMarl):
    def reset(self, key):
      seen, _ = super().reset(key)
      return seen, Nested(Units(jnp.array(is_alive, bool)))

  game = jaxmarl_adapter.from_jaxmarl(Smax())
  state, _ = game.reset(key)
  assert jaxmarl_adapter.measure_smax(Smax())(state) == {'won': won}


def test_one_team_may_be_paid_for_more_than_its_score(key):
  game = jaxmarl_adapter.from_jaxmarl(
    FakeMarl(), shaping=0.5, has_time_limit=True
  )
  assert game.teams == (0, 0, 0)
  _, seen = _run(game, [jnp.array([1, 0, 3])] * 2, key)
  np.testing.assert_array_equal(seen.reward[1], [6, 5, 8])
  np.testing.assert_array_equal(seen.step_type, [[0] * 3, [1] * 3, [2] * 3])
  np.testing.assert_array_equal(seen.discount, [[1] * 3] * 3)


def test_unavailable_actions_of_jaxmarl_are_masked(key):
  class Masked(FakeMarl):
    def get_avail_actions(self, state):
      sizes = {'dog_0': 2, 'dog_1': 2, 'fox_0': 4}
      return {name: jnp.arange(n) <= state for name, n in sizes.items()}

  game = jaxmarl_adapter.from_jaxmarl(Masked(), teams=(0, 0, 1))
  compiled_games.check_shapes(game)
  _, seen = _run(game, [jnp.array([0, 0, 0])], key)
  np.testing.assert_array_equal(
    seen.observation[types.ACTION_MASK].sum(axis=-1), [[1] * 3, [2] * 3]
  )


def test_continuous_actions_of_jaxmarl_are_refused():
  class Continuous(FakeMarl):
    def action_space(self, agent):
      return python_types.SimpleNamespace(shape=(2,))

  with pytest.raises(ValueError, match='must be discrete; choose discrete act'):
    jaxmarl_adapter.from_jaxmarl(Continuous())


class FakeTimestep:
  def __init__(self, observation, reward, discount, time):
    self.observation, self.reward = observation, reward
    self.discount, self.time = discount, time

  def last(self):
    return (self.discount == 0.0) | (self.time == 3)

  def is_termination(self):
    return self.discount == 0.0

  def is_truncation(self):
    return (self.time == 3) & (self.discount > 0.0)


jax.tree_util.register_pytree_node(
  FakeTimestep,
  lambda step: (
    (step.observation, step.reward, step.discount, step.time), None
  ),
  lambda _, leaves: FakeTimestep(*leaves),
)  # fmt: skip


class FakeGrid:
  """One cell that shows the last action; over at action 1, or at step 3."""

  action_space = python_types.SimpleNamespace(n=3)

  def num_actions(self, params):
    return params

  def reset(self, *args):
    del args
    return FakeTimestep(
      jnp.zeros((1, 1, 2), jnp.uint8), jnp.zeros(()), jnp.ones(()), jnp.int32(0)
    )

  def step(self, params, timestep, action):
    del params
    return self._step(timestep, action)

  def _step(self, timestep, action):
    is_over = action == 1
    return FakeTimestep(
      jnp.full((1, 1, 2), action, jnp.uint8),
      is_over.astype(jnp.float32),
      1.0 - is_over,
      timestep.time + 1,
    )


@pytest.mark.parametrize(
  'made',
  [
    jax_adapters.from_navix(FakeGrid()),
    jax_adapters.from_xminigrid(FakeGrid(), 3),
  ],
  ids=['navix', 'xminigrid'],
)
def test_grid_worlds_end_and_are_cut_off(made, key):
  compiled_games.check_shapes(functional.as_game(made))
  assert made.spec.actions.num_values == 3
  _, cut = _run(made, [jnp.int32(2)] * 3, key)
  np.testing.assert_array_equal(cut.step_type, [0, 1, 1, 2])
  np.testing.assert_array_equal(cut.discount, [1, 1, 1, 1])
  code = np.eye(16)[2]
  np.testing.assert_array_equal(cut.observation[1], [*code, *code])
  _, over = _run(made, [jnp.int32(0), jnp.int32(1)], key)
  np.testing.assert_array_equal(over.step_type, [0, 1, 2])
  np.testing.assert_array_equal(over.discount, [1, 1, 0])
  np.testing.assert_array_equal(over.reward, [0, 0, 1])


def test_grid_worlds_must_be_symbolic():
  class Pixels(FakeGrid):
    def reset(self, *args):
      step = super().reset()
      step.observation = jnp.zeros((4, 4, 3))
      return step

  with pytest.raises(ValueError, match='observation .* must be symbolic'):
    jax_adapters.from_navix(Pixels())
