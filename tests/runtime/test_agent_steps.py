"""Steps of loaded agents in the user's own loop."""

import json

import dm_env
import gymnasium
import jax
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.environments import games, gymnasium_spaces
from ftwax.inference import loaded_agent
from ftwax.networks import cores, torsos

SPACES = (
  gymnasium.spaces.Dict(
    {
      'position': gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float64),
      'keys': gymnasium.spaces.MultiBinary(2),
    }
  ),
  gymnasium.spaces.MultiDiscrete([3, 2], start=[5, 0]),
)


@pytest.fixture(scope='module')
def agent():
  """An agent with a recurrent state, which has not learned."""
  spec = gymnasium_spaces.make_spec(*SPACES)
  config = impala.IMPALAConfig(
    core=cores.LSTM(8), torso=torsos.Torso(hidden_sizes=(8,))
  )
  network = config.make_network(spec)
  key = jax.random.PRNGKey(0)
  state = config.make_learner_core(network, spec).init(key)
  return loaded_agent.LoadedAgent(
    config.make_policy(network, spec, evaluation=True),
    types.actor_variables(state),
    games.GameSpec(
      spec, (0,), ('reward',), spaces=gymnasium_spaces.to_text(*SPACES)
    ),
  )


def _sample(num_steps):
  SPACES[0].seed(0)
  return [SPACES[0].sample() for _ in range(num_steps)]


def test_steps_are_acts(agent):
  """With rewards, over the end of an episode."""
  encode = gymnasium_spaces.make_encoder(SPACES[0])
  state = agent.initial_state()
  for t, observation in enumerate(map(encode, _sample(8))):
    first, reward = t in (0, 5), 0.0 if t in (0, 5) else 0.5 * t
    action, state = agent.step(observation, state, reward, first)
    kind = dm_env.StepType.FIRST if first else dm_env.StepType.MID
    acted = agent.act(
      dm_env.TimeStep(kind, None if first else reward, 1.0, observation)
    )
    # Steps are in the space, acts in the parts of the spec.
    np.testing.assert_array_equal(action, np.stack(acted) + [5, 0])


def test_steps_are_in_the_spaces_of_gymnasium(agent):
  state, actions = None, []
  for observation in _sample(6):
    action, state = agent.step(observation, state)
    assert SPACES[1].contains(action)
    actions.append(action)
  # Rows of a batch are environments of their own.
  states = None
  for t, observation in enumerate(_sample(6)):
    rows = jax.tree.map(lambda x: np.stack([x, x]), observation)
    # The second row begins anew in each step.
    first = np.array([t == 0, True])
    taken, states = agent.step(rows, states, first=first)
    assert taken.shape == (2, 2)
    np.testing.assert_array_equal(taken[0], actions[t])
    alone, _ = agent.step(observation)
    np.testing.assert_array_equal(taken[1], alone)


@pytest.mark.parametrize(
  'space',
  [
    *SPACES,
    gymnasium.spaces.Discrete(2, start=5),
    gymnasium.spaces.Box(0, 255, (2, 3), np.uint8),
    gymnasium.spaces.Box(np.float32([-np.inf, 0]), np.float32([1, np.inf])),
    gymnasium.spaces.MultiBinary([2, 3]),
    gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3), SPACES[0]]),
  ],
  ids=str,
)
def test_spaces_are_recorded(space):
  text = gymnasium_spaces.to_text(space, space)
  found, again = map(gymnasium_spaces._from_plain, json.loads(text))
  assert found == again == space
  assert len(text) < 400


def test_damaged_spaces_are_refused():
  large = {'low': 0, 'high': 1, 'shape': [10**12], 'dtype': 'float32'}
  for text in (
    '[]',
    '[{"Box": {}}, {}]',
    '[{"os": 1}, {"os": 1}]',
    '{',
    json.dumps([{'Box': large}] * 2),
  ):
    with pytest.raises(ValueError, match='spaces .* must be those of a Gym'):
      gymnasium_spaces.make_converters(text)


def test_what_the_agent_was_not_trained_on_is_refused(agent):
  with pytest.raises(ValueError, match=r"observation .* \(KeyError: 'keys'\)"):
    agent.step({'position': np.zeros(3)})
  with pytest.raises(ValueError, match='observation .* must be of shape'):
    agent.step({'position': np.zeros(4, 'f'), 'keys': np.zeros(2, np.int8)})
