import pathlib

import jax
import rejax
from flax import serialization
from rejax import evaluate

agent = rejax.PPO.create(env='CartPole-v1')
state = jax.jit(agent.init_state)(jax.random.PRNGKey(0))
saved = pathlib.Path('cartpole').read_bytes()
actor = serialization.from_bytes(state.actor_ts, saved)
act = agent.make_act(state.replace(actor_ts=actor))
key = jax.random.PRNGKey(1)
print(evaluate.evaluate(act, key, agent.env, agent.env_params, 20)[1].mean())
