"""Speed of PPO in the local runtime beside that of other libraries in torch.

    uv run --with sb3-contrib benchmarks/local.py --cleanrl=PATH

All learn CartPole from eight of Gymnasium's environments with T = 32, ten
epochs of two minibatches and layers of 64 and 64, those of the value apart but
for sample-factory's, in turn in one process, torch with one thread. Recurrent
agents, of which the rival is sb3-contrib's, have an LSTM of 64 units for policy
and value, ours after a layer of 64, theirs before one. The first environment
tells the time of the processor at two of its steps, so that imports and
compilation are not counted. sample-factory and CleanRL have environments of
their own (see rivals/), in which `uv` installs what they need. PATH is a clone
of CleanRL, which is not run without.
"""

import argparse
import functools
import statistics
import tempfile
import time

import common
import gymnasium
import sb3_contrib
import stable_baselines3
import torch

import ftwax
from ftwax.agents import ppo
from ftwax.networks import torsos

_NUM_ENVIRONMENTS = 8

# Steps of the first environment before the measurement, more than the first
# update takes.
_WARMUP = 250


class Clock(gymnasium.Wrapper):
  """CartPole, which notes the time of the processor at each step."""

  def __init__(self, times):
    """Stores the list of times."""
    super().__init__(gymnasium.make('CartPole-v1'))
    self._times = times

  def step(self, action):
    """Steps the environment."""
    self._times.append(time.process_time())
    return self.env.step(action)


def run_ours(core, make, num_steps):
  """Trains our agent."""
  experiment = ftwax.ExperimentConfig(
    name='CartPole-v1',
    agent=ppo.PPOConfig(
      core=core,
      skip_connection=False,
      separate_value=core == 'feed_forward',
      torso=torsos.Torso(hidden_sizes=(64,)),
      sequence_length=32,
      batch_size=_NUM_ENVIRONMENTS,
      num_epochs=10,
      num_minibatches=2,
    ),
    environment=lambda seed: make(),
    max_num_actor_steps=num_steps,
    num_environments=_NUM_ENVIRONMENTS,
    checkpointing=None,
  )
  with tempfile.TemporaryDirectory() as directory:
    ftwax.run(experiment, run_dir=f'{directory}/run')


def run_stable_baselines3(core, num_steps):
  """Returns the speed of Stable-Baselines3's agent, or sb3-contrib's."""
  return measure(functools.partial(_learn, core), num_steps)


@functools.cache  # It starts two processes.
def run_script(name, *arguments):
  """Returns the speed of an agent with a script in rivals/, measured once."""
  return common.run_rival(name, *arguments)['steps_per_second']


def _learn(core, make, num_steps):
  """Trains the agent of Stable-Baselines3, or of sb3-contrib."""
  vector = stable_baselines3.common.vec_env.DummyVecEnv(
    [make] * _NUM_ENVIRONMENTS
  )
  sizes = {'n_steps': 32, 'batch_size': 128, 'n_epochs': 10, 'device': 'cpu'}
  if core == 'lstm':
    agent = sb3_contrib.RecurrentPPO(
      'MlpLstmPolicy',
      vector,
      policy_kwargs={
        'lstm_hidden_size': 64,
        'net_arch': [64],
        'shared_lstm': True,
        'enable_critic_lstm': False,
      },
      **sizes,
    )
  else:
    agent = stable_baselines3.PPO('MlpPolicy', vector, **sizes)
  agent.learn(num_steps)


def measure(run, num_steps):
  """Returns the steps of all environments in a second of the processor."""
  clocks = []

  def make():
    clocks.append([])
    return Clock(clocks[-1])

  run(make, num_steps)
  # Some environments are made for their specs alone.
  times = next(each for each in clocks if len(each) > _WARMUP)[_WARMUP:]
  return _NUM_ENVIRONMENTS * (len(times) - 1) / (times[-1] - times[0])


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--num_steps', type=int, default=8_000)
  parser.add_argument('--rounds', type=int, default=3)
  parser.add_argument('--cleanrl', help='a clone of CleanRL')
  args = parser.parse_args()
  torch.set_num_threads(1)
  rivals = [
    ('feed_forward', 'Stable-Baselines3', run_stable_baselines3),
    (
      'feed_forward',
      'sample-factory',
      lambda *_: run_script('sample_factory_cart_pole.py'),
    ),
    ('lstm', 'sb3-contrib', run_stable_baselines3),
  ]
  if args.cleanrl:
    clone = f'--cleanrl={args.cleanrl}'
    rivals.insert(
      1,
      (
        'feed_forward',
        'CleanRL',
        lambda *_: run_script('cleanrl_cart_pole.py', clone),
      ),
    )
  rows = []
  for core, rival, run_rival in rivals:
    pairs = [
      (
        measure(functools.partial(run_ours, core), args.num_steps),
        run_rival(core, args.num_steps),
      )
      for _ in range(args.rounds)
    ]
    ratios = [ours / theirs for ours, theirs in pairs]
    low, high = min(ratios), max(ratios)
    medians = map(statistics.median, zip(*pairs, strict=True))
    rows.append(
      [
        core,
        rival,
        *(f'{median:,.0f}' for median in medians),
        f'{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})',
      ]
    )
  common.print_table(
    f'PPO on CartPole, {_NUM_ENVIRONMENTS} environments of Gymnasium, learning'
    ' included, steps in a second of the processor (Stable-Baselines3'
    f' {stable_baselines3.__version__}, torch {torch.__version__})',
    ['core', 'rival', 'local runtime', 'rival', 'ratio'],
    rows,
  )


if __name__ == '__main__':
  main()
