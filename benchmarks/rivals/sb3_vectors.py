"""The rival: Stable-Baselines3's DummyVecEnv and SubprocVecEnv.

A standalone script, for an environment with stable-baselines3, gymnasium,
ale-py and opencv-python-headless. Makes the vector, then reads durations in
seconds, one per line, and answers each with a line of JSON with the steps per
second.
"""

import argparse
import json
import sys
import time

import gymnasium
import numpy as np
from stable_baselines3.common import vec_env


class Sleeper(gymnasium.Env):
  """A simulator whose steps sleep for 5 ms."""

  observation_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self):
    self._num_steps = 0

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._num_steps = 0
    return np.zeros(8, np.float32), {}

  def step(self, action):
    time.sleep(0.005)
    self._num_steps += 1
    done = self._num_steps % 200 == 0
    return np.zeros(8, np.float32), 0.0, False, done, {}


def make_pong():
  """Makes Pong like ours: gray 84 x 84, every fourth frame, sticky actions."""
  import ale_py

  gymnasium.register_envs(ale_py)
  env = gymnasium.make(
    'ALE/Pong-v5', frameskip=1, repeat_action_probability=0.25
  )
  return gymnasium.wrappers.AtariPreprocessing(env, noop_max=30)


def make_cart_pole():
  return gymnasium.make('CartPole-v1')


FACTORIES = {'pong': make_pong, 'cart_pole': make_cart_pole, 'sleep': Sleeper}


def run(made, seconds, generator):
  """Returns steps per second of all environments."""
  num = made.num_envs
  actions = generator.integers(0, made.action_space.n, (1000, num))
  start = time.perf_counter()
  steps = 0
  while (elapsed := time.perf_counter() - start) < seconds:
    made.step(actions[steps % 1000])
    steps += 1
  return steps * num / elapsed


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--task', choices=sorted(FACTORIES), required=True)
  parser.add_argument('--vector', choices=['dummy', 'subproc'], required=True)
  parser.add_argument('--num_environments', type=int, required=True)
  options = parser.parse_args()
  factories = [FACTORIES[options.task]] * options.num_environments
  if options.vector == 'dummy':
    made = vec_env.DummyVecEnv(factories)
  else:
    made = vec_env.SubprocVecEnv(factories, start_method='forkserver')
  made.seed(0)
  made.reset()
  generator = np.random.default_rng(0)
  for line in sys.stdin:
    rate = run(made, float(line), generator)
    print(json.dumps({'steps_per_second': rate}), flush=True)
  made.close()


if __name__ == '__main__':
  main()
