"""Experiments of a user, whose environments are in Python."""

import fakes
import gymnasium

import ftwax
from ftwax.agents import ppo
from ftwax.environments import gymnasium_adapter, vector


def _experiment(environment) -> ftwax.ExperimentConfig:
  return ftwax.ExperimentConfig(ppo.PPOConfig(), environment, 100)


def by_name() -> ftwax.ExperimentConfig:
  """Returns PPO on a Gymnasium environment."""
  return _experiment('CartPole-v1')


def of_instance() -> ftwax.ExperimentConfig:
  """Returns PPO on an instance of a Gymnasium environment."""
  return _experiment(gymnasium.make('CartPole-v1'))


def of_dm_env() -> ftwax.ExperimentConfig:
  """Returns PPO on an environment of dm_env."""
  return _experiment(
    lambda seed: fakes.FakeEnvironment(fakes.make_vector_spec(), 3)
  )


def of_vectors() -> ftwax.ExperimentConfig:
  """Returns PPO on vectors of Gymnasium."""
  return _experiment(
    vector.VectorFactory(
      lambda num_environments, seed: (
        gymnasium_adapter.GymnasiumVectorEnvironment(
          gymnasium.make_vec('CartPole-v1', num_environments), seed
        )
      )
    )
  )
