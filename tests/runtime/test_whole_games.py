"""Scores of evaluations are of whole games, where training sees lives."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax.agents import ppo
from ftwax.environments import process_games


class Lives(gymnasium.Env):
  """Three lives of four steps each."""

  observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
  action_space = spaces.Discrete(2)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return np.zeros(2, np.float32), {}

  def step(self, action):
    self._step += 1
    info = {'life_lost': self._step % 4 == 0}
    return np.zeros(2, np.float32), 1.0, self._step == 12, False, info


class LifeWrapper(gymnasium.Wrapper):
  """Ends episodes with lives, as `AtariPreprocessing` does."""

  def __init__(self, env, terminal_on_life_loss=True):
    super().__init__(env)
    self.terminal_on_life_loss = terminal_on_life_loss
    self._next_life = False

  def reset(self, **options):
    if self._next_life:
      self._next_life = False
      return np.zeros(2, np.float32), {}
    return self.env.reset(**options)

  def step(self, action):
    seen, reward, is_over, is_cut, info = self.env.step(action)
    self._next_life = (
      self.terminal_on_life_loss and info['life_lost'] and not is_over
    )
    return seen, reward, is_over or self._next_life, is_cut, info


def make(seed):
  return LifeWrapper(Lives())


def make_vector(num_envs, seed):
  return gymnasium.vector.SyncVectorEnv(
    [lambda: make(0)] * num_envs,
    autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP,
  )


def _run(directory, environment, **options):
  ftwax.run(
    ftwax.ExperimentConfig(
      agent=ppo.PPOConfig(core='feed_forward', batch_size=4, num_minibatches=2),
      environment=environment,
      max_num_actor_steps=200,
      num_environments=2,
      **options,
    ),
    run_dir=directory,
    eval_every=200,
    num_eval_episodes=4,
  )
  return tuple(
    json.loads((directory / f'logs/{label}.jsonl').read_text().split('\n')[0])[
      'episode_return'
    ]
    for label in ('train', 'evaluation')
  )


@pytest.mark.parametrize('environment', [make, make_vector])
def test_evaluations_play_whole_games(environment, tmp_path):
  assert _run(tmp_path, environment) == (4.0, 12.0)


def test_processes_play_whole_games(tmp_path):
  stepping = process_games.Stepping(processes=2)
  assert _run(tmp_path, make, stepping=stepping) == (4.0, 12.0)


def test_lives_can_be_evaluated(tmp_path):
  own = ftwax.Evaluation(environment=make)
  assert _run(tmp_path, make, evaluation=own) == (4.0, 4.0)
