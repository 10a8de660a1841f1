"""Random streams for the tests of losses, and what is expected of them."""

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.losses import policy_loss

FIRST, MID, LAST = 0, 1, 2


def random_steps(seed, num_steps, end=0.3):
  """Step types and discounts of a stream that crosses ends of episodes."""
  rng = np.random.default_rng(seed)
  step_type, discount = [MID], [1.0]
  for _ in range(num_steps):
    if step_type[-1] == LAST:
      step_type.append(FIRST)
      discount.append(1.0)
    else:
      ends = rng.random() < end
      step_type.append(LAST if ends else MID)
      discount.append(float(rng.integers(2)) if ends else 1.0)
  return np.array(step_type), np.array(discount)


def random_trajectory(seed, num_steps, num_actions=3, end=0.3):
  """A trajectory of random steps without observations."""
  rng = np.random.default_rng(seed + 1000)
  step_type, discount = random_steps(seed, num_steps, end)
  first = step_type == FIRST
  action = rng.integers(num_actions, size=num_steps + 1)
  reward = np.where(first, 0.0, rng.normal(size=num_steps + 1))
  return types.Trajectory(
    timestep=dm_env.TimeStep(
      step_type=jnp.asarray(step_type, jnp.int32),
      reward=jnp.asarray(reward, jnp.float32),
      discount=jnp.asarray(discount, jnp.float32),
      observation=(),
    ),
    previous_action=jnp.asarray(
      np.where(first, types.NO_ACTION, action), jnp.int32
    ),
    logits=jnp.asarray(rng.normal(size=(num_steps, num_actions)), jnp.float32),
    recurrent_state=(),
  )


def random_transitions(seed, num_steps, num_actions=3, discount=0.9, end=0.3):
  """Transitions of a random trajectory and a random network."""
  rng = np.random.default_rng(seed + 2000)
  trajectory = random_trajectory(seed, num_steps, num_actions, end)
  values = np.float32(rng.normal(size=num_steps + 1))
  noise = np.float32(0.5 * rng.normal(size=(num_steps, num_actions)))
  mask = policy_loss.make_mask(trajectory.timestep)
  trajectory = jax.tree.map(np.asarray, trajectory)
  timestep = trajectory.timestep
  transitions = policy_loss.Transitions(
    logits_tm1=trajectory.logits + noise,
    behaviour_logits_tm1=trajectory.logits,
    a_tm1=trajectory.previous_action[1:],
    v_tm1=values[:-1],
    v_t=values[1:],
    r_t=timestep.reward[1:],
    discount_t=np.float32(discount) * timestep.discount[1:],
    mask_tm1=mask,
  )
  return jax.tree.map(jnp.asarray, transitions)


def returns_by_definition(r, discount, v, mask, num_steps):
  """Discounted rewards of at most `num_steps` steps, then the value."""
  expected = np.zeros(r.shape)
  for begin in np.flatnonzero(mask):
    weight, t = 1.0, begin
    while True:
      expected[begin] += weight * r[t]
      weight *= discount[t]
      t += 1
      if t == len(r) or not mask[t] or t - begin == num_steps:
        break
    expected[begin] += weight * v[t - 1]
  return expected
