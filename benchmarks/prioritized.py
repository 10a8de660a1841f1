"""Replay by priority on the task that it was made for, the blind cliff walk.

    uv run benchmarks/prioritized.py [--seeds 0 1 2 3 4] [--num_states=10]

Of two actions one goes on to the next state and the other ends the episode;
which is which differs between states, and only the last state has a reward
(Schaul et al., 2016, "Prioritized experience replay", figure 1). Random actions
get there once in 2^num_states episodes. A2C learns it alone, and with V-trace
on replayed trajectories that are drawn uniformly or by priority. The table has
the steps until the greedy policy has the reward.
"""

import argparse
import functools
import tempfile
from typing import NamedTuple

import common
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

import ftwax
from ftwax import types
from ftwax.agents import a2c
from ftwax.environments import functional, task_specs
from ftwax.records import loggers
from ftwax.runtime import callbacks, experiment

_VARIANTS = {
  'no replay': {},
  'uniform': {'use_off_policy': True},
  'by priority': {'use_off_policy': True, 'prioritize_replay': True},
}


class CliffWalkState(NamedTuple):
  """State of an episode.

  Attributes:
    position: int32 [], states that lie behind.
  """

  position: types.Array


def make_cliff_walk(num_states: int) -> functional.FunctionalEnvironment:
  """Makes the walk; its observation is float32 [num_states], one-hot."""
  right_actions = jnp.asarray(
    np.random.default_rng(num_states).integers(0, 2, num_states)
  )

  def observe(state):
    return jax.nn.one_hot(state.position, num_states)

  def reset(key):
    del key
    state = CliffWalkState(jnp.zeros((), jnp.int32))
    return state, functional.restart(observe(state))

  def step(state, action):
    goes_on = action == right_actions[state.position]
    state = CliffWalkState(state.position + 1)
    arrives = goes_on & (state.position == num_states)
    return state, functional.transition(
      arrives.astype(jnp.float32),
      observe(state),
      is_terminal=arrives | ~goes_on,
    )

  spec = task_specs.make_spec(
    specs.Array((num_states,), np.float32, 'observation'), 2, (0, 1)
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def find_steps(num_states: int, seed: int, changes: dict, limit: int) -> float:
  """Returns the steps until the reward is had, infinity if it is not."""
  config = a2c.A2CConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    sequence_length=8,
    batch_size=16,
    replay_capacity=2000,
    **changes,
  )
  made = experiment.ExperimentConfig(
    name='cliff_walk',
    builder=a2c.make_builder(config),
    network_factory=functools.partial(a2c.make_network, config=config),
    environment_factory=lambda seed: make_cliff_walk(num_states),
    max_num_actor_steps=limit,
    num_environments=16,
    seed=seed,
    observers=(callbacks.EarlyStopping(score=1.0),),
  )
  with tempfile.TemporaryDirectory() as directory:
    ftwax.run(made, limit // 100, 1, runtime='device', run_dir=directory + '/r')
    rows = loggers.read_jsonl(loggers.log_path(directory + '/r', 'evaluation'))
  reached = [row['actor_steps'] for row in rows if row['episode_return'] == 1.0]
  return min(reached, default=float('inf'))


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2, 3, 4])
  parser.add_argument('--num_states', type=int, default=10)
  parser.add_argument('--limit', type=int, default=1_000_000)
  options = parser.parse_args()
  rows = []
  for name, changes in _VARIANTS.items():
    steps = [
      find_steps(options.num_states, seed, changes, options.limit)
      for seed in options.seeds
    ]
    rows.append([name, *(f'{n:,.0f}' for n in [np.median(steps), *steps])])
  common.print_table(
    f'A2C on {options.num_states} states: steps until the reward is had, of'
    f' {options.limit:,}',
    ['', 'median', *(f'seed {seed}' for seed in options.seeds)],
    rows,
  )


if __name__ == '__main__':
  main()
