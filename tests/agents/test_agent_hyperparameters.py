import dataclasses
import math
import pickle
import re

import jax
import pytest

from ftwax import hyperparameters, parts
from ftwax.agents import a2c, a3c, ftw, impala, ppo, rl2, unreal
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import optimization
from ftwax.networks import cores

Constant = hyperparameters.Constant

CONFIGS = {
  'impala': impala.IMPALAConfig(),
  'a2c': a2c.A2CConfig(),
  'ppo': ppo.PPOConfig(),
  'ftw': ftw.FTWConfig(),
}


@pytest.mark.parametrize('name', CONFIGS)
def test_every_agent_has_those_of_the_family_and_documents_all(name):
  config = CONFIGS[name]
  family = tuple(parts.hyperparameters_of(config_lib.ActorCriticConfig))
  assert config.priors._fields[: len(family)] == family
  for part in (config, config.core, config.optimizer, *config.tasks):
    docs = [kind.__doc__ or '' for kind in type(part).__mro__]
    for field in parts.hyperparameters_of(type(part)):
      assert any(re.search(rf'^ *{field}: ', doc, re.M) for doc in docs)


def test_a_number_is_fixed_and_a_prior_evolves():
  prior = hyperparameters.LogUniform(1e-4, 1e-3)
  config = ppo.PPOConfig(learning_rate=3e-4, entropy_cost=prior)
  assert config.priors.learning_rate == Constant(3e-4)
  assert config.priors.entropy_cost == prior
  assert config == config.replace(learning_rate=Constant(3e-4))
  fixed = ppo.PPOConfig(core=cores.RPTH(slow_period=5)).priors.core.slow_period
  assert fixed == hyperparameters.UniformInteger(5, 5)
  drawn = hyperparameters.UniformInteger(5, 20)
  config = ppo.PPOConfig(core=cores.RPTH(slow_period=drawn))
  assert config.priors.core.slow_period == drawn
  assert not hasattr(ppo.PPOConfig().priors, 'core')


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'learning_rate': '3e-4'}, r"learning_rate \('3e-4'\) must be a number"),
    ({'discount': None}, r'discount \(None\) must be a number or a prior'),
  ],
)
def test_what_is_neither_a_number_nor_a_prior_is_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    ftw.FTWConfig(**changes)


def test_a_hyperparameter_may_be_off():
  """It is then not in the training state, whose older records still load."""
  config = ppo.PPOConfig(core=cores.LSTM(8))
  assert not hasattr(config.priors, 'core')
  config = config.replace(core=cores.LSTM(8, dropout=0.1))
  assert config.priors.core.dropout == Constant(0.1)
  assert 'core.dropout' in parts.collect(config)
  prior = hyperparameters.Uniform(0.0, 0.5)
  layers = cores.StackedLSTM((8, 8), layer=cores.LSTM(dropout=prior))
  config = config.replace(core=layers)
  assert config.priors.core.layer.dropout == prior
  assert config.bounds['core.layer.dropout'] == (0.0, 0.99)


def test_each_slow_level_may_have_a_period():
  """Each is a hyperparameter, which a population may change."""
  drawn = hyperparameters.UniformInteger(20, 60)
  core = cores.RPTH(8, num_levels=3, slow_period=(5, drawn))
  config = ppo.PPOConfig(core=core)
  fixed = hyperparameters.UniformInteger(5, 5)
  assert config.priors.core.slow_period == (fixed, drawn)
  path = 'core.slow_period.1'
  assert parts.collect(config)[path] == (drawn, (1, math.inf))
  assert parts.read(config, path) == drawn
  changed = parts.change(config, path, 40)
  assert changed.core.slow_period == (5, 40)


@pytest.mark.parametrize('period', [2.5, Constant(5.0)])
def test_a_period_is_an_integer(period):
  with pytest.raises(ValueError, match=r'slow_period .* must be an integer'):
    cores.RPTH(slow_period=period)


def test_parts_of_one_name_are_refused():
  with pytest.raises(ValueError, match=r'one name each.*name="value_replay_2"'):
    ppo.PPOConfig(tasks=('value_replay', 'value_replay'))


def test_a_hyperparameter_of_a_subclass_comes_last():
  @dataclasses.dataclass(frozen=True)
  class WithCost(ppo.PPOConfig):
    extra_cost: hyperparameters.Scalar = 0.1

  assert WithCost(extra_cost=0.2).priors.extra_cost == Constant(0.2)
  own = parts.hyperparameters_of(WithCost)
  assert list(own) == [*parts.hyperparameters_of(ppo.PPOConfig), 'extra_cost']


@pytest.mark.parametrize('name', CONFIGS)
def test_values_travel_between_processes(name):
  leaves, structure = jax.tree.flatten(CONFIGS[name].priors)
  values = structure.unflatten(range(len(leaves)))
  again = pickle.loads(pickle.dumps(values))
  assert again == values and jax.tree.structure(again) == structure


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'entropy_cost': -0.1}, r'entropy_cost .* in \[0, inf\]'),
    ({'clip_epsilon': -0.1}, r'clip_epsilon .* in \[0, inf\]'),
    ({'gae_lambda': 1.5}, r'gae_lambda .* in \[0, 1\]'),
  ],
)
def test_values_out_of_bounds_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    ppo.PPOConfig().replace(**changes)


def test_both_ends_of_a_range_are_checked():
  for low, high in ((-1.0, 0.5), (0.5, 2.0)):
    with pytest.raises(ValueError, match=r'discount .* in \[0, 1\]'):
      ppo.PPOConfig(discount=hyperparameters.Uniform(low, high))


def test_a_prior_of_the_users_own_is_taken():
  class Anything:
    def sample(self, key):
      return key

  prior = Anything()
  assert ppo.PPOConfig(discount=prior).priors.discount is prior


_LSTM = cores.LSTM(256, forget_bias=1.0)


def _assert_of_the_paper(config, core=_LSTM):
  assert config.core == core
  assert not config.skip_connection and not config.separate_value
  assert config.priors.max_abs_reward == Constant(1.0)


@pytest.mark.parametrize(
  ('make', 'batch_size', 'sequence_length'),
  [
    (impala.IMPALAConfig.atari_paper, 32, 20),
    (a2c.A2CConfig.paper, 16, 5),
    (a3c.A3CConfig.paper, 1, 5),
    (unreal.UNREALConfig.paper, 1, 20),
  ],
)
def test_papers_that_sum_losses_are_presets(make, batch_size, sequence_length):
  config = make()
  assert isinstance(config.optimizer, optimization.RMSProp)
  assert config.loss_reduction == 'sum'
  assert config.priors.max_gradient_norm == Constant(40.0)
  assert config.batch_size == batch_size
  assert config.sequence_length == sequence_length
  _assert_of_the_paper(config)
  changed = make(batch_size=8)
  assert changed.batch_size == 8 and type(changed) is type(config)
  assert changed.replace(batch_size=batch_size) == config


def test_the_paper_of_ppo_is_a_preset():
  config = ppo.PPOConfig.atari_paper(num_epochs=4)
  assert (config.num_epochs, config.num_minibatches) == (4, 4)
  assert (config.sequence_length, config.batch_size) == (128, 8)
  assert config.priors.clip_epsilon == Constant(0.1)
  _assert_of_the_paper(config, core=cores.FeedForward(256))


def test_the_paper_of_unreal_draws_what_is_searched():
  priors = unreal.UNREALConfig.paper().priors
  assert priors.learning_rate == hyperparameters.LogUniform(1e-4, 5e-3)
  assert priors.entropy_cost == hyperparameters.LogUniform(5e-4, 1e-2)
  assert priors.tasks.pixel_control.cost == hyperparameters.LogUniform(
    0.01, 0.1
  )


def test_a2c_has_impalas_defaults():
  impala_config, config = impala.IMPALAConfig(), a2c.A2CConfig()
  assert config == a2c.A2CConfig(**vars(impala_config))
  for name, prior in impala_config.priors._asdict().items():
    assert getattr(config.priors, name) == prior
  assert a3c.A3CConfig(batch_size=config.batch_size) == a3c.A3CConfig(
    **vars(config)
  )
  assert a3c.A3CConfig().correct_lag and not a3c.A3CConfig.paper().correct_lag


def test_rl2_keeps_two_plain_cores():
  config = rl2.RL2Config()
  assert not config.skip_connection and not config.separate_value
