from sb3_contrib import RecurrentPPO
from stable_baselines3.common.evaluation import evaluate_policy

agent = RecurrentPPO('MlpLstmPolicy', 'CartPole-v1').learn(10_000)
print(evaluate_policy(agent, agent.get_env()))
