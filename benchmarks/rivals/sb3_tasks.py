# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "stable-baselines3==2.9.2",
#   "sb3-contrib==2.9.2",
#   "gymnasium[box2d]==1.4.0",
# ]
# ///
"""Stable-Baselines3's agents with their defaults, on the tasks of `defaults`.

One run of one agent: a policy that suits the observation, one environment, and
otherwise defaults. Evaluations are greedy, in a separate environment, and the
run ends with the first one that reaches `--target`.
"""

import argparse
import json
import time

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common import evaluation, monitor

_AGENTS = {
  'ppo': (stable_baselines3.PPO, 'MlpPolicy', 'CnnPolicy'),
  'a2c': (stable_baselines3.A2C, 'MlpPolicy', 'CnnPolicy'),
  'recurrent_ppo': (
    sb3_contrib.RecurrentPPO,
    'MlpLstmPolicy',
    'CnnLstmPolicy',
  ),
}


class Catch(gymnasium.Env):
  """bsuite's catch: 1 for a catch, `miss_reward` for a miss."""

  def __init__(self, rows=10, columns=5, miss_reward=-1.0, size=None):
    self._rows, self._columns = rows, columns
    self._miss_reward, self._size = miss_reward, size
    self.action_space = spaces.Discrete(3)
    self.observation_space = (
      spaces.Box(0.0, 1.0, (rows, columns), np.float32)
      if size is None
      else spaces.Box(0, 255, (size, size, 3), np.uint8)
    )

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._x = int(self.np_random.integers(self._columns))
    self._y, self._paddle = 0, self._columns // 2
    return self._observe(), {}

  def step(self, action):
    self._y += 1
    moved = self._paddle + int(action) - 1
    self._paddle = min(max(moved, 0), self._columns - 1)
    last = self._y == self._rows - 1
    reward = 0.0
    if last:
      reward = 1.0 if self._paddle == self._x else self._miss_reward
    return self._observe(), reward, last, False, {}

  def _observe(self):
    board = np.zeros((self._rows, self._columns), np.float32)
    board[self._y, self._x] = board[-1, self._paddle] = 1.0
    if self._size is None:
      return board
    frame = (255 * board).astype(np.uint8)
    for axis, length in enumerate(board.shape):
      frame = np.repeat(frame, self._size // length, axis)
    margins = [self._size - side for side in frame.shape]
    frame = np.pad(frame, [(m // 2, m - m // 2) for m in margins])
    return np.repeat(frame[..., None], 3, axis=-1)


class MemoryChain(gymnasium.Env):
  """bsuite's memory_len: recall a bit shown at the start of the episode."""

  def __init__(self, length=30):
    self._length = length
    self.action_space = spaces.Discrete(2)
    self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._steps, self._bit = 0, int(self.np_random.integers(2))
    return self._observe(), {}

  def step(self, action):
    self._steps += 1
    last = self._steps == self._length + 1
    reward = 0.0
    if last:
      reward = 1.0 if int(action) == self._bit else -1.0
    return self._observe(), reward, last, False, {}

  def _observe(self):
    # An observation contains the time before its action.
    now = max(self._steps - 1, 0)
    bit = 2 * self._bit - 1 if now == 0 else 0
    return np.array([1.0 - now / self._length, 0.0, bit], np.float32)


class Breakout(gymnasium.Env):
  """MinAtar's Breakout from gymnax."""

  def __init__(self):
    import gymnax
    import jax

    self._jax = jax
    env, params = gymnax.make('Breakout-MinAtar')
    self._reset = jax.jit(lambda key: env.reset_env(key, params))
    self._step = jax.jit(lambda *args: env.step_env(*args, params))
    self._limit = params.max_steps_in_episode
    shape = env.observation_space(params).shape
    self.observation_space = spaces.Box(0.0, 1.0, shape, np.float32)
    self.action_space = spaces.Discrete(env.action_space(params).n)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    observation, self._state = self._reset(self._key())
    self._num_steps = 0
    return np.asarray(observation, np.float32), {}

  def step(self, action):
    observation, self._state, reward, done, _ = self._step(
      self._key(), self._state, int(action)
    )
    self._num_steps += 1
    is_over = not bool(done) and self._num_steps >= self._limit
    observation = np.asarray(observation, np.float32)
    return observation, float(reward), bool(done), is_over, {}

  def _key(self):
    return self._jax.random.PRNGKey(int(self.np_random.integers(2**31)))


_TASKS = {
  'cart_pole': lambda: gymnasium.make('CartPole-v1'),
  'acrobot': lambda: gymnasium.make('Acrobot-v1'),
  'lunar_lander': lambda: gymnasium.make('LunarLander-v3'),
  'catch': Catch,
  'memory': MemoryChain,
  'pixel_catch': lambda: Catch(12, 12, 0.0, 84),
  'breakout': Breakout,
}


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--agent', choices=_AGENTS, required=True)
  parser.add_argument('--task', choices=_TASKS, required=True)
  parser.add_argument('--seed', type=int, required=True)
  parser.add_argument('--num_steps', type=int, required=True)
  parser.add_argument('--eval_every', type=int, required=True)
  parser.add_argument('--num_eval_episodes', type=int, required=True)
  parser.add_argument('--target', type=float, required=True)
  args = parser.parse_args()
  torch.set_num_threads(1)
  make_agent, of_vectors, of_images = _AGENTS[args.agent]
  env = _TASKS[args.task]()
  is_image = env.observation_space.dtype == np.uint8
  agent = make_agent(
    of_images if is_image else of_vectors, env, seed=args.seed, device='cpu'
  )
  eval_env = monitor.Monitor(_TASKS[args.task]())
  eval_env.reset(seed=args.seed + 1_000_000)
  rows = []
  seconds = 0.0

  class Evaluations(stable_baselines3.common.callbacks.BaseCallback):
    """Evaluates periodically; ends the run at the target."""

    def _on_step(self):
      nonlocal seconds
      if self.num_timesteps % args.eval_every:
        return True
      seconds += time.monotonic() - self.started
      returns, _ = evaluation.evaluate_policy(
        self.model,
        eval_env,
        args.num_eval_episodes,
        return_episode_rewards=True,
      )
      score = float(np.mean(returns))
      rows.append([self.num_timesteps, score, seconds])
      print(self.num_timesteps, score, flush=True)
      self.started = time.monotonic()
      return score < args.target

  callback = Evaluations()
  callback.started = time.monotonic()
  agent.learn(args.num_steps, callback=callback)
  print(
    json.dumps(
      {
        'evaluations': rows,
        'versions': {
          'stable_baselines3': stable_baselines3.__version__,
          'torch': torch.__version__,
        },
      }
    )
  )


if __name__ == '__main__':
  main()
