"""How well a device run uses its device: roofline and idle time.

    uv run --with 'jax[cuda12]' benchmarks/gpu.py
    uv run benchmarks/gpu.py --experiment=catch --flags=--num_environments=1024

Compiles the call of an experiment, with each flag that `--flags` gives, as the
device runtime does and prints steps/s with the host's work left out; the FLOPs
of a step, counted in what JAX traced; their share of the device's peak, that of
large matrix products in the same process; and, on an accelerator, the share of
a trace in which it did nothing, which is time lost to launches.
"""

import argparse
import functools
import glob
import gzip
import json
import math
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import common
import jax
import jax.numpy as jnp

from ftwax import compilation
from ftwax.cli import launch
from ftwax.runtime import prepare
from ftwax.runtime.device import train


def count_flops(jaxpr: Any) -> float:
  """Returns the FLOPs of all matrix products and convolutions of a jaxpr.

  Loops count as often as they run, `while` loops of unknown length once, and of
  branches the largest.
  """
  total = 0.0
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    inner = [count_flops(each) for each in _inner(params.values())]
    if name == 'dot_general':
      contracted = params['dimension_numbers'][0][0]
      shape = equation.invars[0].aval.shape
      size = math.prod(shape[axis] for axis in contracted)
      total += 2.0 * size * equation.outvars[0].aval.size
    elif name == 'conv_general_dilated':
      kernel = equation.invars[1].aval
      outputs = kernel.shape[params['dimension_numbers'].rhs_spec[0]]
      total += 2.0 * equation.outvars[0].aval.size * kernel.size / outputs
    elif name == 'cond':
      total += max(inner, default=0.0)
    else:
      total += sum(inner) * params.get('length', 1)
  return total


def _inner(values: Iterable[Any]) -> Iterable[Any]:
  """Yields the jaxprs among the parameters of an equation."""
  for value in values:
    for each in value if isinstance(value, tuple | list) else (value,):
      each = getattr(each, 'jaxpr', each)
      if hasattr(each, 'eqns'):
        yield each


def find_idle_share(events: Iterable[dict[str, Any]]) -> float | None:
  """Returns the share of time in which no kernel ran; None without a device.

  Args:
    events: those of a trace in Chrome's format, with times in microseconds.
  """
  events = list(events)
  devices = {
    event['pid']
    for event in events
    if event.get('name') == 'process_name'
    and event['args']['name'].startswith('/device:')
  }
  spans = sorted(
    (event['ts'], event['ts'] + event['dur'])
    for event in events
    if event.get('ph') == 'X' and event['pid'] in devices
  )
  if not spans:
    return None
  busy, until = 0.0, spans[0][0]
  for start, end in spans:
    busy += max(0.0, end - max(start, until))
    until = max(until, end)
  return 1 - busy / (until - spans[0][0])


def measure_peak(size: int, seconds: float) -> float:
  """Returns the FLOP/s of products of two float32 matrices of a size."""
  product = jax.jit(jnp.matmul)
  matrix = jnp.ones((size, size))
  measured = common.measure(
    lambda: product(matrix, matrix).block_until_ready(), seconds=seconds
  )
  return 2.0 * size**3 / measured.minimum


def _trace(call: Any, state: Any) -> tuple[Any, float | None]:
  """Runs a call under the profiler; returns its state and the idle share."""
  with tempfile.TemporaryDirectory() as directory:
    with jax.profiler.trace(directory):
      state, _ = jax.block_until_ready(call(state))
    (path,) = glob.glob(f'{directory}/**/*.trace.json.gz', recursive=True)
    with gzip.open(path, 'rt', encoding='utf-8') as file:
      return state, find_idle_share(json.load(file)['traceEvents'])


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--experiment', default='capture_the_flag')
  parser.add_argument('--flags', action='append', default=[])
  parser.add_argument('--num_calls', type=int, default=5)
  parser.add_argument('--peak_size', type=int, default=2048)
  arguments = parser.parse_args()
  flags = ['--runtime=device', *arguments.flags]
  parts = prepare.prepare(launch.find(arguments.experiment, flags).build())
  loop = train.make_loop(parts)
  per_round = loop.sizes.iterations_per_round(parts.experiment.steps_per_round)
  num_iterations = loop.sizes.iterations_per_call(
    per_round, parts.experiment.max_num_actor_steps
  )
  num_steps = num_iterations * loop.sizes.steps_per_iteration
  function = functools.partial(loop.call, num_iterations)
  state = compilation.jit_unoptimized(loop.init)(parts.key)
  flops = count_flops(jax.make_jaxpr(function)(state).jaxpr) / num_steps
  call = jax.jit(function, donate_argnums=0)
  state, _ = jax.block_until_ready(call(state))
  start = time.perf_counter()
  for _ in range(arguments.num_calls):
    state, _ = jax.block_until_ready(call(state))
  seconds = time.perf_counter() - start
  speed = arguments.num_calls * num_steps / seconds
  idle = None
  if jax.default_backend() != 'cpu':
    state, idle = _trace(call, state)
  peak = measure_peak(arguments.peak_size, 2.0)
  common.print_table(
    common.machine_line(),
    ['experiment', 'steps/s', 'MFLOP a step', 'of the peak', 'idle'],
    [
      [
        ' '.join([arguments.experiment, *arguments.flags]),
        f'{speed:,.0f}',
        f'{flops / 1e6:.3f}',
        f'{flops * speed / peak:.1%} of {peak / 1e9:,.0f} GFLOP/s',
        'no trace on a CPU' if idle is None else f'{idle:.1%}',
      ]
    ],
  )


if __name__ == '__main__':
  main()
