"""Speed of acting: alone, and with Reverb on one core.

    uv run benchmarks/acting.py

IMPALA's LSTM of 256 units, with an MLP torso on catch's observation and the
shallow torso on 84x84x3 frames. Times are of the processor.
"""

import os

# Pin to one core first, since libraries make thread pools when imported.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import itertools  # noqa: E402
import time  # noqa: E402

import common  # noqa: E402
import jax  # noqa: E402
import parts  # noqa: E402

from ftwax.agents import impala  # noqa: E402
from ftwax.agents.actor_critic import acting  # noqa: E402

_SECONDS = 5.0
_QUEUE = impala.IMPALAConfig.atari_paper(max_queue_size=1_000_000)


def measure_select(spec, batch_size):
  """Measures the compiled policy alone, from batch to actions."""
  network = _QUEUE.make_network(spec)
  core = acting.make_actor_core(network, spec)
  select = jax.jit(core.select_action)
  agent = parts.Agent(spec, _QUEUE, 1)
  (variables,) = agent.learner.get_variables(['policy'])
  agent.close()
  state = core.init(jax.random.PRNGKey(0), batch_size)
  timesteps = itertools.cycle(parts.random_timesteps(spec, batch_size))

  def call():
    nonlocal state
    action, state = select(variables, next(timesteps), state)
    jax.block_until_ready(action)

  return common.measure(call, seconds=_SECONDS, clock=time.process_time)


def measure_select_and_observe(spec):
  """Measures selecting, observing and writing trajectories at batch 1."""
  agent = parts.Agent(spec, _QUEUE, 1)
  timesteps = itertools.cycle(parts.random_timesteps(spec, 1))
  agent.actor.observe_first(next(timesteps))

  def call():
    for _ in range(_QUEUE.sequence_length):  # Each call writes one item.
      agent.actor.update()
      action = agent.actor.select_action(None)
      agent.actor.observe(action, next(timesteps))

  measurement = common.measure(call, seconds=_SECONDS, clock=time.process_time)
  agent.close()
  return measurement, _QUEUE.sequence_length


def main():
  """Prints both tables."""
  print(common.machine_line())
  specs = {'10x5 floats': parts.catch_spec(), '84x84x3': common.pixel_spec()}
  rows = []
  for name, spec in specs.items():
    for batch_size in (1, 8, 64):
      median = measure_select(spec, batch_size).median
      rows.append(
        [name, batch_size, f'{1e6 * median:.0f}', f'{batch_size / median:,.0f}']
      )
  common.print_table(
    'Acting on one core, seconds of the processor',
    ['observation', 'batch', 'us/call', 'steps/s'],
    rows,
  )
  rows = []
  for name, spec in specs.items():
    measurement, num_steps = measure_select_and_observe(spec)
    rows.append([name, f'{num_steps / measurement.median:,.0f}'])
  common.print_table(
    'Select, observe and write to Reverb, batch 1, in seconds of the processor',
    ['observation', 'steps/s'],
    rows,
  )


if __name__ == '__main__':
  main()
