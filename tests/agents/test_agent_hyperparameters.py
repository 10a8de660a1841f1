import pickle

import pytest

from ftwax import hyperparameters
from ftwax.agents import a2c, ftw, impala, ppo
from ftwax.agents.actor_critic import actor_critic_config

CONFIGS = {
  'impala': impala.IMPALAConfig(),
  'a2c': a2c.A2CConfig(),
  'ppo': ppo.PPOConfig(),
  'ftw': ftw.FTWConfig(),
}


@pytest.mark.parametrize('name', CONFIGS)
def test_every_agent_has_those_of_the_family_and_documents_all(name):
  fields = type(CONFIGS[name].priors)._fields
  assert set(actor_critic_config.Hyperparameters._fields) <= set(fields)
  for field in fields:
    assert f'\n    {field}: ' in type(CONFIGS[name].priors).__doc__


@pytest.mark.parametrize('name', CONFIGS)
def test_values_travel_between_processes(name):
  made = type(CONFIGS[name].priors)
  values = made(*range(len(made._fields)))
  again = pickle.loads(pickle.dumps(values))
  assert again == values and type(again) is made


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
