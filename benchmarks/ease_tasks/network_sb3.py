from stable_baselines3 import PPO
from stable_baselines3.common import torch_layers
from stable_baselines3.common.evaluation import evaluate_policy
from torch import nn


class Torso(torch_layers.BaseFeaturesExtractor):
  def __init__(self, observation_space):
    super().__init__(observation_space, features_dim=64)
    num_inputs = observation_space.shape[0]
    self._layers = nn.Sequential(
      nn.Linear(num_inputs, 128),
      nn.LayerNorm(128),
      nn.ReLU(),
      nn.Linear(128, 64),
      nn.ReLU(),
    )

  def forward(self, observations):
    return self._layers(observations)


options = {'features_extractor_class': Torso, 'net_arch': []}
agent = PPO('MlpPolicy', 'CartPole-v1', policy_kwargs=options).learn(10_000)
print(evaluate_policy(agent, agent.get_env()))
