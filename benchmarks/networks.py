"""Measures the speed and the scratch memory of the temporal hierarchy.

    uv run benchmarks/networks.py

FTW's sizes: 450 slots of 32, 4 read heads, hidden and latent size 256. Cores
learn from 16 sequences of 20 steps, in turn; `plain` is `exact` by plain
autodiff. Figures are CPU seconds of the fastest call, which is least affected
by other work on the machine. `--seconds` is the time for each line.
"""

import argparse
import time
from typing import Any, NamedTuple

import common
import haiku as hk
import jax
import jax.numpy as jnp

from ftwax.networks import cores

_NUM_STEPS, _BATCH_SIZE, _NUM_INPUTS = 20, 16, 262
_CORES = ('lstm', 'none', 'sparse', 'exact', 'plain')
_KEY = jax.random.PRNGKey(0)


class _Hyperparameters(NamedTuple):
  slow_period: Any = jnp.int32(10)
  fast_to_slow_gradient_scale: Any = jnp.float32(0.5)


_HYPERPARAMETERS = _Hyperparameters()


class _Line(NamedTuple):
  """Measurements of one compiled function.

  Attributes:
    seconds: duration of the fastest call.
    compile_seconds: duration of its compilation.
    scratch_bytes: memory of a call in addition to inputs and outputs.
  """

  seconds: float
  compile_seconds: float
  scratch_bytes: int


def _measure(functions, seconds):
  """Compiles functions and calls them alternately, under the same load.

  Args:
    functions: pairs of a function and its arguments, by name.
    seconds: average duration of the measurements of each function.

  Returns:
    A `_Line` for each function, by name.
  """
  compiled, compile_seconds = {}, {}
  for name, (function, arguments) in functions.items():
    before = time.process_time()
    compiled[name] = jax.jit(function).lower(*arguments).compile()
    compile_seconds[name] = time.process_time() - before
  times = {name: [] for name in functions}
  end = time.perf_counter() + seconds * len(functions)
  while time.perf_counter() < end or len(next(iter(times.values()))) < 4:
    for name, (_, arguments) in functions.items():
      before = time.process_time()
      jax.block_until_ready(compiled[name](*arguments))
      times[name].append(time.process_time() - before)
  return {
    name: _Line(
      min(times[name]),
      compile_seconds[name],
      compiled[name].memory_analysis().temp_size_in_bytes,
    )
    for name in functions
  }


def _make_core(name):
  memory = None if name == 'lstm' else cores.Memory(linkage=name)
  return cores.RPTH(256, memory=memory)()


def _make_core_functions(name):
  """Returns a core's parameters, and its step, unroll and initial state."""

  def make():
    core = _make_core(name)

    def init(inputs):
      state = core.initial_state(inputs.shape[0])
      return core(inputs, state, _HYPERPARAMETERS)

    return init, (core.__call__, core.unroll, core.initial_state)

  transformed = hk.multi_transform(make)
  params = jax.jit(transformed.init)(_KEY, jnp.zeros((1, _NUM_INPUTS)))
  return params, transformed.apply


def _measure_cores(seconds):
  """Returns lines by name of the core and whether the gradient is included."""
  inputs = jax.random.normal(_KEY, (_NUM_STEPS, _BATCH_SIZE, _NUM_INPUTS))
  start = jnp.zeros((_NUM_STEPS, _BATCH_SIZE), bool)
  functions = {}
  for name in _CORES:
    params, (_, unroll, initial_state) = _make_core_functions(name)
    state = initial_state({}, None, _BATCH_SIZE)

    def loss(params, inputs, unroll=unroll, state=state):
      output, _ = unroll(params, _KEY, inputs, start, state, _HYPERPARAMETERS)
      return jnp.mean(jnp.square(output.features))

    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    functions[name, False] = loss, (params, inputs)
    functions[name, True] = gradient, (params, inputs)
  return _measure(functions, seconds)


def _print_cores(lines):
  exact = lines['exact', True]
  rows = [
    [
      name if name != 'plain' else 'exact, plain autodiff',
      f'{1e3 * lines[name, False].seconds:.1f}',
      f'{1e3 * both.seconds:.1f}',
      f'{both.seconds / exact.seconds:.2f}',
      f'{both.scratch_bytes / 1e6:.0f}',
      f'{both.scratch_bytes / exact.scratch_bytes:.2f}',
      f'{both.compile_seconds:.0f}',
    ]
    for (name, has_gradient), both in lines.items()
    if has_gradient
  ]
  common.print_table(
    f'RPTH, the core alone: T = {_NUM_STEPS}, batch {_BATCH_SIZE}',
    [
      'memory',
      'forward ms',
      'and backward ms',
      'of exact',
      'scratch MB',
      'of exact',
      'compile s',
    ],
    rows,
  )


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--seconds', type=float, default=5.0)
  arguments = parser.parse_args()
  print(common.machine_line())
  _print_cores(_measure_cores(arguments.seconds))


if __name__ == '__main__':
  main()
