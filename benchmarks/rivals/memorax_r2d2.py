# /// script
# requires-python = "==3.12.*"
# dependencies = ["memorax==1.0.1", "gymnax==0.0.9"]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: memorax's R2D2, with the settings of its example for CartPole.

Its schedules reach their ends with the run; learning starts after a fiftieth of
the steps, but not before its replay can be sampled. The greedy policy is scored
on the first episodes of 200 environments, after each tenth of the run. CPU
seconds are those of training alone, without its first part, which compiles.
"""

import argparse
import json
import resource

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from memorax.algorithms.r2d2 import R2D2, R2D2Config
from memorax.buffers import make_prioritised_episode_buffer
from memorax.networks import MLP, FeatureExtractor, Network, heads
from memorax.networks.sequence_models import RNN
from memorax.utils.wrappers import MaskObservationWrapper

NUM_PARTS = 10
NUM_EPISODES = 200
BATCH_SIZE, SEQUENCE_LENGTH, BUFFER_SIZE, NUM_ENVS = 32, 40, 50_000, 10
# Most steps of an episode.
LENGTHS = {'cart_pole': 500, 'cart_pole_hidden': 500, 'chain_15': 20}


def make_environment(task):
  if task == 'chain_15':
    env, params = gymnax.make('MemoryChain-bsuite')
    return env, params.replace(memory_length=15)
  env, params = gymnax.make('CartPole-v1')
  if task == 'cart_pole_hidden':
    env = MaskObservationWrapper(env, mask_dims=[0, 2])
  return env, params


def make_agent(env, env_params, num_steps):
  starts = max(num_steps // 50, BATCH_SIZE * SEQUENCE_LENGTH)
  config = R2D2Config(
    name='r2d2',
    learning_rate=3e-4,
    num_envs=NUM_ENVS,
    num_eval_envs=NUM_EPISODES,
    buffer_size=BUFFER_SIZE,
    gamma=0.99,
    tau=1.0,
    target_network_frequency=500,
    batch_size=BATCH_SIZE,
    start_e=1.0,
    end_e=0.05,
    exploration_fraction=0.5,
    learning_starts=starts,
    train_frequency=10,
    burn_in_length=10,
    sequence_length=SEQUENCE_LENGTH,
    n_step=3,
    priority_exponent=0.9,
    importance_sampling_exponent=0.6,
    double=True,
  )
  network = Network(
    feature_extractor=FeatureExtractor(
      observation_extractor=MLP(features=(64,))
    ),
    torso=RNN(cell=nn.GRUCell(features=64)),
    head=heads.DiscreteQNetwork(action_dim=env.action_space(env_params).n),
  )
  return R2D2(
    cfg=config,
    env=env,
    env_params=env_params,
    q_network=network,
    optimizer=optax.chain(
      optax.clip_by_global_norm(40.0), optax.adam(3e-4, eps=1e-5)
    ),
    buffer=make_prioritised_episode_buffer(
      max_length=BUFFER_SIZE,
      min_length=BATCH_SIZE * SEQUENCE_LENGTH,
      sample_batch_size=BATCH_SIZE,
      sample_sequence_length=SEQUENCE_LENGTH,
      add_batch_size=NUM_ENVS,
      add_sequences=True,
      priority_exponent=0.9,
    ),
    epsilon_schedule=optax.linear_schedule(1.0, 0.05, num_steps // 2, starts),
    beta_schedule=optax.linear_schedule(0.6, 1.0, num_steps),
  )


def evaluate(agent, key, state, length):
  """Returns the mean return of the first episode of each environment."""
  key, transitions = agent.evaluate(key, state, num_steps=length)
  rewards, dones = jnp.asarray(transitions.reward), transitions.done
  is_first = jnp.cumsum(dones, axis=0) - dones == 0
  return key, float((rewards * is_first).sum(axis=0).mean())


def cpu_seconds():
  used = resource.getrusage(resource.RUSAGE_SELF)
  return used.ru_utime + used.ru_stime


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--task', choices=LENGTHS, required=True)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--num_steps', type=int, default=40_000)
  args = parser.parse_args()
  env, env_params = make_environment(args.task)
  agent = make_agent(env, env_params, args.num_steps)
  key, state = agent.init(jax.random.key(args.seed))
  key, state = agent.warmup(key, state, num_steps=agent.cfg.learning_starts)
  part = (args.num_steps - agent.cfg.learning_starts) // NUM_PARTS
  part -= part % NUM_ENVS
  curve, seconds = [], []
  for _ in range(NUM_PARTS):
    before = cpu_seconds()
    key, state, _ = agent.train(key, state, num_steps=part)
    jax.block_until_ready(state)
    seconds.append(cpu_seconds() - before)
    # The policies of an evaluation are those of the state, which stays.
    key, score = evaluate(agent, key, state, LENGTHS[args.task])
    curve.append((int(state.step), score))
  print(
    json.dumps(
      {
        'score': curve[-1][1],
        'curve': curve,
        'steps_per_cpu_second': part / float(np.mean(seconds[1:])),
      }
    )
  )


if __name__ == '__main__':
  main()
