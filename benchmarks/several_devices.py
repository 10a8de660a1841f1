"""Speed of an experiment on several devices beside one.

    uv run benchmarks/several_devices.py --num_devices=2

On a CPU the devices are cores. Calls of the compiled loop take turns in one
process, which needs as many idle cores as there are devices.
"""

import argparse
import dataclasses
import functools
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import common
import jax

from ftwax import compilation
from ftwax.cli import launch
from ftwax.runtime import devices as devices_lib
from ftwax.runtime import prepare, sharding
from ftwax.runtime.device import placement, train


class Turn(NamedTuple):
  """One measurement.

  Attributes:
    speed: steps a second.
    cpu: CPU seconds a million steps.
    switches: context switches, voluntary and not, a thousand steps.
  """

  speed: float
  cpu: float
  switches: float


def make_call(
  parts: prepare.Prepared, devices: Sequence[jax.Device], num_steps: int
) -> tuple[Callable[[], Any], int]:
  """Compiles a call of the loop; returns it and its number of steps.

  Args:
    parts: a prepared experiment.
    devices: devices that share its work.
    num_steps: least number of steps of a call.
  """
  mesh = sharding.make_mesh(devices)
  made = dataclasses.replace(
    train.make_loop(parts), in_turn=sharding.takes_turns()
  )
  assert parts.game is not None
  loop = placement.spread(mesh, made, parts.game)
  num_iterations = -(-num_steps // loop.sizes.steps_per_iteration)
  state = jax.device_put(
    compilation.jit_unoptimized(loop.init)(parts.key),
    placement.of_loop(mesh, loop.arena.seating),
  )
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  call = compilation.jit(
    functools.partial(loop.call, num_iterations),
    donate_argnums=0,
    out_shardings=(shardings, None),
  )

  def run() -> None:
    nonlocal state
    state, report = call(state)
    jax.device_get(report)

  run()
  return run, num_iterations * loop.sizes.steps_per_iteration


def measure(run: Callable[[], Any], num_steps: int, seconds: float) -> Turn:
  """Calls for some seconds."""
  before, start, num_calls = _usage(), time.perf_counter(), 0
  while time.perf_counter() < start + seconds:
    run()
    num_calls += 1
  total = num_calls * num_steps
  cpu, switches = [
    after - was for after, was in zip(_usage(), before, strict=True)
  ]
  speed = total / (time.perf_counter() - start)
  return Turn(speed, 1e6 * cpu / total, 1e3 * switches / total)


def _usage() -> tuple[float, float]:
  """Returns CPU seconds and context switches of this process so far."""
  used = resource.getrusage(resource.RUSAGE_SELF)
  return used.ru_utime + used.ru_stime, used.ru_nvcsw + used.ru_nivcsw


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--num_devices', type=int, default=2)
  parser.add_argument('--experiment', default='capture_the_flag')
  parser.add_argument('--flags', default='', help='of the experiment')
  parser.add_argument('--seconds', type=float, default=3.0, help='of a turn')
  parser.add_argument('--rounds', type=int, default=7)
  options = parser.parse_args()
  devices_lib.prepare('device', options.num_devices)
  flags = ['--runtime=device', *options.flags.split()]
  parts = prepare.prepare(launch.find(options.experiment, flags).build())
  calls = {
    size: make_call(parts, jax.devices()[:size], 8192)
    for size in (1, options.num_devices)
  }
  turns: dict[int, list[Turn]] = {size: [] for size in calls}
  for _ in range(options.rounds):
    for size, call in calls.items():
      turns[size].append(measure(*call, options.seconds))
  rows = []
  for size, own in turns.items():
    ratios = [
      mine.speed / one.speed for mine, one in zip(own, turns[1], strict=True)
    ]
    speed, cpu, switches = map(statistics.median, zip(*own, strict=True))
    rows.append(
      [
        str(size),
        f'{speed / 1e3:.0f}k',
        f'{statistics.median(ratios):.2f}'
        f' ({min(ratios):.2f} to {max(ratios):.2f})',
        f'{cpu:.0f}',
        f'{switches:.0f}',
      ]
    )
  common.print_table(
    f'{options.experiment} {options.flags}: {common.machine_line()}',
    [
      'devices',
      'steps/s',
      'beside one',
      'CPU s a million steps',
      'context switches a thousand steps',
    ],
    rows,
  )


if __name__ == '__main__':
  main()
