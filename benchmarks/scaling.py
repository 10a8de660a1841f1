"""How time and memory of a device run grow with its sizes.

    uv run benchmarks/scaling.py

A table for each size, the others fixed: members, environments, steps T of a
sequence, and slots of a memory with exact and with sparse links. A row is one
iteration, acting and learning, of PPO with an LSTM of 32 units on catch (for
slots, with a DNC of as many units). Times are those of the processor, the least
of several calls, which other work on the machine changes little; memory is
XLA's own sum for arguments and temporary buffers. An exponent `e` says that a
quantity has grown as `size ** e` since the row before.
"""

import argparse
import functools
import math
import time
from typing import Any

import common
import device
import jax

from ftwax import compilation
from ftwax.agents import ppo
from ftwax.environments import catch, functional
from ftwax.networks.dnc import core as dnc_core
from ftwax.networks.dnc import interfaces

_UNITS = 32

# Sizes that a table does not vary, and those that it does, by its name.
_FIXED = {'members': 1, 'environments': 8, 'T': 16}
TABLES = {
  'members': ('members', (1, 4, 16, 64), {}),
  'environments': ('environments', (8, 64, 512, 4096), {}),
  'T': ('T', (8, 32, 128, 512), {}),
  'exact': ('slots', (16, 64, 256, 512), {'linkage': 'exact'}),
  'sparse': ('slots', (16, 64, 256, 512), {'linkage': 'sparse'}),
}


def _make_core(num_slots: int, linkage: str) -> dnc_core.DNC:
  memory = interfaces.MemoryConfig(num_slots, 16, 1, linkage=linkage)
  return dnc_core.DNC(
    dnc_core.DNCConfig(memory, hidden_size=_UNITS, output_size=_UNITS)
  )


def measure(seconds: float, **sizes: Any) -> tuple[float, float]:
  """Returns the CPU seconds of an iteration and the bytes that it needs.

  Args:
    seconds: duration of the measurement.
    **sizes: sizes other than `_FIXED`; `slots` and `linkage` choose a DNC.
  """
  sizes = {**_FIXED, **sizes}
  core: Any = 'lstm'
  if 'slots' in sizes:
    core = functools.partial(_make_core, sizes['slots'], sizes['linkage'])
  config = ppo.PPOConfig(
    core=core,
    hidden_size=_UNITS,
    vector_hidden_sizes=(_UNITS,),
    sequence_length=sizes['T'],
    batch_size=sizes['environments'],
    max_queue_size=sizes['environments'],
    num_epochs=1,
    num_minibatches=1,
  )
  made = device.make_loop(
    ppo,
    config,
    functional.as_game(catch.make()),
    sizes['members'],
    sizes['members'] * sizes['environments'],
  )
  state = compilation.jit_unoptimized(made.init)(jax.random.PRNGKey(0))
  call = jax.jit(functools.partial(made.call, 1)).lower(state).compile()
  analysis = call.memory_analysis()
  measured = common.measure(
    lambda: jax.block_until_ready(call(state)),
    seconds=seconds,
    clock=time.process_time,
  )
  return measured.minimum, analysis.argument_size_in_bytes + (
    analysis.temp_size_in_bytes
  )


def print_scaling(name: str, seconds: float) -> None:
  """Prints the table of a size."""
  size, values, options = TABLES[name]
  rows, before = [], None
  for value in values:
    now = measure(seconds, **{size: value}, **options)
    exponents = ['', '']
    if before is not None:
      growth = math.log(value / before[0])
      exponents = [
        f'{math.log(new / old) / growth:.2f}'
        for new, old in zip(now, before[1], strict=True)
      ]
    rows.append(
      [
        value,
        f'{1e3 * now[0]:.2f}',
        exponents[0],
        f'{now[1] / 1e6:.2f}',
        exponents[1],
      ]
    )
    before = value, now
  title = f'{size}, {name} links' if options else size
  header = [title, 'CPU ms an iteration', 'exponent', 'MB', 'exponent']
  common.print_table('', header, rows)


def main() -> None:
  """Prints the tables."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--tables', nargs='*', choices=TABLES, default=[*TABLES])
  parser.add_argument('--seconds', type=float, default=2.0)
  arguments = parser.parse_args()
  print(common.machine_line())
  for name in arguments.tables:
    print_scaling(name, arguments.seconds)


if __name__ == '__main__':
  main()
