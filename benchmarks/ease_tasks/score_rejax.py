import pathlib

import jax
import rejax
from flax import serialization

agent = rejax.PPO.create(
  env='CartPole-v1', total_timesteps=5_000, skip_initial_evaluation=True
)
train = jax.jit(lambda state: agent.train(train_state=state))
state = jax.jit(agent.init_state)(jax.random.PRNGKey(0))
for _ in range(30):
  state, (_, returns) = train(state)
  if returns[-1].mean() >= 475:
    break
pathlib.Path('cartpole').write_bytes(serialization.to_bytes(state.actor_ts))
