"""Speed of PPO in the device runtime beside PureJaxRL's `ppo.py`.

    uv run --with gymnax --with distrax --with flax benchmarks/device.py \
      --purejaxrl=PATH

PATH is a clone. Calls take turns in one process, and ours has its extras and
episode statistics.
"""

import argparse
import collections
import functools
import statistics
import time

import common
import jax
from rivals import purejaxrl_minatar

from ftwax import compilation
from ftwax.agents import ppo
from ftwax.environments import functional, jax_adapters
from ftwax.networks import torsos
from ftwax.population import population_config, seating
from ftwax.replay import replay_options
from ftwax.runtime.device import (
  compiled_arena,
  loop,
  sizes,
)


def make_loop(agent, config, game, num_members, num_games):
  """Returns the loop of a population of agents in a game."""
  network = config.make_network(game.spec)
  seats = seating.make_seating(game.teams, num_members, num_games)
  return loop.Loop(
    arena=compiled_arena.make_arena(game, seats),
    actor=config.make_policy(network, game.spec),
    learner=config.make_learner_core(network, game.spec),
    replay=None,
    config=population_config.PopulationConfig(
      num_members, exploits=num_members > 1
    ),
    sizes=sizes.Sizes(
      config.sequence_length,
      seats.seats_per_member,
      config.batch_size,
      num_members,
    ),
  )


class Agent:
  """The compiled loop of an agent."""

  def __init__(
    self, agent, config, environment, num_members=1, num_iterations=1
  ):
    """Compiles calls of 8,192 steps, or of some iterations if that is more.

    Each member has as many environments as a batch.
    """
    made = self._loop = make_loop(
      agent,
      config,
      functional.as_game(environment),
      num_members,
      num_members * config.batch_size,
    )
    self.num_iterations = max(
      num_iterations, 8192 // made.sizes.steps_per_iteration
    )
    self.num_steps = self.num_iterations * made.sizes.steps_per_iteration
    self.state = jax.jit(made.init)(jax.random.PRNGKey(0))
    self._call = compilation.jit(
      functools.partial(made.call, self.num_iterations), donate_argnums=0
    )

  def run(self):
    """Makes one call and fetches its report to the host."""
    self.state, report = self._call(self.state)
    return jax.device_get(report)

  def count_actions(self):
    """Returns the number of actions of a call; resets take steps, too."""
    return int(self.run().episodes.moved.sum())


def measure_in_turn(calls, num_steps, seconds, rounds):
  """Returns the steps of each call in each round, by name.

  They are steps in a second of the processor, since other work on the machine
  would disturb one call and not the other.

  Args:
    calls: the calls, by name, timed alternately.
    num_steps: number of steps of a call, by name.
    seconds: duration of each measurement in a round.
    rounds: number of rounds.
  """
  speeds = collections.defaultdict(list)
  for _ in range(rounds):
    for name, call in calls.items():
      time_s = common.measure(
        call, seconds=seconds, warmup=1, clock=time.process_time
      ).median
      speeds[name].append(num_steps[name] / time_s)
  return speeds


def describe_ratio(ours, theirs):
  """Returns the median ratio of speeds of the same rounds, and its range."""
  ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
  median = statistics.median(ratios)
  return f'{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})'


def describe_speeds(speeds):
  """Returns the median speeds of two calls, and their ratio."""
  medians = [f'{statistics.median(each):,.0f}' for each in speeds.values()]
  return [*medians, describe_ratio(*speeds.values())]


# Sizes of PureJaxRL's `ppo.py`; those of its example for MinAtar are larger.
_CART_POLE = {'NUM_ENVS': 4, 'NUM_MINIBATCHES': 4}
_CONSTANT_RATE = {'LR': 5e-4, 'ANNEAL_LR': False}


def make_pair(path, own, num_agents, num_iterations, core=None):
  """Makes PPO of the sizes of PureJaxRL, ours and theirs.

  Args:
    path: a clone of PureJaxRL.
    own: settings that differ from those of its example for MinAtar.
    num_agents: of each.
    num_iterations: of a call, at least.
    core: ours for its `ppo_rnn.py`; None for `ppo.py`, without memory.

  Returns:
    Our agent, and a function of keys that trains theirs for as many steps.
  """
  settings = {**purejaxrl_minatar.SETTINGS, **_CONSTANT_RATE, **own}
  config = ppo.PPOConfig(
    core=core or 'feed_forward',
    sequence_length=settings['NUM_STEPS'],
    batch_size=settings['NUM_ENVS'],
    queue=replay_options.Queue(max_size=settings['NUM_ENVS']),
    num_epochs=settings['UPDATE_EPOCHS'],
    num_minibatches=settings['NUM_MINIBATCHES'],
    value_clip=settings['CLIP_EPS'],
  )
  if core is None:
    config = config.replace(
      skip_connection=False,
      torso=torsos.Torso(hidden_sizes=(64,)),
      separate_value=True,
    )
  environment = jax_adapters.make(f'gymnax:{own["ENV_NAME"]}')
  agent = Agent(ppo, config, environment, num_agents, num_iterations)
  settings['TOTAL_TIMESTEPS'] = agent.num_steps // num_agents
  rival = purejaxrl_minatar.import_purejaxrl(path, 'ppo_rnn' if core else 'ppo')
  return agent, jax.vmap(rival.make_train(settings))


def compare_to_purejaxrl(path, seconds, rounds):
  """Prints our PPO beside PureJaxRL's, on gymnax's games."""
  rows = []
  for name, own, num_agents in (
    ('CartPole-v1', _CART_POLE, 1),
    ('CartPole-v1', _CART_POLE, 8),
    ('Breakout-MinAtar', {}, 1),
  ):
    # Theirs initializes the network in each call.
    agent, train = make_pair(path, {**own, 'ENV_NAME': name}, num_agents, 8)
    rival = jax.jit(train)
    keys = jax.random.split(jax.random.PRNGKey(0), num_agents)
    calls = {
      'device runtime': agent.run,
      'PureJaxRL': lambda keys=keys, run=rival: jax.block_until_ready(
        run(keys)
      ),
    }
    num_steps = {
      'device runtime': agent.count_actions(),
      'PureJaxRL': agent.num_steps,
    }
    speeds = measure_in_turn(calls, num_steps, seconds, rounds)
    rows.append([name, num_agents, *describe_speeds(speeds)])
  common.print_table(
    'PPO with the sizes of PureJaxRL, 4 epochs, MLP 64 and 64 for each of'
    ' policy and value, steps in a second of the processor',
    ['', 'agents', 'device runtime', 'PureJaxRL', 'ratio'],
    rows,
  )


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--seconds', type=float, default=5.0)
  parser.add_argument('--rounds', type=int, default=5)
  parser.add_argument('--purejaxrl', required=True, help='Clone of PureJaxRL.')
  args = parser.parse_args()
  print(common.machine_line())
  compare_to_purejaxrl(args.purejaxrl, args.seconds, args.rounds)


if __name__ == '__main__':
  main()
