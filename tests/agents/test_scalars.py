import pickle

import pytest

from ftwax import hyperparameters
from ftwax.agents import a2c, ftw, ppo, unreal
from ftwax.agents.actor_critic import scalars

EXTENDED = {
  'a2c': (a2c.Hyperparameters, scalars.Hyperparameters),
  'ppo': (ppo.Hyperparameters, a2c.Hyperparameters),
  'unreal': (unreal.Hyperparameters, a2c.Hyperparameters),
  'ftw': (ftw.Hyperparameters, scalars.Hyperparameters),
}


@pytest.mark.parametrize('name', EXTENDED)
def test_an_extension_begins_with_its_base_and_tells_all(name):
  extended, base = EXTENDED[name]
  assert extended._fields[: len(base._fields)] == base._fields
  assert len(extended._fields) > len(base._fields)
  for field in extended._fields:
    assert f'  {field}: ' in extended.__doc__


@pytest.mark.parametrize('name', EXTENDED)
def test_values_travel_between_processes(name):
  extended, _ = EXTENDED[name]
  values = extended(*range(len(extended._fields)))
  again = pickle.loads(pickle.dumps(values))
  assert again == values and type(again) is extended


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'entropy_cost': -0.1}, r'priors.entropy_cost .* in \[0, inf\]'),
    ({'clip_epsilon': -0.1}, r'priors.clip_epsilon .* in \[0, inf\]'),
    ({'gae_lambda': 1.5}, r'priors.gae_lambda .* in \[0, 1\]'),
    (
      {'learning_rate_decay_steps': 0.5},
      r'priors.learning_rate_decay_steps .* in \[1, inf\]',
    ),
  ],
)
def test_values_out_of_bounds_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    ppo.PPOConfig().fix(**changes)


def test_both_ends_of_a_range_are_checked():
  priors = ppo.PPOConfig.priors
  for low, high in ((-1.0, 0.5), (0.5, 2.0)):
    with pytest.raises(ValueError, match=r'priors.discount .* in \[0, 1\]'):
      ppo.PPOConfig(
        priors=priors._replace(discount=hyperparameters.Uniform(low, high))
      )


def test_a_prior_of_the_users_own_is_taken():
  class Anything:
    def sample(self, key):
      return key

  priors = ppo.PPOConfig.priors._replace(discount=Anything())
  assert ppo.PPOConfig(priors=priors).priors is priors
