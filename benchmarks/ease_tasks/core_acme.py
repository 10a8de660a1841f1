import acme
import gym
import haiku as hk
import jax
from acme import specs, wrappers
from acme.agents.jax import impala
from acme.jax import networks


def make_core():
  return hk.DeepRNN(
    [hk.Linear(32), jax.nn.relu, hk.GRU(64), networks.PolicyValueHead(2)]
  )


class IntegerActions(gym.ActionWrapper):
  def action(self, action):
    return int(action)


env = wrappers.GymWrapper(IntegerActions(gym.make('CartPole-v1')))
env = wrappers.SinglePrecisionWrapper(env)
agent = impala.IMPALA(
  specs.make_environment_spec(env),
  forward_fn=lambda inputs, state: make_core()(inputs, state),
  unroll_fn=lambda inputs, state: hk.static_unroll(make_core(), inputs, state),
  initial_state_fn=lambda: make_core().initial_state(None),
  sequence_length=20,
  sequence_period=19,
)
loop = acme.EnvironmentLoop(env, agent)
loop.run(num_steps=10_000)
print([loop.run_episode()['episode_return'] for _ in range(10)])
