import jax
import jax.numpy as jnp
import rejax
from flax import struct
from gymnax.environments import environment, spaces


@struct.dataclass
class State:
  position: jax.Array
  time: int


@struct.dataclass
class Params:
  max_steps_in_episode: int = 50


class Target(environment.Environment):
  """Move along a line to a point that is shown."""

  @property
  def default_params(self):
    return Params()

  def reset_env(self, key, params):
    position = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
    return position, State(position, 0)

  def step_env(self, key, state, action, params):
    moved = jnp.clip(state.position[0] + 0.1 * (action - 1), -2.0, 2.0)
    state = State(state.position.at[0].set(moved), state.time + 1)
    reward = 1.0 - jnp.abs(state.position[0] - state.position[1])
    done = state.time == params.max_steps_in_episode
    return state.position, state, reward, done, {}

  def observation_space(self, params):
    return spaces.Box(-2.0, 2.0, (2,))

  def action_space(self, params=None):
    return spaces.Discrete(3)


agent = rejax.PPO.create(env=Target(), total_timesteps=10_000, eval_freq=10_000)
_, (_, returns) = jax.jit(agent.train)(jax.random.PRNGKey(0))
print(returns[-1].mean())
