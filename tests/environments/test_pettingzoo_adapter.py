"""PettingZoo's interface, by a fake of it that keeps its rules."""

import gymnasium
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import game_vectors, games, pettingzoo_adapter

pettingzoo = pytest.importorskip(
  'pettingzoo', reason='the extra envs is not there'
)
conversions = pytest.importorskip('pettingzoo.utils.conversions')


class FakeParallel:
  """Three agents; `c` dies at step 2, the game is over at step 4.

  An agent sees its number, the step and the action it took last.
  """

  def __init__(self, truncates=False):
    self.possible_agents = ['a', 'b', 'c']
    self.agents = []
    self.truncates = truncates
    self.seeds = []
    self.actions = []
    self.is_closed = False

  def observation_space(self, agent):
    del agent
    return gymnasium.spaces.Box(0, 9, (3,), np.float64)

  def action_space(self, agent):
    del agent
    return gymnasium.spaces.Discrete(5)

  def _see(self, agents, actions):
    return {
      agent: np.array([
        self.possible_agents.index(agent) + 1, self.time, actions.get(agent, 0)
      ], np.float64)
      for agent in agents
    }  # fmt: skip

  def reset(self, seed=None, options=None):
    del options
    self.seeds.append(seed)
    self.agents = list(self.possible_agents)
    self.time = 0
    return self._see(self.agents, {}), {agent: {} for agent in self.agents}

  def step(self, actions):
    assert set(actions) == set(self.agents)
    self.actions.append(actions)
    self.time += 1
    agents, over = self.agents, self.time >= 4
    dead = {agent: agent == 'c' and self.time == 2 for agent in agents}
    ends = {agent: over or dead[agent] for agent in agents}
    self.agents = [agent for agent in agents if not ends[agent]]
    nothing = dict.fromkeys(agents, False)
    terminations, truncations = ends, nothing
    if self.truncates:
      terminations, truncations = dead, dict.fromkeys(agents, over)
    rewards = {agent: float(actions[agent]) for agent in agents}
    infos = {agent: {} for agent in agents}
    seen = self._see(agents, actions)
    return seen, rewards, terminations, truncations, infos

  def close(self):
    self.is_closed = True


def play(game, action=(1, 2, 3)):
  """Returns the timesteps of one game."""
  timesteps = [game.reset()]
  while not np.all(timesteps[-1].step_type == 2):
    timesteps.append(game.step(np.array(action, np.int32)))
  return timesteps


@pytest.mark.parametrize('truncates', [False, True])
def test_a_seat_ends_with_its_agent(truncates):
  game: games.GameEnvironment = pettingzoo_adapter.PettingZooGame(
    FakeParallel(truncates), teams=(0, 0, 1)
  )
  timesteps = play(game)
  kinds = np.stack([t.step_type for t in timesteps])
  np.testing.assert_array_equal(kinds[:, 0], [0, 1, 1, 1, 2])
  # Out until the game is over, when it repeats that it has ended.
  np.testing.assert_array_equal(kinds[:, 2], [0, 1, 2, 3, 2])
  rewards = np.stack([t.reward for t in timesteps])
  np.testing.assert_array_equal(rewards[:, 0], [0, 1, 1, 1, 1])
  np.testing.assert_array_equal(rewards[:, 2], [0, 3, 3, 0, 0])
  discounts = np.stack([t.discount for t in timesteps])
  last = float(truncates)
  np.testing.assert_array_equal(discounts[:, 0], [1, 1, 1, 1, last])
  np.testing.assert_array_equal(discounts[:3, 2], [1, 1, 0])
  seen = np.stack([t.observation for t in timesteps])
  assert seen.dtype == np.float32 and rewards.dtype == np.float32
  np.testing.assert_array_equal(
    seen[:, 2], [[3, 0, 0], [3, 1, 3], [3, 2, 3], [0, 0, 0], [3, 2, 3]]
  )
  spec = types.make_environment_spec(game)
  spec.observations.validate(seen[0, 0])
  assert spec.actions.num_values == 5
  assert game.event_names == ('reward',)


def test_teams_are_compared_by_their_mean_return():
  game = pettingzoo_adapter.PettingZooGame(FakeParallel(), teams=(0, 0, 1))
  play(game, (1, 2, 3))  # Means of 6 and 6.
  np.testing.assert_array_equal(game.outcome(), [0, 0])
  play(game, (1, 2, 4))
  np.testing.assert_array_equal(game.outcome(), [-1, 1])
  alone = pettingzoo_adapter.PettingZooGame(FakeParallel())
  play(alone)
  assert alone.teams == (0, 1, 2)
  np.testing.assert_array_equal(alone.outcome(), [-1, 1, 0])


def test_outcomes_may_come_from_the_user():
  env = FakeParallel()
  given = []

  def outcome_fn(env, returns):
    given.append((env, returns.tolist()))
    return np.array([1, -1]) if len(given) == 1 else np.array([2, np.nan])

  game = pettingzoo_adapter.PettingZooGame(
    env, (0, 1, 1), outcome_fn=outcome_fn
  )
  play(game)
  assert game.outcome().dtype == np.float32
  assert given == [(env, [4, 8, 6])]
  with pytest.raises(ValueError, match=r'outcome \(\[2.0, nan\]\) of a game'):
    game.outcome()


def test_the_first_reset_gets_the_seed_and_steps_after_the_end_reset():
  env = FakeParallel()
  game = pettingzoo_adapter.PettingZooGame(env, seed=7)
  assert np.all(game.step(np.zeros(3, int)).step_type == 0)
  play(game)
  assert np.all(game.step(np.zeros(3, int)).step_type == 0)
  assert env.seeds == [7, None, None]
  game.close()
  assert env.is_closed


def test_teams_must_match_the_agents():
  with pytest.raises(ValueError, match=r'teams \(0, 1\) must name a team for'):
    pettingzoo_adapter.PettingZooGame(FakeParallel(), teams=(0, 1))


class Hunt(FakeParallel):
  """Agents a and b see three numbers and have five actions; c has fewer."""

  def __init__(self):
    super().__init__()
    self.possible_agents = ['dog_0', 'dog_1', 'fox_0']

  def observation_space(self, agent):
    size = 2 if agent == 'fox_0' else 3
    return gymnasium.spaces.Box(1, 9, (size,), np.float32)

  def action_space(self, agent):
    return gymnasium.spaces.Discrete(3 if agent == 'fox_0' else 5, start=1)

  def _see(self, agents, actions):
    seen = super()._see(agents, actions)
    return {
      agent: value[: self.observation_space(agent).shape[0]]
      for agent, value in seen.items()
    }


def test_roles_are_padded_and_masked():
  game = pettingzoo_adapter.PettingZooGame(Hunt(), teams=(0, 0, 1))
  assert game.roles == (0, 0, 1)
  spec = types.make_environment_spec(game)
  assert spec.actions.num_values == 5
  assert spec.observations['observation'].minimum == 0.0
  seen = play(game, (4, 0, 2))[2].observation
  np.testing.assert_array_equal(
    seen['observation'], [[1, 2, 5], [2, 2, 1], [3, 2, 0]]
  )
  np.testing.assert_array_equal(seen['role'], [[1, 0], [1, 0], [0, 1]])
  np.testing.assert_array_equal(
    seen[types.ACTION_MASK], [[1] * 5, [1] * 5, [1, 1, 1, 0, 0]]
  )
  for player in range(3):
    for name, leaf in spec.observations.items():
      leaf.validate(seen[name][player])
  # Actions start where those of the agent do.
  assert game.env.actions[0] == {'dog_0': 5, 'dog_1': 1, 'fox_0': 3}


def test_roles_may_be_given_to_agents_with_the_same_spaces():
  game = pettingzoo_adapter.PettingZooGame(
    FakeParallel(), teams=(0, 1, 1), roles=(0, 1, 2)
  )
  seen = game.reset().observation
  np.testing.assert_array_equal(seen['role'], np.eye(3))
  assert set(seen) == {'observation', 'role'}
  with pytest.raises(
    ValueError, match=r'roles \(0, 2, 1, 1\) must be numbered'
  ):
    pettingzoo_adapter.PettingZooGame(FakeParallel(), roles=(0, 2, 1, 1))


@pytest.mark.parametrize(
  ('kind', 'space'),
  [
    ('observation', gymnasium.spaces.Box(0, 9, (3, 1), np.float64)),
    ('observation', gymnasium.spaces.Box(0, 9, (3,), np.int8)),
    ('action', gymnasium.spaces.Box(-1, 1, (2,), np.float32)),
    ('action', gymnasium.spaces.MultiDiscrete([5, 5])),
  ],
)
def test_spaces_that_cannot_be_padded_are_refused(kind, space):
  class Uneven(FakeParallel):
    pass

  usual = getattr(FakeParallel, f'{kind}_space')
  setattr(
    Uneven,
    f'{kind}_space',
    lambda self, agent: space if agent == 'b' else usual(self, agent),
  )
  with pytest.raises(
    ValueError, match=f'{kind} of player 1 must differ .* to be padded,'
  ):
    pettingzoo_adapter.PettingZooGame(Uneven())


F, M, L, A = types.FIRST, types.MID, types.LAST, types.ABSENT


class Respawning(FakeParallel):
  """Agent c is killed at step 2 and begins again in the same step."""

  def step(self, actions):
    seen, rewards, terminations, truncations, infos = super().step(actions)
    if self.time == 2:
      self.agents = [*self.agents, 'c']
      infos['c'] = {'final_obs': seen['c']}
      seen['c'] = np.array([9.0, 0.0, 0.0])
    return seen, rewards, terminations, truncations, infos


def test_an_agent_that_begins_again_in_the_same_step_loses_nothing():
  game = pettingzoo_adapter.PettingZooGame(Respawning())
  timesteps = play(game)
  kinds = np.stack([one.step_type for one in timesteps], axis=1)
  np.testing.assert_array_equal(
    kinds, [[F, M, M, A, M, L], [F, M, M, A, M, L], [F, M, L, F, M, L]]
  )
  seen = [one.observation[2].tolist() for one in timesteps]
  assert seen[2] == [3, 2, 3] and seen[3] == [9, 0, 0]
  assert len(game.env.actions) == 4


class Nim(pettingzoo.AECEnv):
  """Who takes the last of five matches wins; each takes one or two."""

  metadata = {'name': 'nim', 'is_parallelizable': True}
  possible_agents = ['one', 'two', 'three']
  render_mode = None

  def observation_space(self, agent):
    return gymnasium.spaces.Dict(
      observation=gymnasium.spaces.Box(0, 5, (1,), np.float32),
      action_mask=gymnasium.spaces.Box(0, 1, (2,), np.int8),
    )

  def action_space(self, agent):
    return gymnasium.spaces.Discrete(2)

  def observe(self, agent):
    is_turn = agent == self.agent_selection
    return {
      'observation': np.array([self.left], np.float32),
      'action_mask': np.array([1, self.left > 1], np.int8) * is_turn,
    }

  def reset(self, seed=None, options=None):
    self.left, self.agents = 5, list(self.possible_agents)
    for name in ('rewards', '_cumulative_rewards'):
      setattr(self, name, dict.fromkeys(self.agents, 0.0))
    self.terminations = dict.fromkeys(self.agents, False)
    self.truncations = dict.fromkeys(self.agents, False)
    self.infos = {agent: {} for agent in self.agents}
    self.agent_selection = self.agents[0]

  def step(self, action):
    agent = self.agent_selection
    if self.terminations[agent]:
      self._was_dead_step(None)
      return
    assert action < self.left
    self._cumulative_rewards[agent] = 0.0
    self._clear_rewards()
    self.left -= action + 1
    if self.left == 0:
      self.rewards = dict.fromkeys(self.agents, -1.0) | {agent: 1.0}
      self.terminations = dict.fromkeys(self.agents, True)
    place = self.possible_agents.index(agent)
    self.agent_selection = self.possible_agents[(place + 1) % 3]
    self._accumulate_rewards()


def test_turns_decide_who_acts():
  game = pettingzoo_adapter.PettingZooGame(Nim())
  made = game_vectors.make_games(lambda seed: game, [0], 'nim')
  timesteps = [made.reset()]
  for action in (0, 1, 0, 0):
    timesteps.append(made.step(np.full(3, action, np.int32)))
  kinds = np.stack([one.step_type for one in timesteps], axis=1)
  np.testing.assert_array_equal(
    kinds, [[F, A, A, M, L], [A, F, A, A, L], [A, A, F, A, L]]
  )
  np.testing.assert_array_equal(timesteps[4].reward, [1, -1, -1])
  np.testing.assert_array_equal(timesteps[4].discount, [0, 0, 0])
  left = [one.observation['observation'].max() for one in timesteps[:4]]
  assert left == [5, 4, 2, 1]
  np.testing.assert_array_equal(game.outcome(), [1, -0.5, -0.5])
  assert made.step(np.zeros(3, np.int32)).step_type.tolist() == [F, A, A]


def test_games_in_turns_that_were_made_parallel_are_in_turns():
  game = pettingzoo_adapter.PettingZooGame(
    conversions.turn_based_aec_to_parallel(Nim())
  )
  made = game_vectors.make_games(lambda seed: game, [0], 'nim')
  timesteps = [made.reset()]
  for action in (0, 1, 0, 0):
    timesteps.append(made.step(np.full(3, action, np.int32)))
  kinds = np.stack([one.step_type for one in timesteps], axis=1)
  np.testing.assert_array_equal(
    kinds, [[F, A, A, M, L], [A, F, A, A, L], [A, A, F, A, L]]
  )
  np.testing.assert_array_equal(timesteps[4].reward, [1, -1, -1])
