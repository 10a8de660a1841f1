"""Speed of the learner, and its waiting time for a full queue.

uv run benchmarks/learning.py
"""

import itertools
import time

import common
import jax
import parts

from ftwax.agents import impala

_NUM_BATCHES = 40


def measure_learner(spec, batch_size):
  """Measures updates, and the waits for data, on a queue filled in advance.

  Returns:
    Seconds of the processor per update, and the fraction of the time that was
    spent waiting.
  """
  config = impala.IMPALAConfig.atari_paper(
    batch_size=batch_size, max_queue_size=batch_size * _NUM_BATCHES
  )
  agent = parts.Agent(spec, config, batch_size)
  timesteps = itertools.cycle(parts.random_timesteps(spec, batch_size))
  agent.actor.observe_first(next(timesteps))
  action = agent.actor.select_action(None)
  for _ in range(config.sequence_length * _NUM_BATCHES):
    agent.actor.observe(action, next(timesteps))
  for _ in range(5):
    agent.learner.step()
  jax.block_until_ready(agent.learner.state)
  agent.clock.seconds.clear()
  start, processor_start = time.perf_counter(), time.process_time()
  num_updates = _NUM_BATCHES - 10
  for _ in range(num_updates):
    agent.learner.step()
    jax.block_until_ready(agent.learner.state)
  seconds = time.process_time() - processor_start
  waiting = agent.clock.seconds['sample'] / (time.perf_counter() - start)
  agent.close()
  return seconds / num_updates, waiting


def main():
  """Prints the table."""
  print(common.machine_line())
  rows = []
  for name, spec, batch_size in (
    ('10x5 floats', parts.catch_spec(), 16),
    ('10x5 floats', parts.catch_spec(), 32),
    ('84x84x3', common.pixel_spec(), 16),
  ):
    seconds, waiting = measure_learner(spec, batch_size)
    frames = impala.IMPALAConfig.sequence_length * batch_size
    rows.append(
      [
        name,
        batch_size,
        f'{1e3 * seconds:.1f}',
        f'{frames / seconds:,.0f}',
        f'{100 * waiting:.1f}%',
      ]
    )
  common.print_table(
    'Learning: LSTM 256, T = 20, seconds of the processor',
    ['observation', 'batch', 'ms/update', 'frames/s', 'waiting for data'],
    rows,
  )


if __name__ == '__main__':
  main()
