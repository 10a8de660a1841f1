import jax
import rejax

agent = rejax.PPO.create(
  env='CartPole-v1', total_timesteps=10_000, eval_freq=10_000
)
keys = jax.random.split(jax.random.PRNGKey(0), 3)
_, (_, returns) = jax.jit(jax.vmap(agent.train))(keys)
print(returns[:, -1].mean(1))
