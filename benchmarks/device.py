"""Speed of the device runtime, shares of its time, and alternatives.

    uv run --with gymnax benchmarks/device.py
    uv run --with gymnax --with distrax --with flax benchmarks/device.py \
      --tables purejaxrl --purejaxrl=PATH

Everything takes turns in one process: our PPO (with extras and episode
statistics) and one written by hand for the same environment and network
(`handwritten.py`); the same and PureJaxRL's `ppo.py`, as it is, in a clone; the
shares of an iteration of IMPALA; the cost of checking timesteps; on Python
3.10, whole runs in the local and in the device runtime, with three seeds; and a
population of small FTW agents by `vmap` against one member with as many games.
`--tables` selects.
"""

import argparse
import collections
import functools
import importlib.util
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types
from unittest import mock

import common
import handwritten
import jax
import jax.numpy as jnp

from ftwax.agents import ftw, impala, ppo
from ftwax.agents.actor_critic import learning
from ftwax.environments import (
  capture_the_flag,
  catch,
  functional,
  gymnax_adapter,
  memory_chain,
  validation,
)
from ftwax.population import population_config, seating
from ftwax.runtime import experiment
from ftwax.runtime.device import (
  compiled_arena,
  loop,
  sizes,
)

_NUM_ENVIRONMENTS = 32


def make_config(core):
  """Returns IMPALA's config, one update of all environments an iteration."""
  return impala.IMPALAConfig.atari_paper(
    core=core,
    hidden_size=256 if core == 'lstm' else 64,
    batch_size=_NUM_ENVIRONMENTS,
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
    self._call = jax.jit(
      functools.partial(made.call, self.num_iterations), donate_argnums=0
    )

  def run(self):
    """Makes one call and fetches its report to the host."""
    self.state, report = self._call(self.state)
    return jax.device_get(report)

  def count_actions(self):
    """Returns the number of actions of a call; resets take steps, too."""
    return int(self.run().episodes.moved.sum())


class Halves(Agent):
  """The loop of an agent, and its two halves separately."""

  def __init__(self, agent, config, environment):
    """Compiles the loop and its halves."""
    super().__init__(agent, config, environment)
    made = self._loop
    self._act = jax.jit(made.act)
    _, (trajectories, _) = self._act(self.state.training, self.state.rollout)
    self._trajectories = jax.tree.map(
      lambda leaf: leaf.squeeze(2),
      trajectories._replace(recurrent_state=()),
    )._replace(
      recurrent_state=jax.tree.map(
        lambda leaf: leaf.squeeze(1), trajectories.recurrent_state
      )
    )
    self._member = jax.tree.map(lambda leaf: leaf[0], self.state.training)
    self._learn = jax.jit(
      functools.partial(
        learning.learn,
        made.learner,
        None,
        made.sizes.num_updates,
      )
    )

  def act(self):
    """Runs the rollout of one iteration."""
    jax.block_until_ready(self._act(self.state.training, self.state.rollout))

  def learn(self):
    """Runs the update of one iteration."""
    jax.block_until_ready(self._learn(self._member, (), self._trajectories))


def make_rival(environment, config, num_iterations):
  """Returns a call of the handwritten PPO, with the agent's sizes."""
  init, call = handwritten.make(
    environment,
    (*config.vector_hidden_sizes, config.hidden_size),
    handwritten.Sizes(
      _NUM_ENVIRONMENTS,
      config.sequence_length,
      config.num_epochs,
      config.num_minibatches,
    ),
    num_iterations,
  )
  state = jax.jit(init)(jax.random.PRNGKey(0))
  call = jax.jit(call, donate_argnums=0)

  def run():
    nonlocal state
    state, mean_return = call(state)
    jax.device_get(mean_return)

  return run


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


def compare_to_rival(seconds, rounds):
  """Prints our PPO beside handwritten PPO, both without a recurrent core."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    sequence_length=32,
    batch_size=_NUM_ENVIRONMENTS,
    num_epochs=4,
    num_minibatches=4,
  )
  # By hand, a reset is part of a step. Ours takes a separate step, which is not
  # counted: one in ten on catch, one in a hundred and one on the chain.
  environments = {
    'catch': catch.make(),
    'memory chain of 100': memory_chain.make(99),
  }
  if importlib.util.find_spec('gymnax'):
    environments |= {
      name: gymnax_adapter.make(name)
      for name in ('CartPole-v1', 'Breakout-MinAtar')
    }
  rows = []
  for name, environment in environments.items():
    agent = Agent(ppo, config, environment)
    calls = {
      'device runtime': agent.run,
      'by hand': make_rival(environment, config, agent.num_iterations),
    }
    num_steps = {
      'device runtime': agent.count_actions(),
      'by hand': agent.num_steps,
    }
    speeds = measure_in_turn(calls, num_steps, seconds, rounds)
    rows.append([name, *describe_speeds(speeds)])
  common.print_table(
    'PPO, 32 environments, T = 32, MLP 64 and 64, 4 epochs of 4 minibatches,'
    ' learning included, steps in a second of the processor',
    ['', 'device runtime', 'by hand', 'ratio'],
    rows,
  )


# PureJaxRL's settings, in its file and for its MinAtar example.
_CART_POLE = {'NUM_ENVS': 4, 'NUM_STEPS': 128, 'NUM_MINIBATCHES': 4}
_MINATAR = {'NUM_ENVS': 64, 'NUM_STEPS': 128, 'NUM_MINIBATCHES': 8}
_PUREJAXRL = {
  'LR': 5e-4,
  'UPDATE_EPOCHS': 4,
  'GAMMA': 0.99,
  'GAE_LAMBDA': 0.95,
  'CLIP_EPS': 0.2,
  'ENT_COEF': 0.01,
  'VF_COEF': 0.5,
  'MAX_GRAD_NORM': 0.5,
  'ACTIVATION': 'relu',
  'ANNEAL_LR': False,
}


def import_purejaxrl(path):
  """Imports PureJaxRL's `ppo.py` from a clone."""
  # Its wrappers import what only its other programs use.
  unused = {
    'brax': {'envs': None},
    'brax.envs': {},
    'brax.envs.wrappers': {},
    'brax.envs.wrappers.training': {
      'EpisodeWrapper': None,
      'AutoResetWrapper': None,
    },
    'navix': {},
  }
  for name, contents in unused.items():
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules.setdefault(name, module)
  sys.path.insert(0, str(pathlib.Path(path) / 'purejaxrl'))
  return importlib.import_module('ppo')


def compare_to_purejaxrl(path, seconds, rounds):
  """Prints our PPO beside PureJaxRL's, on gymnax's games."""
  theirs, rows = import_purejaxrl(path), []
  for name, own, num_agents in (
    ('CartPole-v1', _CART_POLE, 1),
    ('CartPole-v1', _CART_POLE, 8),
    ('Breakout-MinAtar', _MINATAR, 1),
  ):
    settings = {**_PUREJAXRL, **own, 'ENV_NAME': name}
    config = ppo.PPOConfig(
      core='feed_forward',
      skip_connection=False,
      vector_hidden_sizes=(64,),
      separate_value=True,
      sequence_length=settings['NUM_STEPS'],
      batch_size=settings['NUM_ENVS'],
      max_queue_size=settings['NUM_ENVS'],
      num_epochs=settings['UPDATE_EPOCHS'],
      num_minibatches=settings['NUM_MINIBATCHES'],
      value_clip=settings['CLIP_EPS'],
    )
    # Theirs initializes the network in each call.
    agent = Agent(ppo, config, gymnax_adapter.make(name), num_agents, 8)
    settings['TOTAL_TIMESTEPS'] = agent.num_steps // num_agents
    rival = jax.jit(jax.vmap(theirs.make_train(settings)))
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


def print_shares(seconds):
  """Prints the shares of acting and learning in an iteration."""
  rows = []
  for core in ('feed_forward', 'lstm'):
    agent = Halves(impala, make_config(core), catch.make())
    whole = common.measure(agent.run, seconds=seconds).median
    iteration = whole / agent.num_iterations
    acting = common.measure(agent.act, seconds=seconds).median
    learning = common.measure(agent.learn, seconds=seconds).median
    rows.append(
      [
        core,
        f'{agent.num_steps / whole:,.0f}',
        f'{1e3 * iteration:.2f} ms',
        f'{100 * acting / iteration:.0f}%',
        f'{100 * learning / iteration:.0f}%',
      ]
    )
  common.print_table(
    'One iteration on catch; the halves, timed alone, need not add up to it',
    ['core', 'steps/s', 'iteration', 'acting', 'learning'],
    rows,
  )


def compare_checks(seconds, rounds):
  """Prints speeds with and without the checks of timesteps."""

  def find_none(fields, timesteps):
    num_steps = len(timesteps.reward) - 1
    num_demands = sum(len(field.demands) for field in fields)
    return jnp.zeros((num_steps, num_demands), bool)

  environments = {
    'catch': catch.make(),
    'memory chain of 100': memory_chain.make(99),
  }
  configs = {
    'small MLP': make_config('feed_forward'),
    'defaults': impala.IMPALAConfig(batch_size=_NUM_ENVIRONMENTS),
  }
  rows = []
  for (name, environment), (agent, config) in itertools.product(
    environments.items(), configs.items()
  ):
    checked = Agent(impala, config, environment)
    with mock.patch.object(validation, 'find_faults', find_none):
      unchecked = Agent(impala, config, environment)
      unchecked.run()
    speeds = measure_in_turn(
      {'checked': checked.run, 'unchecked': unchecked.run},
      {'checked': checked.num_steps, 'unchecked': unchecked.num_steps},
      seconds,
      rounds,
    )
    rows.append([name, agent, *describe_speeds(speeds)])
  common.print_table(
    'Checks of timesteps: steps/s of IMPALA',
    ['environment', 'agent', 'checked', 'unchecked', 'ratio'],
    rows,
  )


def make_catch(seed):
  """Makes catch; its random keys come from the run."""
  del seed
  return catch.make()


def run_catch(runtime, replay, seed, num_steps):
  """Runs IMPALA on JAX catch; startup and compilation are not counted."""
  from ftwax.runtime import runs

  config = impala.IMPALAConfig.atari_paper(batch_size=16).replace(
    learning_rate=1e-3, rms_prop_epsilon=1e-3
  )
  with tempfile.TemporaryDirectory() as directory:
    return runs.run_experiment(
      experiment.ExperimentConfig(
        name='catch',
        agent=config,
        environment=make_catch,
        max_num_actor_steps=num_steps,
        num_environments=_NUM_ENVIRONMENTS,
        seed=seed,
        replay=replay,
      ),
      runtime=runtime,
      run_dir=f'{directory}/run',
    )


# Pairs of runtime and replay in one process.
_RUNTIMES = (('local', 'reverb'), ('local', 'functional'), ('device', None))

# A run that ends after its first steps, started like an experiment.
_FIRST_STEPS = """
import functools, sys, tempfile
from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.runtime import experiment, runs
config = impala.IMPALAConfig.atari_paper(batch_size=16)
with tempfile.TemporaryDirectory() as directory:
  runs.run_experiment(
    experiment.ExperimentConfig(
      agent=config,
      environment=lambda seed: catch.make(),
      max_num_actor_steps=1,
      replay=sys.argv[2] or None,
    ),
    runtime=sys.argv[1],
    run_dir=directory + '/run',
  )
"""


def time_start(runtime, replay):
  """Returns the seconds from the start of a process to its first steps."""
  start = time.monotonic()
  subprocess.run(
    [sys.executable, '-c', _FIRST_STEPS, runtime, replay or ''],
    capture_output=True,
    check=True,
  )
  return time.monotonic() - start


def compare_runtimes(num_steps, seeds):
  """Prints speed, score and startup time of whole runs that take turns."""
  has_reverb = sys.version_info < (3, 11)
  runtimes = [each for each in _RUNTIMES if has_reverb or each[1] != 'reverb']
  results = [
    [run_catch(*each, seed, num_steps) for each in runtimes]
    for seed in range(seeds)
  ]
  speeds = [
    [each.counts.actor_steps / each.counts.seconds for each in row]
    for row in results
  ]
  rows = []
  for index, (runtime, replay) in enumerate(runtimes):
    starts = [time_start(runtime, replay) for _ in range(3)]
    rows.append(
      [
        f'{runtime}, {replay}' if replay else runtime,
        f'{statistics.median(row[index] for row in speeds):,.0f}',
        f'{statistics.median(row[index] / row[0] for row in speeds):.2f}',
        f'{statistics.median(starts):.1f}',
        *(f'{row[index].mean_return:.3f}' for row in results),
      ]
    )
  common.print_table(
    f'The same experiment (IMPALA, LSTM 256) in one process: {num_steps:,}'
    ' steps, mean return of the last episodes (best: 1)',
    [
      'runtime',
      'steps/s',
      'times the first',
      'start, s',
      *(f'seed {seed}' for seed in range(seeds)),
    ],
    rows,
  )


def make_round(num_members, num_games):
  """Returns a function that plays a round, and its number of actions."""
  game = capture_the_flag.make(capture_the_flag.CaptureTheFlagConfig())
  batch_size = 4 * num_games // num_members
  config = ftw.FTWConfig.paper(
    hidden_size=64,
    latent_size=64,
    vector_hidden_sizes=(64,),
    head_hidden_size=64,
    use_pixel_control=False,
    use_reward_prediction=False,
    sequence_length=20,
    batch_size=batch_size,
    max_queue_size=batch_size,
  )
  made = make_loop(ftw, config, game, num_members, num_games)
  state = jax.jit(made.init)(jax.random.PRNGKey(0))
  call = jax.jit(functools.partial(made.call, 5), donate_argnums=0)
  begin = jax.jit(made.begin_round, donate_argnums=0)

  def run():
    nonlocal state
    state, report = call(state)
    state = begin(state)
    return jax.device_get(report)

  return run, int(run().episodes.moved.sum())


def compare_populations(seconds, rounds, sizes):
  """Prints populations beside one member with as many games."""
  rows = []
  for num_members in sizes:
    num_games = 4 * num_members
    many, num_steps = make_round(num_members, num_games)
    one, _ = make_round(1, num_games)
    speeds = measure_in_turn(
      {'many': many, 'one': one},
      {'many': num_steps, 'one': num_steps},
      seconds,
      rounds,
    )
    rows.append([num_members, num_games, *describe_speeds(speeds)])
  common.print_table(
    'Capture the flag, 2 against 2, features, RPTH 64, T = 20: player steps/s',
    ['members', 'games', 'population', 'one member', 'ratio'],
    rows,
  )


def main():
  """Prints all tables."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--seconds', type=float, default=5.0)
  parser.add_argument('--rounds', type=int, default=5)
  parser.add_argument('--num_steps', type=int, default=400_000)
  parser.add_argument('--seeds', type=int, default=3)
  parser.add_argument('--members', type=int, nargs='*', default=[2, 8])
  parser.add_argument('--purejaxrl', help='Clone of PureJaxRL.')
  tables = (
    'rival', 'purejaxrl', 'shares', 'checks', 'runtimes', 'populations'
  )  # fmt: skip
  parser.add_argument('--tables', nargs='*', choices=tables, default=tables)
  args = parser.parse_args()
  print(common.machine_line())
  if 'rival' in args.tables:
    compare_to_rival(args.seconds, args.rounds)
  if 'purejaxrl' in args.tables and args.purejaxrl:
    compare_to_purejaxrl(args.purejaxrl, args.seconds, args.rounds)
  if 'shares' in args.tables:
    print_shares(args.seconds)
  if 'checks' in args.tables:
    compare_checks(args.seconds, args.rounds)
  if 'runtimes' in args.tables:
    compare_runtimes(args.num_steps, args.seeds)
  if 'populations' in args.tables:
    compare_populations(args.seconds, args.rounds, args.members)


if __name__ == '__main__':
  main()
