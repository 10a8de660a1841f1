"""Replays, and steps to fill them with, in tests."""

import numpy as np

from ftwax.replay import functional

SPEC = {
  'image': np.zeros((2,), np.uint8),
  'step_type': np.zeros((), np.int32),
  'reward': np.zeros((), np.float32),
  'discount': np.zeros((), np.float32),
}
CONFIG = functional.ReplayConfig(
  num_environments=2,
  max_length=6,
  sequence_length=2,
  batch_size=4,
  prioritized=True,
  recent_data=True,
  episodes=True,
  record_returns=True,
)
HYPERPARAMETERS = functional.ReplayHyperparameters(
  recent_data_ratio=0.5, priority_exponent=1.0, importance_exponent=1.0
)
ALPHA_ONE = functional.ReplayHyperparameters(priority_exponent=1.0)


def make(config=CONFIG, **changes):
  """Makes a replay of `SPEC`."""
  return functional.make_replay(SPEC, config.replace(**changes))


def make_small(**changes):
  """Makes a prioritized replay of one environment and 8 steps."""
  sizes = {'num_environments': 1, 'max_length': 8, 'prioritized': True}
  return make(functional.ReplayConfig(**{**sizes, **changes}))


def make_sequence(first, num_steps, num_environments=1, length=4):
  """Makes steps `first`, ... of episodes of `length` steps, [S, E, ...].

  The reward of step t of environment e is 100 e + t.
  """
  t = np.arange(first, first + num_steps)[:, None]
  t = np.broadcast_to(t, (num_steps, num_environments))
  env = np.arange(num_environments)[None]
  step_type = np.where(t % length == 0, 0, np.where((t + 1) % length, 1, 2))
  return {
    'image': np.stack([t % 256, env + 0 * t], axis=-1).astype(np.uint8),
    'step_type': step_type.astype(np.int32),
    'reward': (100 * env + t).astype(np.float32),
    'discount': (step_type != 2).astype(np.float32),
  }


def make_step(t, num_environments=1, length=4):
  """Makes step `t` of all environments, [E, ...]."""
  sequence = make_sequence(t, 1, num_environments, length)
  return {name: leaf[0] for name, leaf in sequence.items()}


def fill(replay, num_steps, num_environments=1, first=0, state=None):
  """Adds steps `first`, ... one after another."""
  state = replay.init() if state is None else state
  for t in range(first, first + num_steps):
    state = replay.add(state, make_step(t, num_environments))
  return state
