# /// script
# requires-python = "==3.10.*"
# dependencies = [
#   "bsuite==0.3.6",
#   "chex==0.1.82",
#   "distrax==0.1.4",
#   "dm-acme==0.4.0",
#   "dm-env==1.6",
#   "dm-haiku==0.0.10",
#   "dm-launchpad==0.5.0",
#   "dm-reverb==0.7.3",
#   "flax==0.7.0",
#   "gym==0.26.2",
#   "jax==0.4.13",
#   "jaxlib==0.4.13",
#   "numpy==1.25.2",
#   "optax==0.1.5",
#   "protobuf==3.19.6",
#   "rlax==0.1.5",
#   "scipy==1.11.4",
#   "tensorflow-cpu==2.8.4",
#   "tensorflow-probability==0.15.0",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: acme 0.4.0's JAX IMPALA on bsuite catch, acting and learning.

A standalone script: `uv run` reads the block above and builds a separate
environment, without touching the project's. Prints one JSON line; see the
README in this directory.

The agent is assembled from acme's parts like acme's own single-process agent
(`acme.agents.jax.impala.IMPALA`), but with the sequences and the optimizer of
acme's `IMPALABuilder`: sequences span the ends of episodes. acme's class pads
every nine-step episode to a whole sequence, which made it slower, and it did
not learn in the given time.
"""

# ruff: noqa: E402, I001

import argparse
import json
import os
import time
import types

import jax
import jax.numpy as jnp

# acme 0.4.0 needs names that JAX has removed since; nothing else changes.
jax.xla = types.SimpleNamespace(Device=jax.Device, DeviceArray=jax.Array)
jax.pxla = types.SimpleNamespace(ShardedDeviceArray=jax.Array)
jax.tree_map = jax.tree_util.tree_map
jnp.DeviceArray = jax.Array

import rlax  # noqa: F401  (newer versions must come before Reverb)
import acme
import haiku as hk
import numpy as np
import optax
import reverb
from acme import specs, wrappers
from acme.adders import reverb as reverb_adders
from acme.agents import agent as agent_lib
from acme.agents import replay
from acme.agents.jax import impala
from acme.agents.jax.impala import acting
from acme.jax import networks as networks_lib
from acme.jax import variable_utils
from acme.utils import loggers
from bsuite.environments import catch

TORSO_SIZE = 64
LSTM_SIZE = 256

# Number of keys that an actor splits at once; splitting one by one costs a few
# percent of its speed.
NUM_RESERVED_KEYS = 1000


class CatchNetwork(hk.RNNCore):
  """A one-layer torso, an LSTM, a policy and a value head."""

  def __init__(self, num_actions):
    super().__init__(name='catch_network')
    mlp = hk.nets.MLP([TORSO_SIZE], activate_final=True)
    self._torso = hk.Sequential([hk.Flatten(preserve_dims=-2), mlp])
    self._core = hk.LSTM(LSTM_SIZE)
    self._head = networks_lib.PolicyValueHead(num_actions)

  def __call__(self, inputs, state):
    """Returns `(logits, value)` of one step and the next state."""
    hidden, state = self._core(self._torso(inputs), state)
    return self._head(hidden), state

  def initial_state(self, batch_size):
    """Returns the LSTM's zero state."""
    return self._core.initial_state(batch_size)

  def unroll(self, inputs, state):
    """Returns `(logits, values)` of a sequence, `[T, ...]`, and the state."""
    # Reverb returns the state as its own tuple type, which a rolled scan would
    # refuse; a static unroll would accept it but is slower.
    state = hk.LSTMState(*state)
    hidden, state = hk.dynamic_unroll(self._core, self._torso(inputs), state)
    return self._head(hidden), state


class QueueAgent(agent_lib.Agent):
  """Acts, and learns whenever the queue holds a batch."""

  def __init__(self, actor, learner, replay_queue):
    super().__init__(actor, learner, 0, 1.0)
    # Also keeps the Reverb server alive.
    self._replay_queue = replay_queue
    self.num_updates = 0

  def update(self):
    """Learns from all available batches, then updates the actor's variables."""
    learned = False
    while self._replay_queue.can_sample():
      self._learner.step()
      self.num_updates += 1
      learned = True
    if learned:
      self._actor.update()


def make_networks(environment_spec):
  """Returns acme's bundle of pure functions for `CatchNetwork`."""

  def network():
    return CatchNetwork(environment_spec.actions.num_values)

  return impala.make_haiku_networks(
    environment_spec,
    forward_fn=lambda inputs, state: network()(inputs, state),
    initial_state_fn=lambda size=None: network().initial_state(size),
    unroll_fn=lambda inputs, state: network().unroll(inputs, state),
  )


def make_replay(environment_spec, networks, config):
  """Returns acme's queue, with an adder that spans the ends of episodes."""
  params = networks.initial_state_init_fn(jax.random.PRNGKey(0))
  num_actions = environment_spec.actions.num_values
  queue = replay.make_reverb_online_queue(
    environment_spec=environment_spec,
    extra_spec={
      'core_state': networks.initial_state_fn(params),
      'logits': np.ones((num_actions,), np.float32),
    },
    max_queue_size=config.max_queue_size,
    sequence_length=config.sequence_length,
    sequence_period=config.sequence_period,
    batch_size=config.batch_size,
  )
  queue.adder = reverb_adders.SequenceAdder(
    client=reverb.Client(f'localhost:{queue.server.port}'),
    period=config.sequence_period,
    sequence_length=config.sequence_length,
    pad_end_of_episode=False,
    break_end_of_episode=False,
  )
  return queue


def make_learner(networks, queue, config, key):
  """Returns acme's learner with the builder's optimizer."""
  optimizer = optax.chain(
    optax.clip_by_global_norm(config.max_gradient_norm),
    optax.adam(
      config.learning_rate,
      b1=config.adam_momentum_decay,
      b2=config.adam_variance_decay,
    ),
  )
  return impala.IMPALALearner(
    networks=networks,
    iterator=queue.data_iterator,
    optimizer=optimizer,
    random_key=key,
    discount=config.discount,
    entropy_cost=config.entropy_cost,
    baseline_cost=config.baseline_cost,
    max_abs_reward=config.max_abs_reward,
    logger=loggers.NoOpLogger(),
  )


def make_agent(environment_spec, config):
  """Returns the whole agent: networks, replay, learner and actor."""
  learner_key, actor_key = jax.random.split(jax.random.PRNGKey(config.seed))
  networks = make_networks(environment_spec)
  queue = make_replay(environment_spec, networks, config)
  learner = make_learner(networks, queue, config, learner_key)
  actor = acting.IMPALAActor(
    forward_fn=jax.jit(networks.forward_fn, backend='cpu'),
    initial_state_init_fn=networks.initial_state_init_fn,
    initial_state_fn=networks.initial_state_fn,
    rng=hk.PRNGSequence(actor_key),
    adder=queue.adder,
    variable_client=variable_utils.VariableClient(learner, key='policy'),
  )
  return QueueAgent(actor, learner, queue)


def run(loop, should_stop):
  """Runs whole episodes until `should_stop()`; returns steps and returns."""
  num_steps, returns = 0, []
  while not should_stop():
    result = loop.run_episode()
    num_steps += result['episode_length']
    returns.append(float(result['episode_return']))
  return num_steps, returns


def measure(agent, loop, *, warmup_seconds, seconds):
  """Warms up, then returns rates and mean returns."""
  deadline = time.perf_counter() + warmup_seconds
  # The first update compiles.
  _, first_returns = run(
    loop, lambda: agent.num_updates >= 2 and time.perf_counter() > deadline
  )
  num_warmup_updates = agent.num_updates
  start = time.perf_counter()
  num_steps, returns = run(loop, lambda: time.perf_counter() > start + seconds)
  elapsed = time.perf_counter() - start
  return {
    'env_steps_per_second': num_steps / elapsed,
    'updates_per_second': (agent.num_updates - num_warmup_updates) / elapsed,
    'episode_return_first_100': float(np.mean(first_returns[:100])),
    'episode_return_last_100': float(np.mean(returns[-100:])),
  }


def parse_arguments():
  """Returns the command line's arguments."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--seconds', type=float, default=30.0)
  parser.add_argument('--warmup_seconds', type=float, default=5.0)
  parser.add_argument('--learning_rate', type=float, default=3e-3)
  parser.add_argument('--seed', type=int, default=0)
  return parser.parse_args()


def main():
  """Prints the report as one JSON line."""
  arguments = parse_arguments()
  hk.config.set(rng_reserve_size=NUM_RESERVED_KEYS)
  config = impala.IMPALAConfig(
    seed=arguments.seed,
    # Twenty steps to learn from and one to bootstrap from.
    sequence_length=21,
    sequence_period=20,
    learning_rate=arguments.learning_rate,
  )
  environment = wrappers.SinglePrecisionWrapper(catch.Catch(seed=config.seed))
  agent = make_agent(specs.make_environment_spec(environment), config)
  loop = acme.EnvironmentLoop(environment, agent, logger=loggers.NoOpLogger())
  report = measure(
    agent,
    loop,
    warmup_seconds=arguments.warmup_seconds,
    seconds=arguments.seconds,
  )
  report['config'] = {
    'agent': 'acme 0.4.0 JAX IMPALA, one process, one environment',
    'environment': 'bsuite catch 10x5',
    'jax': jax.__version__,
    'torso_size': TORSO_SIZE,
    'lstm_size': LSTM_SIZE,
    'batch_size': config.batch_size,
    'sequence_length': config.sequence_length,
    'sequence_period': config.sequence_period,
    'learning_rate': config.learning_rate,
    'seconds': arguments.seconds,
  }
  print(json.dumps(report), flush=True)
  # Reverb's writer would wait ten seconds for items that are never sampled.
  os._exit(0)


if __name__ == '__main__':
  main()
