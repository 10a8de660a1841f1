"""Configs and random batches for the tests of the For-The-Win agent."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import hyperparameters, types
from ftwax.agents import ftw
from ftwax.networks import cores, heads, torsos

T, B, NUM_EVENTS = 6, 4, 3
FRAME = (12, 20, 3)

SPEC = fakes.make_image_spec(FRAME, 3)._replace(
  actions={
    'move': dm_env.specs.DiscreteArray(3, name='move'),
    'tag': dm_env.specs.DiscreteArray(2, name='tag'),
  },
  rewards=dm_env.specs.Array((NUM_EVENTS,), np.float32, 'events'),
)


SIZE = 6
# Of the paper.
TASKS = ftw.FTWConfig().tasks
MEMORY = cores.Memory(num_slots=4, word_size=3, num_reads=2)


def make_config(**options):
  """Returns a small config of the paper's agent, without its memory."""
  sizes = {
    'core': cores.RPTH(SIZE, slow_period=hyperparameters.UniformInteger(5, 20)),
    'torso': torsos.Torso('ftw', num_features=SIZE, hidden_sizes=(SIZE,)),
    'heads': heads.Heads((SIZE,), (SIZE,)),
  }
  return ftw.FTWConfig(
    **{'sequence_length': T, 'batch_size': B} | sizes | options
  )


def make_trajectory(seed, network, spec=SPEC):
  """Returns trajectories with an episode's end inside the second."""
  rng = np.random.default_rng(seed)
  rows = (T + 1, B)
  step_type = np.full(rows, dm_env.StepType.MID, np.int32)
  step_type[2, 1], step_type[3, 1] = dm_env.StepType.LAST, 0
  first = step_type == dm_env.StepType.FIRST
  discount = np.ones(rows, np.float32)
  discount[2, 1] = 0.0
  events = rng.integers(0, 2, (*rows, *spec.rewards.shape)).astype('f')
  events[first] = 0.0
  return jax.tree.map(
    jnp.asarray,
    types.Trajectory(
      timestep=dm_env.TimeStep(
        step_type=step_type,
        reward=events,
        discount=discount,
        observation=rng.integers(
          0, 256, (*rows, *spec.observations.shape), np.uint8
        ),
      ),
      previous_action=jax.tree.map(
        lambda part: np.where(
          first, types.NO_ACTION, rng.integers(0, part.num_values, rows)
        ).astype(np.int32),
        spec.actions,
      ),
      logits=jax.tree.map(
        lambda part: rng.normal(size=(T, B, part.num_values)).astype('f'),
        spec.actions,
      ),
      recurrent_state=network.initial_state(B),
    ),
  )


def make_batch(seed, network, is_live=True):
  """Returns a batch for all tasks."""
  rng = np.random.default_rng(100 + seed)
  return types.LearnerBatch(
    trajectory=make_trajectory(seed, network),
    replay=types.ReplayBatch(
      make_trajectory(seed + 50, network), jnp.bool_(is_live)
    ),
    reward_prediction=types.RewardPredictionBatch(
      observation=jnp.asarray(rng.integers(0, 256, (3, B, *FRAME), np.uint8)),
      reward=jnp.asarray(
        rng.integers(0, 2, (B, NUM_EVENTS)).astype(np.float32)
      ),
      is_live=jnp.bool_(is_live),
    ),
  )
