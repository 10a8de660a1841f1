"""Updates of a population: all members at once with `vmap`, or one by one.

    uv run benchmarks/population.py

The agent is that of `experiments/capture_the_flag.py`, trained on random
trajectories (T = 20, B = 32) of the game's features.
"""

import argparse

import common
import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.agents import ftw
from ftwax.environments import capture_the_flag

_NUM_MEMBERS = (1, 2, 4, 8)


def _make_config(core):
  return ftw.FTWConfig.paper(
    core=core,
    use_pixel_control=False,
    use_reward_prediction=False,
    sequence_length=20,
    batch_size=32,
  ).with_size(64)


def _make_batch(rng, spec, config, network):
  rows = (config.sequence_length + 1, config.batch_size)
  transitions = (config.sequence_length, config.batch_size)
  trajectory = types.Trajectory(
    timestep=dm_env.TimeStep(
      step_type=np.full(rows, dm_env.StepType.MID, np.int32),
      reward=rng.integers(0, 2, (*rows, *spec.rewards.shape)).astype('f'),
      discount=np.ones(rows, np.float32),
      observation=rng.normal(size=(*rows, *spec.observations.shape)).astype(
        'f'
      ),
    ),
    previous_action=jax.tree.map(
      lambda part: rng.integers(0, part.num_values, rows).astype(np.int32),
      spec.actions,
    ),
    logits=jax.tree.map(
      lambda part: np.zeros((*transitions, part.num_values), np.float32),
      spec.actions,
    ),
    recurrent_state=network.initial_state(config.batch_size),
  )
  return types.LearnerBatch(trajectory)


def _measure(core, seconds):
  """Returns the rows of the table for one core."""
  spec = capture_the_flag.make().spec
  config = _make_config(core)
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  rng = np.random.default_rng(0)
  alone = jax.jit(learner.update)
  together = jax.jit(jax.vmap(learner.update))
  rows = []
  for num_members in _NUM_MEMBERS:
    keys = jax.random.split(jax.random.PRNGKey(0), num_members)
    states = jax.vmap(learner.init)(keys)
    batches = jax.tree.map(
      lambda *x: jax.numpy.stack(x),
      *[_make_batch(rng, spec, config, network) for _ in range(num_members)],
    )
    members = [
      jax.tree.map(lambda x, i=i: x[i], (states, batches))
      for i in range(num_members)
    ]

    def in_turn(members=members):
      jax.block_until_ready([alone(*member) for member in members])

    def at_once(states=states, batches=batches):
      jax.block_until_ready(together(states, batches))

    turn = common.measure(in_turn, seconds=seconds).median
    once = common.measure(at_once, seconds=seconds).median
    rows.append(
      [
        core,
        num_members,
        f'{1e3 * turn:.1f}',
        f'{1e3 * once:.1f}',
        f'{turn / once:.2f}',
      ]
    )
  return rows


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--seconds', type=float, default=4.0)
  arguments = parser.parse_args()
  print(common.machine_line())
  rows = []
  for core in ('lstm', 'rpth'):
    rows += _measure(core, arguments.seconds)
  common.print_table(
    'Milliseconds of an update of all members',
    ['core', 'members', 'in turn ms', 'vmap ms', 'times as fast'],
    rows,
  )


if __name__ == '__main__':
  main()
