import jax
import jax.numpy as jnp
import rejax
from matplotlib import pyplot as plt

agent = rejax.PPO.create(
  env='CartPole-v1', total_timesteps=10_000, eval_freq=2_000
)


def train(rate, key):
  _, (_, returns) = agent.replace(learning_rate=rate).train(key)
  return returns.mean(-1)


rates = jnp.array([1e-4, 1e-3, 1e-2])
keys = jax.random.split(jax.random.PRNGKey(0), 3)
train = jax.vmap(jax.vmap(train, (None, 0)), (0, None))
for rate, returns in zip(rates, jax.jit(train)(rates, keys), strict=True):
  steps = agent.eval_freq * jnp.arange(returns.shape[1])
  plt.plot(steps, returns.mean(0), label=f'learning rate {rate:.0e}')
  plt.fill_between(steps, returns.min(0), returns.max(0), alpha=0.3)
plt.legend()
plt.savefig('sweep.png')
