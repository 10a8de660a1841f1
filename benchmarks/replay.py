# /// script
# requires-python = ">=3.10"
# dependencies = ["ftwax", "flashbax==0.1.3"]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
#
# [tool.uv.sources]
# ftwax = { path = "..", editable = true }
# ///
"""Functional replay against flashbax 0.1.3 or Reverb 0.7.3.

    uv run benchmarks/replay.py
    uv run --python 3.10 benchmarks/replay.py --rival=reverb

`uv run` builds a separate environment with flashbax. Both sides are measured
alternately in one process, so a busy machine slows down both. The payload is
32x32x3 uint8 with reward, discount and step type; 50,000 steps are stored, and
256 are sampled at a time.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import jax
import jax.numpy as jnp
import numpy as np

from ftwax.replay import functional

NUM_STEPS = 50_000
BATCH_SIZE = 256
FILL_LENGTH = 125
STEP = {
  'image': np.zeros((32, 32, 3), np.uint8),
  'reward': np.zeros((), np.float32),
  'discount': np.zeros((), np.float32),
  'step_type': np.zeros((), np.int32),
}
HEADER = ('line', 'ftwax us', 'rival us', 'rival / ftwax', 'least', 'most')


def random_steps(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
  """Returns random steps [*shape, ...], which do not compress."""
  rng = np.random.default_rng(0)
  return {
    name: rng.integers(0, 256, (*shape, *leaf.shape)).astype(leaf.dtype)
    for name, leaf in STEP.items()
  }


def microseconds(call: Callable[[], Any], num_calls: int) -> float:
  """Returns the mean CPU time of `num_calls` calls."""
  start = time.process_time()
  for _ in range(num_calls):
    jax.block_until_ready(call())
  return (time.process_time() - start) / num_calls * 1e6


def compare(
  line: str,
  ours: Callable[[], Any],
  rival: Callable[[], Any],
  seconds: float,
) -> tuple[str, ...]:
  """Times two calls alternately, in blocks; returns a row of the table."""
  for call in (ours, rival):
    microseconds(call, 3)  # Compiles; flashbax twice, since its types change.
  num_calls = [
    max(1, int(seconds * 1e6 / 30 / microseconds(call, 3)))
    for call in (ours, rival)
  ]
  pairs = [
    (microseconds(ours, num_calls[0]), microseconds(rival, num_calls[1]))
    for _ in range(15)
  ]
  ratios = [theirs / our for our, theirs in pairs]
  medians = (statistics.median(column) for column in zip(*pairs, strict=True))
  return (
    line,
    *(f'{median:.1f}' for median in medians),
    f'{statistics.median(ratios):.2f}',
    f'{min(ratios):.2f}',
    f'{max(ratios):.2f}',
  )


class Ours:
  """A full functional replay, with its functions compiled."""

  def __init__(self, num_environments, length, prioritized, draw):
    config = functional.ReplayConfig(
      num_environments=num_environments,
      max_length=NUM_STEPS // num_environments,
      sequence_length=length,
      batch_size=BATCH_SIZE // length,
      prioritized=prioritized,
      draw=draw,
    )
    replay = functional.make_replay(STEP, config)
    self._add = jax.jit(replay.add, donate_argnums=0)
    self._sample = jax.jit(replay.sample)
    self._update = jax.jit(replay.update_priorities, donate_argnums=0)
    self._key = jax.random.PRNGKey(0)
    self._step = jax.device_put(random_steps((num_environments,)))
    fill = jax.jit(replay.add_sequence, donate_argnums=0)
    steps = jax.device_put(random_steps((FILL_LENGTH, num_environments)))
    self._state = replay.init()
    for _ in range(config.max_length // FILL_LENGTH + 1):
      self._state = fill(self._state, steps)
    self._info = self._sample(self._state, self._key).info
    self._priorities = jnp.ones([config.batch_size])

  def add(self):
    """Adds one step of each environment."""
    self._state = self._add(self._state, self._step)
    return self._state

  def sample(self):
    """Samples a batch."""
    return self._sample(self._state, self._key)

  def update(self):
    """Sets the priorities of a batch."""
    info = self._info
    self._state = self._update(
      self._state, info.env_id, info.position, self._priorities
    )
    return self._state

  def memory_line(self) -> str:
    """Describes the memory of a donated call in addition to the state."""
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(self._state))
    memory = self._add.lower(self._state, self._step).compile()
    memory = memory.memory_analysis()
    extra = memory.temp_size_in_bytes + (
      memory.output_size_in_bytes - memory.alias_size_in_bytes
    )
    return (
      f'add, donated: {stored / 1e6:.1f} MB stored, {extra / 1e6:.3f} MB more'
      ' at the peak'
    )


class Flashbax:
  """The same replay with flashbax."""

  def __init__(self, num_environments, length, prioritized):
    import flashbax

    sizes = {
      'add_batch_size': num_environments,
      'sample_batch_size': BATCH_SIZE // length,
      'sample_sequence_length': length,
      'period': 1,
      'min_length_time_axis': length,
      'max_length_time_axis': NUM_STEPS // num_environments,
    }
    if prioritized:
      buffer = flashbax.make_prioritised_trajectory_buffer(
        priority_exponent=0.6, device=jax.default_backend(), **sizes
      )
      self._update = jax.jit(buffer.set_priorities, donate_argnums=0)
    else:
      buffer = flashbax.make_trajectory_buffer(**sizes)
    self._add = jax.jit(buffer.add, donate_argnums=0)
    self._sample = jax.jit(buffer.sample)
    self._key = jax.random.PRNGKey(0)
    self._step = jax.device_put(random_steps((num_environments, 1)))
    steps = jax.device_put(random_steps((num_environments, FILL_LENGTH)))
    self._state = buffer.init(jax.tree.map(jnp.asarray, STEP))
    for _ in range(sizes['max_length_time_axis'] // FILL_LENGTH + 1):
      self._state = self._add(self._state, steps)
    self._priorities = jnp.ones([BATCH_SIZE // length])
    if prioritized:
      self._indices = self.sample().indices

  def add(self):
    """Adds one step of each environment."""
    self._state = self._add(self._state, self._step)
    return self._state

  def sample(self):
    """Samples a batch."""
    return self._sample(self._state, self._key)

  def update(self):
    """Sets the priorities of a batch."""
    self._state = self._update(self._state, self._indices, self._priorities)
    return self._state


class Reverb:
  """The same replay with Reverb, with its server in this process."""

  def __init__(self):
    import reverb
    import tensorflow as tf

    signature = {
      name: tf.TensorSpec((1, *leaf.shape), leaf.dtype)
      for name, leaf in STEP.items()
    }
    table = reverb.Table(
      'replay',
      sampler=reverb.selectors.Prioritized(0.6),
      remover=reverb.selectors.Fifo(),
      max_size=NUM_STEPS,
      rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=signature,
    )
    self._server = reverb.Server([table], port=None)
    address = f'localhost:{self._server.port}'
    self._client = reverb.Client(address)
    self._writer = self._client.trajectory_writer(num_keep_alive_refs=1)
    self._step = random_steps((1,))
    steps = random_steps((FILL_LENGTH,))
    for i in range(NUM_STEPS):
      self._append({k: v[i % FILL_LENGTH] for k, v in steps.items()})
      if i % 25 == 0:  # It warns from 50 items on.
        self._writer.flush()
    self._writer.flush()
    dataset = reverb.TrajectoryDataset.from_table_signature(
      address, 'replay', max_in_flight_samples_per_worker=2 * BATCH_SIZE
    )
    dataset = dataset.batch(BATCH_SIZE).prefetch(2)
    self._samples = dataset.as_numpy_iterator()

  def _append(self, step):
    self._writer.append(step)
    item = {k: v[-1:] for k, v in self._writer.history.items()}
    self._writer.create_item('replay', priority=1.0, trajectory=item)

  def add(self):
    """Adds a step and waits until it is stored."""
    self._append({k: v[0] for k, v in self._step.items()})
    self._writer.flush()

  def sample(self):
    """Samples a batch."""
    return next(self._samples).data['image']

  def stop(self):
    """Stops the server."""
    self._writer.close()
    self._server.stop()


def compare_with_flashbax(num_environments, length, seconds):
  """Returns the rows of one shape, and the line on memory."""
  rows = []
  for prioritized, name, draw in (
    (False, 'trajectory', 'independent'),
    (True, 'prioritized', 'stratified'),
  ):
    ours = Ours(num_environments, length, prioritized, draw)
    rival = Flashbax(num_environments, length, prioritized)
    sizes = f'{num_environments} env, {length} steps'
    for what in ('add', 'sample', 'update')[: 3 if prioritized else 2]:
      line = f'{name} {what}, {sizes}'
      rows.append(
        compare(line, getattr(ours, what), getattr(rival, what), seconds)
      )
  sums = [sum(float(row[column]) for row in rows[2:]) for column in (1, 2)]
  rows.append(
    (
      f'prioritized, all three, {sizes}',
      *(f'{total:.1f}' for total in sums),
      f'{sums[1] / sums[0]:.2f}',
      '',
      '',
    )
  )
  return rows, ours.memory_line()


def compare_with_reverb(seconds):
  """Prints the rows of single steps."""
  ours = Ours(1, 1, prioritized=True, draw='stratified')
  rival = Reverb()
  rows = [
    compare('prioritized add, flushed', ours.add, rival.add, seconds),
    compare('prioritized sample', ours.sample, rival.sample, seconds),
  ]
  common.print_table('Reverb 0.7.3', HEADER, rows)
  rival.stop()


def main() -> None:
  """Measures and prints."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--seconds', type=float, default=2.0, help='of each of two, for each line'
  )
  parser.add_argument(
    '--rival', choices=('flashbax', 'reverb'), default='flashbax'
  )
  arguments = parser.parse_args()
  print(common.machine_line())
  if arguments.rival == 'reverb':
    compare_with_reverb(arguments.seconds)
    return
  rows = []
  for num_environments in (1, 16):
    for length in (1, 8):
      new_rows, memory_line = compare_with_flashbax(
        num_environments, length, arguments.seconds
      )
      rows += new_rows
  common.print_table('flashbax 0.1.3', HEADER, rows)
  print(f'\n{memory_line}')


if __name__ == '__main__':
  main()
