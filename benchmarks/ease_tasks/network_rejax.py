import jax
import rejax
from flax import linen as nn
from rejax import networks


class Torso(nn.Module):
  @nn.compact
  def __call__(self, observation):
    features = nn.relu(nn.LayerNorm()(nn.Dense(128)(observation)))
    return nn.relu(nn.Dense(64)(features))


class Actor(networks.DiscretePolicy):
  def setup(self):
    self.features = Torso()
    self.action_logits = nn.Dense(self.action_dim)


class Critic(nn.Module):
  @nn.compact
  def __call__(self, observation):
    return nn.Dense(1)(Torso()(observation)).squeeze(1)


agent = rejax.PPO.create(
  env='CartPole-v1', total_timesteps=10_000, eval_freq=10_000
)
agent = agent.replace(actor=Actor(2, (), nn.relu), critic=Critic())
_, (_, returns) = jax.jit(agent.train)(jax.random.PRNGKey(0))
print(returns[-1].mean())
