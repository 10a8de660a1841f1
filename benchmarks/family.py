"""Compares updates of each agent of the family with updates written in rlax.

    uv run --with rlax benchmarks/family.py

Both learn from the same batch, gathered by the agent's own rollout, and take
turns in one process. A call makes some updates and returns what each of them
reports, as in a run: one update of a single stream takes less than the call of
a compiled function. Networks are small, so that any overhead of an agent beyond
the arithmetic would be visible. Both must have the same number of parameters.
"""

import argparse
import statistics
import time

import common
import jax
import optax
import rlax_updates

from ftwax import parts, types
from ftwax.agents import a2c, a3c, impala, ppo, unreal
from ftwax.environments import catch, functional
from ftwax.networks import cores
from ftwax.runtime.device import rollout

_HIDDEN_SIZE = 64
_PIXELS = 24
_UPDATES_PER_CALL = 10


def make_batch(agent, config, environment, network):
  """Returns a batch gathered by the untrained agent."""
  actor = config.make_policy(network, environment.spec)
  core = config.make_learner_core(network, environment.spec)
  vector = functional.vectorize(environment, config.batch_size)
  state = jax.jit(core.init)(jax.random.PRNGKey(0))
  start = rollout.start(
    *vector.reset(jax.random.PRNGKey(1)),
    actor.init(jax.random.PRNGKey(2), config.batch_size),
  )
  _, trajectory, _ = rollout.rollout(
    environment.spec,
    lambda state, action: (*vector.step(state, action), ()),
    actor.select_action,
    types.actor_variables(state),
    start,
    config.sequence_length,
  )
  # Those by hand compute values for targets once more, too.
  trajectory = trajectory._replace(value=None)
  if agent is not unreal:
    return core, state, types.LearnerBatch(trajectory)
  timestep = trajectory.timestep
  return (
    core,
    state,
    types.LearnerBatch(
      trajectory,
      types.ReplayBatch(trajectory, jax.numpy.bool_(True)),
      types.RewardPredictionBatch(
        timestep.observation[:3],
        timestep.reward[3],
        jax.numpy.bool_(True),
      ),
    ),
  )


def make_optimizer(config, values):
  """Returns the agent's optimizer with the given hyperparameters."""
  return optax.chain(
    optax.clip_by_global_norm(float(values.max_gradient_norm)),
    parts.bind(config, jax.tree.map(float, values)).optimizer.make(),
    optax.scale(-float(values.learning_rate)),
  )


def make_rival(agent, config, environment, batch):
  """Returns the number of parameters and a call of the rlax update."""
  spec = environment.spec
  sizes = rlax_updates.Sizes(
    num_actions=spec.actions.num_values,
    hidden_size=config.core.hidden_size,
    is_recurrent=isinstance(config.core, cores.LSTM),
    is_image=agent is unreal,
  )
  network = rlax_updates.make_network(sizes, spec.observations.shape)
  values = config.sample_hyperparameters(jax.random.PRNGKey(0))
  optimizer = make_optimizer(config, values)
  entropy_cost = float(values.entropy_cost)
  if agent is ppo:
    update = rlax_updates.make_ppo_update(
      network, optimizer, config, entropy_cost
    )
  else:
    loss = {
      a2c: lambda: rlax_updates.a2c_loss(entropy_cost),
      a3c: lambda: rlax_updates.a2c_loss(entropy_cost),
      impala: lambda: rlax_updates.impala_loss(entropy_cost),
      unreal: lambda: rlax_updates.unreal_loss(entropy_cost, 0.05),
    }[agent]()
    update = rlax_updates.make_update(network, loss, optimizer)
  key = jax.random.PRNGKey(0)
  params = network.init(key, batch)
  num_params = count(params)
  state = params, optimizer.init(params), key

  def step(state, _):
    *state, loss = update(*state, batch)
    return tuple(state), loss

  return num_params, make_call(step, state)


def make_call(step, state):
  """Returns a call that makes some updates and keeps the state."""
  updates = jax.jit(
    lambda state: jax.lax.scan(step, state, length=_UPDATES_PER_CALL),
    donate_argnums=0,
  )

  def call():
    nonlocal state
    state, _ = jax.block_until_ready(updates(state))

  return call


def make_ours(core, state, batch):
  """Returns the number of parameters and a call of the agent's update."""
  num_params = count(state.params)
  return num_params, make_call(
    lambda state, _: core.update(state, batch), state
  )


def count(params):
  """Returns the number of parameters."""
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def measure_pair(ours, rival, seconds, rounds):
  """Returns the least seconds of an update, and the median ratio of rounds."""
  times = [
    [
      common.measure(call, seconds=seconds, clock=time.process_time).median
      for call in (ours, rival)
    ]
    for _ in range(rounds)
  ]
  ratios = [by_hand / mine for mine, by_hand in times]
  least = (min(each) / _UPDATES_PER_CALL for each in zip(*times, strict=True))
  return *least, statistics.median(ratios)


def make_lines():
  """Returns the lines of the table: name, agent, config, environment."""
  small = {
    'sequence_length': 20,
    'batch_size': 32,
  }
  lines = []
  for core, made in (
    ('feed_forward', cores.FeedForward(_HIDDEN_SIZE)),
    ('lstm', cores.LSTM(_HIDDEN_SIZE, forget_bias=1.0)),
  ):
    for name, agent, config in (
      ('a2c', a2c, a2c.A2CConfig.paper(core=made, **small)),
      ('a3c', a3c, a3c.A3CConfig.paper(core=made, **small | {'batch_size': 1})),
      ('impala', impala, impala.IMPALAConfig.atari_paper(core=made, **small)),
      (
        'ppo',
        ppo,
        ppo.PPOConfig.atari_paper(core=core, num_epochs=4, **small),
      ),
    ):
      lines.append((name, agent, config, catch.make()))
  config = unreal.UNREALConfig.paper(**small)
  lines.append(('unreal', unreal, config, catch.make(_PIXELS, _PIXELS)))
  return lines


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--seconds', type=float, default=1.0)
  parser.add_argument('--rounds', type=int, default=7)
  parser.add_argument('--agents', nargs='*')
  args = parser.parse_args()
  print(common.machine_line())
  rows = []
  for name, agent, config, environment in make_lines():
    if args.agents and name not in args.agents:
      continue
    network = config.make_network(environment.spec)
    core, state, batch = make_batch(agent, config, environment, network)
    num_params, ours = make_ours(core, state, batch)
    num_by_hand, rival = make_rival(agent, config, environment, batch)
    if num_params != num_by_hand:
      raise ValueError(
        f'{name} has {num_params} parameters, by hand {num_by_hand}: must be'
        ' the same; make the networks agree.'
      )
    mine, by_hand, ratio = measure_pair(ours, rival, args.seconds, args.rounds)
    steps = config.batch_size * config.sequence_length
    rows.append(
      [
        name,
        type(config.core).__name__,
        f'{num_params:,}',
        f'{1e3 * mine:.2f}',
        f'{steps / mine:,.0f}',
        f'{steps / by_hand:,.0f}',
        f'{ratio:.2f}',
      ]
    )
  common.print_table(
    'Updates on catch, T = 20, core of 64; unreal on 24x24 pixels',
    ['agent', 'core', 'parameters', 'ms/update', 'steps/s', 'by hand', 'ratio'],
    rows,
  )


if __name__ == '__main__':
  main()
