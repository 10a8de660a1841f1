import pathlib

import gymnasium
import jax
import rejax
from flax import serialization

agent = rejax.PPO.create(env='CartPole-v1')
state = jax.jit(agent.init_state)(jax.random.PRNGKey(0))
saved = pathlib.Path('cartpole').read_bytes()
actor = serialization.from_bytes(state.actor_ts, saved)
act = jax.jit(agent.make_act(state.replace(actor_ts=actor)))
env = gymnasium.make('CartPole-v1')
observation, _ = env.reset(seed=0)
key, total, done = jax.random.PRNGKey(1), 0.0, False
while not done:
  key, action_key = jax.random.split(key)
  action = int(act(observation, action_key))
  observation, reward, terminated, truncated, _ = env.step(action)
  total += reward
  done = terminated or truncated
print(total)
