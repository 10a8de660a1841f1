"""Legal actions in all conventions that environments have for them."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases
from dm_env import specs
from gymnasium import spaces

import ftwax
from ftwax import continuous, distributions, types
from ftwax.agents import ppo
from ftwax.environments import (
  checking,
  game_vectors,
  gymnasium_adapter,
  pettingzoo_adapter,
  process_games,
  validation,
  vector,
)

pettingzoo = pytest.importorskip(
  'pettingzoo', reason='the extra envs is not there'
)

MODES = gymnasium.vector.AutoresetMode

ACTIONS = {
  'discrete': spaces.Discrete(3),
  'parts': spaces.MultiDiscrete([3, 4]),
  'mixed': spaces.Dict(
    {'force': spaces.Box(-1.0, 1.0, (2,)), 'move': spaces.Discrete(3)}
  ),
  'nested': spaces.Tuple(
    [spaces.Box(-1.0, 1.0, (1,)), spaces.MultiDiscrete([3, 4])]
  ),
}

CONVENTIONS = 'info', 'method', 'observation'


class Locks(gymnasium.Env):
  """Few actions are legal at each step; others raise. Eight steps."""

  def __init__(
    self, actions='discrete', convention='info', at=lambda step: True
  ):
    self.action_space = ACTIONS[actions]
    self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    self._convention = convention
    self._at = at or (lambda step: True)
    self._size = 3 if actions in ('discrete', 'mixed') else 7
    if convention == 'observation':
      mask = spaces.Box(0, 1, (self._size,), np.int8)
      self.observation_space = spaces.Dict(
        {'see': self.observation_space, 'action_mask': mask}
      )
    if convention == 'method':
      self.action_masks = lambda: self.mask

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return self._observe()

  def step(self, action):
    parts = action if isinstance(action, tuple) else [action]
    parts = action.values() if isinstance(action, dict) else parts
    is_whole = [np.asarray(part).dtype.kind in 'iu' for part in parts]
    (own,) = [p for p, whole in zip(parts, is_whole, strict=True) if whole]
    for start, choice in zip((0, 3), np.atleast_1d(own), strict=False):
      if not self.mask[start + choice]:
        raise AssertionError(f'{action} is illegal')
    self._step += 1
    observation, info = self._observe()
    return observation, 1.0, self._step == 8, False, info

  def _observe(self):
    size = (
      3 if self.action_space in (ACTIONS['discrete'], ACTIONS['mixed']) else 7
    )
    self.mask = np.zeros(size, np.int8)
    self.mask[self.np_random.integers(3)] = 1
    self.mask[3:][self.np_random.integers(4) :][:1] = 1
    info = {}
    if self._convention == 'info' and self._at(self._step):
      info = {'action_mask': self.mask}
    seen = np.ones(2, np.float32)
    if self._convention == 'observation':
      seen = {'see': seen, 'action_mask': self.mask}
    return seen, info


def _make(way, actions, convention):
  """Returns a factory and the number of processes for a way of stepping."""

  def make_one(seed=0):
    return Locks(actions, convention)

  if way in ('single', 'process'):
    return make_one, 2 if way == 'process' else 0
  kind = gymnasium.vector.SyncVectorEnv
  if way == 'async':
    kind = gymnasium.vector.AsyncVectorEnv
  mode = MODES.SAME_STEP if way in ('same_step', 'async') else MODES.NEXT_STEP

  def make_vector(num_environments, seed):
    envs = kind([make_one] * num_environments, autoreset_mode=mode)
    return gymnasium_adapter.GymnasiumVectorEnvironment(envs, seed)

  return vector.VectorFactory(make_vector), 0


def _games(way, actions, convention, num_games=3):
  factory, num_processes = _make(way, actions, convention)
  seeds = list(range(num_games))
  if num_processes:
    return process_games.ProcessGames(
      factory, seeds, 'locks', num_processes, timeout_s=30.0
    )
  return game_vectors.make_games(factory, seeds, 'locks')


def _draw(spec, mask, rng):
  """Draws legal actions, from a flat mask [E, number of all choices]."""
  leaves, structure = jax.tree.flatten(spec.actions)
  drawn, start = [], 0
  for leaf in leaves:
    if not isinstance(leaf, specs.DiscreteArray):
      drawn.append(rng.uniform(-1, 1, (len(mask), *leaf.shape)))
      continue
    own = mask[:, start : start + leaf.num_values]
    start += leaf.num_values
    drawn.append((own * rng.random(own.shape)).argmax(-1))
  return jax.tree.unflatten(structure, drawn)


@pytest.mark.parametrize('convention', CONVENTIONS)
@pytest.mark.parametrize('actions', ACTIONS)
@pytest.mark.parametrize('way', ['single', 'next_step', 'same_step'])
def test_masks_are_those_of_the_environment(way, actions, convention):
  # An illegal action raises an error.
  rng = np.random.default_rng(0)
  games = _games(way, actions, convention)
  spec = games.spec.environment
  timestep = games.reset()
  num_ended = 0
  for _ in range(30):
    mask = timestep.observation[types.ACTION_MASK]
    acts = timestep.step_type < types.LAST
    num_parts = len(distributions.count_choices(spec.actions))
    assert (mask.sum(-1) == num_parts)[acts].all()
    timestep = games.step(_draw(spec, mask, rng))
    num_ended += (timestep.step_type == types.LAST).sum()
  assert num_ended >= 6
  games.close()


# Gymnasium's vectors fork.
@pytest.mark.filterwarnings('ignore:os.fork')
@pytest.mark.parametrize(
  ('way', 'convention'),
  slow_cases.rows(
    itertools.product(['process', 'async'], ['info', 'method']),
    [('process', 'info'), ('async', 'method')],
  ),
)
def test_processes_have_the_same_masks(way, convention):
  rng = np.random.default_rng(0)
  same = 'single' if way == 'process' else 'same_step'
  both = [_games(each, 'parts', convention) for each in (same, way)]
  timesteps = [games.reset() for games in both]
  for _ in range(20):
    jax.tree.map(np.testing.assert_array_equal, *timesteps)
    mask = timesteps[0].observation[types.ACTION_MASK]
    action = _draw(both[0].spec.environment, mask, rng)
    timesteps = [games.step(action) for games in both]
  for games in both:
    games.close()


def test_the_first_reset_is_that_of_the_first_episode():
  seeds = []

  class Counted(Locks):
    def reset(self, *, seed=None, options=None):
      seeds.append(seed)
      return super().reset(seed=seed)

  env = gymnasium_adapter.GymnasiumEnvironment(Counted(), seed=7)
  first = env.reset()
  assert seeds == [7]
  np.testing.assert_array_equal(
    first.observation[types.ACTION_MASK], env.env.mask
  )
  env.reset()
  assert seeds == [7, None]


@pytest.mark.parametrize(
  ('at', 'message'),
  [
    (
      lambda step: step != 3,
      r"info\['action_mask'\] of environment '.*' \(absent\) must be there"
      r' wherever an action is taken.*step 3\.',
    ),
    (
      lambda step: step == 2,
      r"info\['action_mask'\] .* \(absent at the first reset\) must be there at"
      r' each reset.*step 2\.',
    ),
  ],
)
def test_a_mask_that_comes_and_goes_is_named(at, message):
  env = gymnasium_adapter.GymnasiumEnvironment(Locks(at=at))
  env.reset()
  with pytest.raises(validation.InvalidTimestepError, match=message):
    for _ in range(5):
      env.step(np.int32(env.env.mask.argmax()))


def test_a_mask_of_another_size_is_named():
  class Wrong(Locks):
    def _observe(self):
      observation, _ = super()._observe()
      return observation, {'action_mask': np.ones(5, np.int8)}

  env = gymnasium_adapter.GymnasiumEnvironment(Wrong())
  with pytest.raises(
    validation.InvalidTimestepError,
    match=r"'action_mask' \(\(5,\)\) must be those of the logits.*flat array of"
    r' 3.*step 0',
  ):
    env.reset()


@pytest.mark.parametrize(
  'convention',
  slow_cases.cases(CONVENTIONS, [*CONVENTIONS][:1]),
)
def test_a_run_and_a_check_say_where_masks_come_from(
  convention, tmp_path, capsys
):
  factory, _ = _make('single', 'nested', convention)
  source = {
    'info': "info['action_mask']",
    'method': 'action_masks()',
    'observation': "observation['action_mask']",
  }[convention]
  found = checking.check(factory, num_steps=50)
  assert found.facts['action masks'] == f'from {source}'
  # An illegal action would end training or the evaluation by an error.
  result = ftwax.run(
    ftwax.ExperimentConfig(
      agent=ppo.PPOConfig(core='gru', batch_size=4, num_minibatches=2),
      environment=factory,
      max_num_actor_steps=400,
      num_environments=2,
    ),
    run_dir=tmp_path / 'run',
    eval_every=400,
  )
  assert f'Action masks: from {source}.' in capsys.readouterr().out
  assert result.mean_return == 8.0
  agent = ftwax.load(tmp_path / 'run')
  env = factory()
  observation, _ = env.reset(seed=1)
  state, is_over = None, False
  while not is_over:
    mask = None if convention == 'observation' else env.mask
    action, state = agent.step(observation, state, action_mask=mask)
    observation, _, is_over, _, _ = env.step(action)
  if convention != 'observation':
    with pytest.raises(ValueError, match=r'action_mask \(None\) must be given'):
      agent.step(observation)
  else:
    with pytest.raises(ValueError, match='must be None.*leave it out'):
      agent.step(observation, action_mask=np.ones(7))


class Duel(pettingzoo.ParallelEnv):
  """Two agents with other numbers of actions; `b` may not always act."""

  metadata = {'name': 'duel'}
  possible_agents = ['a', 'b']

  def __init__(self, convention='info'):
    self._convention = convention
    if convention == 'method':
      self.action_masks = lambda: self.masks

  def observation_space(self, agent):
    return spaces.Box(0.0, 1.0, (2,), np.float32)

  def action_space(self, agent):
    return spaces.Discrete(3 if agent == 'a' else 2)

  def reset(self, seed=None, options=None):
    self._rng, self._step = np.random.default_rng(seed), 0
    self.agents = list(self.possible_agents)
    return self._see(), self._infos()

  def step(self, actions):
    for agent, action in actions.items():
      if self.masks[agent].any() and not self.masks[agent][action]:
        raise AssertionError(f'{agent} may not do {action}')
    self._step += 1
    is_over = self._step == 6
    infos = self._infos()
    every = dict.fromkeys(self.agents, is_over)
    if is_over:
      self.agents = []
    none, rewards = dict.fromkeys(every, False), dict.fromkeys(every, 1.0)
    return self._see(), rewards, every, none, infos

  def _see(self):
    return {agent: np.ones(2, np.float32) for agent in self.possible_agents}

  def _infos(self):
    self.masks = {
      'a': np.eye(3, dtype=np.int8)[self._rng.integers(3)],
      'b': np.eye(2, dtype=np.int8)[self._rng.integers(2)] * (self._step != 2),
    }
    if self._convention == 'method':
      return {agent: {} for agent in self.agents}
    return {agent: {'action_mask': self.masks[agent]} for agent in self.agents}


class Turns(pettingzoo.AECEnv):
  """Two agents in turns, six moves in all."""

  metadata = {'name': 'turns', 'is_parallelizable': False}
  possible_agents = ['a', 'b']

  def observation_space(self, agent):
    return spaces.Box(0.0, 1.0, (2,), np.float32)

  def action_space(self, agent):
    return spaces.MultiDiscrete([3, 2])

  def observe(self, agent):
    return np.ones(2, np.float32)

  def reset(self, seed=None, options=None):
    self._rng, self._step = np.random.default_rng(seed), 0
    self.agents = list(self.possible_agents)
    self.agent_selection = 'a'
    self.rewards = dict.fromkeys(self.agents, 0.0)
    self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
    self.terminations = dict.fromkeys(self.agents, False)
    self.truncations = dict.fromkeys(self.agents, False)
    self._mask()

  def _mask(self):
    self.mask = np.zeros(5, np.int8)
    self.mask[[self._rng.integers(3), 3 + self._rng.integers(2)]] = 1
    self.infos = {agent: {} for agent in self.agents}
    self.infos[self.agent_selection] = {'action_mask': self.mask}

  def step(self, action):
    if self.terminations[self.agent_selection]:
      self._was_dead_step(action)
      return
    if not (self.mask[action[0]] and self.mask[3 + action[1]]):
      raise AssertionError(f'{action} is illegal')
    self._step += 1
    self.agent_selection = 'b' if self.agent_selection == 'a' else 'a'
    self._mask()
    if self._step == 6:
      self.terminations = dict.fromkeys(self.agents, True)


@pytest.mark.parametrize(
  'make_env',
  [Duel, lambda: Duel('method'), Turns],
  ids=['info', 'method', 'aec'],
)
def test_games_of_pettingzoo_have_masks(make_env):
  rng = np.random.default_rng(0)
  game = pettingzoo_adapter.PettingZooGame(make_env(), seed=3)
  spec = types.make_environment_spec(game)
  timestep = game.reset()
  kinds = set()
  for _ in range(20):
    mask = timestep.observation[types.ACTION_MASK]
    acts = timestep.step_type < types.LAST
    kinds |= set(timestep.step_type.tolist())
    parts = 1 if isinstance(game.env, Duel) else 2
    assert (mask[acts].sum(-1) == parts).all()
    timestep = game.step(_draw(spec, mask, rng))
  assert types.ABSENT in kinds  # Who may do nothing waits.
  assert types.LAST in kinds


@pytest.mark.ci
def test_a_game_trains_and_evaluates_with_masks(tmp_path, capsys):
  ftwax.run(
    ftwax.ExperimentConfig(
      agent=ppo.PPOConfig(core='gru', batch_size=4, num_minibatches=2),
      environment=lambda seed: pettingzoo_adapter.PettingZooGame(
        Duel(), teams=(0, 0), seed=seed
      ),
      max_num_actor_steps=300,
      num_environments=2,
    ),
    run_dir=tmp_path,
    eval_every=300,
  )
  assert "Action masks: from info['action_mask']." in capsys.readouterr().out


@pytest.mark.parametrize('num_axes', [0, 1, 2])
@pytest.mark.parametrize(
  ('parts', 'mask', 'expected'),
  [
    (3, (3,), [3]),
    ((3, 0, 4), (7,), [3, None, 4]),
    ((3, 4), (2, 4), [3, 4]),  # A row for each part.
    ((3, 0, 4), ((3,), (4,)), [3, None, 4]),
    ((3, 0, 4), ((3,), None, (4,)), [3, None, 4]),
    ({'a': 0, 'b': 3}, {'b': (3,)}, [None, 3]),
    ({'a': 5, 'b': 3}, {'b': (3,)}, [None, 3]),
    ({'a': 0, 'b': 3}, (3,), [None, 3]),
    ({'a': (2, 0), 'b': (0, 3)}, {'a': (2,), 'b': ((3,),)}, [2, None, None, 3]),
  ],
)
def test_masks_belong_to_discrete_parts(parts, mask, expected, num_axes):
  prefix = (5, 2)[:num_axes]

  def is_shape(node):
    return isinstance(node, tuple) and isinstance(node[0], int)

  arrays = jax.tree.map(
    lambda shape: np.ones((*prefix, *shape)), mask, is_leaf=is_shape
  )
  found = distributions.split_mask(parts, arrays)
  shapes = [None if part is None else part.shape for part in found]
  assert shapes == [size and (*prefix, size) for size in expected]


@pytest.mark.parametrize(
  ('parts', 'mask'),
  [
    ((3, 4), (3,)),
    ((3, 4), ((3,), (3,))),
    ({'a': 3, 'b': 0}, {'b': (3,)}),
    ({'a': 3}, {'c': (3,)}),
    ((3, 0), ((3,), (2,))),
  ],
)
def test_masks_that_do_not_fit_are_refused(parts, mask):
  def is_shape(node):
    return isinstance(node, tuple) and isinstance(node[0], int)

  arrays = jax.tree.map(np.ones, mask, is_leaf=is_shape)
  with pytest.raises(ValueError, match=r'must be those of the logits.*tuples'):
    distributions.split_mask(parts, arrays)


def test_a_mask_beside_a_continuous_part_forbids():
  normal = continuous.Normal(jnp.zeros((2, 3)), jnp.zeros((2, 3)))
  logits = {'force': normal, 'move': jnp.zeros((2, 4))}
  mask = {'move': np.array([[1, 0, 0, 0], [0, 0, 1, 1]])}
  masked = distributions.mask_logits(logits, mask)
  np.testing.assert_allclose(
    jax.nn.softmax(masked['move']), [[1, 0, 0, 0], [0, 0, 0.5, 0.5]], atol=1e-6
  )
  assert masked['force'] is normal
