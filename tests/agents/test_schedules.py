"""Schedules of any shape, of numbers that stay data."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ftwax
from ftwax import hyperparameters
from ftwax.agents import ppo
from ftwax.agents.actor_critic import optimization
from ftwax.environments import catch
from ftwax.records import config_files, rebuilding

_STEPS = 12_800  # 128 in an update.
_SIZES = {'batch_size': 4, 'sequence_length': 32, 'num_minibatches': 1}


@pytest.mark.parametrize(
  'schedule',
  [
    optax.cosine_decay_schedule(1.0, _STEPS, alpha=0.1),
    optax.warmup_cosine_decay_schedule(0.0, 1.0, 1_000, _STEPS),
    optax.exponential_decay(1.0, 2_000, 0.5),
  ],
)
def test_factors_are_those_of_optax(schedule):
  made = optimization.tabulate('learning_rate', schedule, _STEPS, 128)
  updates = jnp.arange(0, 101)
  got = jax.vmap(made.factor)(updates)
  np.testing.assert_allclose(got, schedule(updates * 128.0), atol=2e-3)
  # After its end.
  np.testing.assert_allclose(made.factor(jnp.int32(10**6)), schedule(_STEPS))


def test_members_are_counted():
  config = ppo.PPOConfig(**_SIZES)
  decay = optax.linear_schedule(1.0, 0.0, _STEPS)
  (alone,) = config.scheduled(_STEPS, learning_rate=decay).schedules
  (four,) = config.scheduled(_STEPS, 4, learning_rate=decay).schedules
  assert alone.num_updates == 100 and four.num_updates == 25


@pytest.mark.ci
def test_a_training_follows_the_schedule_of_values_that_are_mapped():
  config = ppo.PPOConfig(
    core='feed_forward',
    learning_rate=hyperparameters.LogUniform(1e-4, 1e-2),
    **_SIZES,
  ).scheduled(1_024, learning_rate=optax.linear_schedule(1.0, 0.0, 1_024))
  init, train = ftwax.make_train(
    ftwax.ExperimentConfig(
      config, catch.make(), max_num_actor_steps=512, num_environments=4
    )
  )
  states = jax.vmap(
    lambda rate: init(jax.random.PRNGKey(0), learning_rate=rate)
  )(jnp.array([1e-3, 2e-3]))
  _, metrics = jax.jit(jax.vmap(train))(states)
  rates = np.asarray(metrics['learning_rate'])[:, :3, 0]
  np.testing.assert_allclose(rates[1], 2 * rates[0], rtol=1e-5)
  np.testing.assert_allclose(
    rates[0], 1e-3 * np.array([1, 7 / 8, 6 / 8]), rtol=1e-5
  )


def test_a_schedule_is_recorded_and_rebuilt():
  decay = optax.cosine_decay_schedule(1.0, _STEPS)
  config = ppo.PPOConfig(**_SIZES).scheduled(_STEPS, entropy_cost=decay)
  plain = json.loads(json.dumps(config_files.to_json(config)))
  assert rebuilding.rebuild(plain, ppo.PPOConfig, 'agent') == config


def test_wrong_schedules_are_told():
  with pytest.raises(ValueError, match=r"name \('lr'\) of a schedule must be"):
    ppo.PPOConfig().scheduled(100, lr=lambda steps: 1.0)
  with pytest.raises(ValueError, match=r'factors .* of entropy_cost must be'):
    ppo.PPOConfig().scheduled(100, entropy_cost=lambda steps: np.nan)
