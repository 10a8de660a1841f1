"""What the tests of agents share: a small network and batches for it."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import optimization
from ftwax.networks import cores
from ftwax.replay import replay_options

SEQUENCE_LENGTH = 5
BATCH_SIZE = 3


@pytest.fixture(scope='session')
def config():
  return impala.IMPALAConfig.atari_paper(
    core=cores.LSTM(8, forget_bias=1.0),
    sequence_length=SEQUENCE_LENGTH,
    batch_size=BATCH_SIZE,
    queue=replay_options.Queue(max_size=8),
    learning_rate=1e-3,
    optimizer=optimization.RMSProp(1e-3),
    max_abs_reward=float('inf'),
  )


@pytest.fixture(scope='session')
def spec():
  return fakes.make_vector_spec()


@pytest.fixture(scope='session')
def network(spec, config):
  return config.make_network(spec)


@pytest.fixture(scope='session')
def make_batch(network):
  """Returns a function that makes random trajectories for a seed."""

  def make(seed):
    rng = np.random.default_rng(seed)
    rows = (SEQUENCE_LENGTH + 1, BATCH_SIZE)
    step_type = np.full(rows, dm_env.StepType.MID, np.int32)
    # An episode ends in the middle of the second trajectory.
    step_type[2, 1], step_type[3, 1] = dm_env.StepType.LAST, 0
    first = step_type == dm_env.StepType.FIRST
    timestep = dm_env.TimeStep(
      step_type=step_type,
      reward=np.where(first, 0, rng.normal(size=rows)).astype(np.float32),
      discount=np.ones(rows, np.float32),
      observation=rng.normal(size=(*rows, 4)).astype(np.float32),
    )
    action = rng.integers(0, 3, rows)
    trajectory = types.Trajectory(
      timestep=timestep,
      previous_action=np.where(first, types.NO_ACTION, action).astype(np.int32),
      logits=rng.normal(size=(SEQUENCE_LENGTH, BATCH_SIZE, 3)).astype('f'),
      recurrent_state=network.initial_state(BATCH_SIZE),
    )
    return types.LearnerBatch(jax.tree.map(jnp.asarray, trajectory))

  return make
