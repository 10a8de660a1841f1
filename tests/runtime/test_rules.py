"""Rules of one's own as opponents, in games that Python steps."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax import population, types
from ftwax.agents import ppo
from ftwax.environments import pettingzoo_adapter

pettingzoo = pytest.importorskip(
  'pettingzoo', reason='the extra envs is not there'
)


class RockPaperScissors(pettingzoo.ParallelEnv):
  """Ten rounds; both see what the other one showed last."""

  metadata = {'name': 'rps'}
  possible_agents = ['a', 'b']

  def observation_space(self, agent):
    return spaces.Box(0.0, 1.0, (3,), np.float32)

  def action_space(self, agent):
    return spaces.Discrete(3)

  def reset(self, seed=None, options=None):
    self.agents, self._num_steps = ['a', 'b'], 0
    self.shown = {agent: np.zeros(3, np.float32) for agent in 'ab'}
    return self._see(), {'a': {}, 'b': {}}

  def step(self, actions):
    before = self._see()
    self.shown = {x: np.eye(3, dtype=np.float32)[actions[x]] for x in 'ab'}
    # Whoever copies shows what it saw.
    copies = [before[x].argmax() == actions[x] for x in 'ab']
    lead = (actions['a'] - actions['b'] + 1) % 3 - 1
    self._num_steps += 1
    is_over = dict.fromkeys('ab', self._num_steps == 10)
    if is_over['a']:
      self.agents = []
    rewards = {'a': float(lead), 'b': -float(lead)}
    infos = {x: {'copies': bool(one)} for x, one in zip('ab', copies)}  # noqa: B905
    return self._see(), rewards, is_over, {'a': False, 'b': False}, infos

  def _see(self):
    return {'a': self.shown['b'], 'b': self.shown['a']}


def _copycat(key, observation):
  del key
  return jnp.argmax(observation).astype(jnp.int32)


def _experiment(player, **options):
  return ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(core='feed_forward', batch_size=6, num_minibatches=2),
    environment=lambda seed: pettingzoo_adapter.PettingZooGame(
      RockPaperScissors(), seed=seed
    ),
    max_num_actor_steps=500,
    num_environments=4,
    opponents={'rule': player},
    population=ftwax.PopulationConfig(num_members=2, burn_in_games=100),
    **options,
  )


@pytest.mark.ci
def test_a_rule_plays_what_it_sees(tmp_path):
  player = population.observing_player(_copycat)
  ftwax.run(
    _experiment(player, metrics=('copies/mean',)),
    run_dir=tmp_path,
    eval_every=500,
  )
  lines = (tmp_path / 'logs/evaluation.jsonl').read_text().splitlines()
  row = json.loads(lines[-1])
  assert 0.0 <= row['scores/rule'] <= 1.0
  # One of two seats copies always.
  assert row['metrics/copies/mean'] >= 0.5


def test_a_script_of_states_is_refused_with_the_way_out():
  player = population.scripted_player(lambda key, state, seat: jnp.int32(0))
  with pytest.raises(
    types.InvalidTypeError, match=r'use population\.observing_player'
  ):
    ftwax.run(_experiment(player), run_dir=None)


@pytest.mark.parametrize('library', [np, jnp])
@pytest.mark.parametrize('is_array', [False, True])
def test_scalars_of_arrays_are_numbers(library, is_array):
  def real(value):
    return library.asarray(value) if is_array else library.float32(value)

  def whole(value):
    return library.asarray(value) if is_array else library.int32(value)

  config = ppo.PPOConfig(learning_rate=real(1e-3), batch_size=whole(8))
  assert config.learning_rate == pytest.approx(1e-3)
  assert config.batch_size == 8
  experiment = ftwax.ExperimentConfig(
    agent=config,
    environment='CartPole-v1',
    max_num_actor_steps=whole(1000),
  )
  assert experiment.max_num_actor_steps == 1000
  with pytest.raises(ValueError, match='batch_size .* must be an integer'):
    ppo.PPOConfig(batch_size=real(8.5))
