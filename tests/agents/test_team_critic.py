"""A critic that sees the whole game, and agents that need none in use."""

import jax
import numpy as np
import pytest
from dm_env import specs

import ftwax
from ftwax import hyperparameters, types
from ftwax.agents import ppo
from ftwax.environments import capture_the_flag, specified
from ftwax.inference import loaded_agent, portable
from ftwax.networks import cores
from ftwax.population import players, population_config
from ftwax.runtime import prepare

SPEC = specified.make_spec(
  {
    'features': specs.Array((3,), np.float32),
    types.PRIVILEGED: specs.Array((5,), np.float32),
  },
  2,
)


def make_inputs(seed, with_state=True):
  draw = np.random.default_rng(seed).normal
  observation = {'features': draw(size=(4, 3)).astype(np.float32)}
  state = draw(size=(4, 5)).astype(np.float32)
  if with_state:
    observation[types.PRIVILEGED] = state
  zeros = np.zeros(4, np.int32)
  return types.NetworkInput(observation, zeros, zeros.astype(np.float32))


def test_the_policy_has_no_weights_for_the_state():
  config = ppo.PPOConfig.team_critic(core='lstm')
  network = config.make_network(SPEC)
  params = network.init(jax.random.PRNGKey(0))
  plain = config.replace(separate_value=False, value_core=None)
  own = plain.make_network(SPEC.public).init(jax.random.PRNGKey(0))
  for name in own:
    if not name.startswith('value_head'):
      assert jax.tree.map(np.shape, params[name]) == jax.tree.map(
        np.shape, own[name]
      )


def test_the_value_alone_needs_the_state():
  network = ppo.PPOConfig.team_critic(core='lstm').make_network(SPEC)
  params = network.init(jax.random.PRNGKey(0))
  state = network.initial_state(4)
  assert not jax.tree.leaves(state.value)  # Nothing to remember.
  (full, after), (blind, after_blind) = (
    network.apply(params, None, None, make_inputs(0, told), state)
    for told in (True, False)
  )
  np.testing.assert_array_equal(full.logits, blind.logits)
  jax.tree.map(np.testing.assert_array_equal, after.policy, after_blind.policy)
  assert not np.allclose(full.value, blind.value)


def test_a_core_of_the_value_is_bound_to_numbers_of_its_own():
  slow = hyperparameters.UniformInteger(2, 6)
  config = ppo.PPOConfig.team_critic(
    core='lstm', value_core=cores.RPTH(4, slow_period=slow)
  )
  assert set(config.priors.value_core._fields) >= {'slow_period'}
  network = config.make_network(SPEC)
  params = network.init(jax.random.PRNGKey(0))
  state = network.initial_state(4)

  def values(period):
    numbers = config.sample_hyperparameters(jax.random.PRNGKey(0))
    numbers = hyperparameters.update(
      numbers, {'value_core.slow_period': lambda _: period}
    )
    carried, out = state, []
    for seed in range(4):
      output, carried = network.apply(
        params, numbers, None, make_inputs(seed), carried
      )
      out.append((np.asarray(output.value), np.asarray(output.logits)))
    return out

  fast, slower = values(2), values(6)
  np.testing.assert_array_equal(fast[-1][1], slower[-1][1])
  assert not np.allclose(fast[-1][0], slower[-1][0])


def test_a_core_of_the_value_is_refused_without_one():
  with pytest.raises(ValueError, match=r'value_core .* must be None where pol'):
    ppo.PPOConfig(value_core='gru')


def make_game(team_state):
  return capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(
      height=7, width=11, num_steps=20, team_state=team_state
    )
  )


def make_experiment(make_agent, team_state):
  return ftwax.ExperimentConfig(
    agent=make_agent(
      core=cores.LSTM(4),
      sequence_length=5,
      batch_size=8,
      normalize_observations=True,
    ),
    environment=make_game(team_state),
    num_environments=4,
    max_num_actor_steps=320,
    population=population_config.PopulationConfig(2, exploits=False),
  )


@pytest.fixture(scope='module')
def run_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('runs') / 'run'
  experiment = make_experiment(ppo.PPOConfig.team_critic, team_state=True)
  ftwax.run(experiment, run_dir=directory)
  return directory


@pytest.mark.ci
def test_an_agent_in_use_asks_for_no_state(run_dir):
  agent = ftwax.load(run_dir)
  assert [*agent.game_spec.environment.observations] == ['features']
  features = np.zeros(
    agent.game_spec.environment.observations['features'].shape
  )
  features = features.astype(np.float32)
  alone, state = agent.step({'features': features})
  told, told_state = agent.step(
    {'features': features, types.PRIVILEGED: np.ones(9, np.float32)}
  )
  jax.tree.map(np.testing.assert_array_equal, alone, told)
  jax.tree.map(np.testing.assert_array_equal, state, told_state)


@pytest.mark.ci
def test_a_file_of_an_agent_has_no_input_for_the_state(run_dir):
  inputs = portable.example(ftwax.load(run_dir), 1)
  assert not [name for name in inputs if types.PRIVILEGED in name]
  assert 'observation/features' in inputs


@pytest.fixture(scope='module')
def plain_agent():
  """An agent without a critic that sees more, before it learns."""
  experiment = make_experiment(ppo.PPOConfig, team_state=False)
  parts = prepare.prepare(experiment)
  state = jax.jit(parts.learner.init)(parts.key)
  return loaded_agent.LoadedAgent(
    parts.policy, types.actor_variables(state), parts.spec
  )


@pytest.mark.ci
@pytest.mark.parametrize(
  'told', [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_agents_with_and_without_a_critic_play_each_other(
  run_dir, plain_agent, told
):
  game = make_game(told)
  agents = [ftwax.load(run_dir, greedy=False), plain_agent]
  players.check_specs({'it': agents[0].player}, game.spec)
  seats = [agents[0], agents[0], agents[1], agents[1]]
  seen = agents[0].record(game, run_dir / 'game.gif', seats, num_games=1)
  assert seen.exists()
  for agent in agents:
    action, _ = agent.step(game.reset(jax.random.PRNGKey(0))[1].observation)
    assert action['move'].shape == (4,)


@pytest.mark.ci
def test_observations_are_normalized_with_and_without_the_state(run_dir):
  agent = ftwax.load(run_dir)
  statistics = agent.variables.observation_statistics
  assert set(statistics.mean) == {'features', types.PRIVILEGED}
  size = len(statistics.mean['features'])
  features = np.random.default_rng(0).normal(size=size).astype(np.float32)
  alone, told = (
    agent.step(seen)[1].logits
    for seen in (
      features,
      {'features': features, types.PRIVILEGED: np.ones(9, np.float32)},
    )
  )
  jax.tree.map(np.testing.assert_array_equal, alone, told)


@pytest.mark.ci
def test_players_are_told_apart_by_what_they_see_in_use(run_dir):
  agent = ftwax.load(run_dir)
  spec = agent.player.environment_spec
  players.check_specs({'it': agent.player}, spec.public)
  told = dict(spec.public.observations)
  told[types.PRIVILEGED] = specs.Array((1,), np.float32)
  players.check_specs({'it': agent.player}, spec._replace(observations=told))
  other = {'features': specs.Array((1,), np.float32)}
  with pytest.raises(ValueError, match='in a game with the observations'):
    players.check_specs({'it': agent.player}, spec._replace(observations=other))
