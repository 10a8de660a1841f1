"""Random batches for any agent in any environment, made from specs."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import distributions, types
from ftwax.agents.actor_critic import auxiliary, tasks

_sample = jax.jit(distributions.sample)


def make_timesteps(seed, spec, shape):
  """Returns timesteps [*shape] in the middle of episodes."""
  rng = np.random.default_rng(seed)
  rows = [fakes.sample(rng, spec.observations) for _ in range(np.prod(shape))]
  return dm_env.TimeStep(
    step_type=np.full(shape, dm_env.StepType.MID, np.int32),
    reward=rng.integers(-1, 2, (*shape, *spec.rewards.shape)).astype('f'),
    discount=np.ones(shape, np.float32),
    observation=jax.tree.map(
      lambda *x: np.stack(x).reshape(*shape, *np.shape(x[0])), *rows
    ),
  )


def make_trajectory(seed, spec, network, sequence_length, batch_size):
  """Returns trajectories; in the first of them an episode terminates."""
  shape = (sequence_length + 1, batch_size)
  timestep = make_timesteps(seed, spec, shape)
  timestep.step_type[1:3, 0] = dm_env.StepType.LAST, dm_env.StepType.FIRST
  timestep.reward[2, 0] = 0.0
  timestep.discount[1, 0] = 0.0
  action = _sample(
    jax.random.PRNGKey(seed), distributions.zero_logits(spec.actions, shape)
  )
  action = jax.tree.map(np.array, action)
  for part, none in zip(
    jax.tree.leaves(action),
    jax.tree.leaves(distributions.no_action(spec.actions, ())),
    strict=True,
  ):
    part[2, 0] = none
  trajectory = types.Trajectory(
    timestep=timestep,
    previous_action=action,
    logits=distributions.zero_logits(
      spec.actions, (sequence_length, batch_size)
    ),
    recurrent_state=network.initial_state(batch_size),
    seed=np.arange(np.prod(shape), dtype=np.int32).reshape(shape),
  )
  return jax.tree.map(jnp.asarray, trajectory)


def make_batch(seed, spec, network, config):
  """Returns a batch with all that any task learns from."""
  sizes = config.sequence_length, config.batch_size
  task = config.find_task(tasks.RewardPrediction)
  num_frames = (task or tasks.RewardPrediction()).length
  frames = make_timesteps(seed + 1, spec, (num_frames, config.batch_size))
  recorded = None
  if auxiliary.DEMONSTRATIONS in auxiliary.sources(config.all_tasks):
    recorded = types.ReplayBatch(
      make_trajectory(seed + 3, spec, network, *sizes), jnp.bool_(True)
    )
  frozen = {
    each.name: distributions.zero_logits(spec.actions, sizes)
    for each in config.all_tasks
    if each.source == auxiliary.FROZEN
  }
  return types.LearnerBatch(
    make_trajectory(seed, spec, network, *sizes),
    types.ReplayBatch(
      make_trajectory(seed + 2, spec, network, *sizes), jnp.bool_(True)
    ),
    types.RewardPredictionBatch(
      jax.tree.map(jnp.asarray, frames.observation),
      jnp.asarray(frames.reward[-1]),
      jnp.bool_(True),
    ),
    demonstrations=recorded,
    frozen=frozen,
  )
