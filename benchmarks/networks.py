"""Measures the speed and the scratch memory of the temporal hierarchy.

    uv run benchmarks/networks.py

FTW's sizes: 450 slots of 32, 4 read heads, hidden and latent size 256, 84x84x3.
Cores learn from 16 sequences of 20 steps. The same run also measures `exact`
with plain autodiff, and the same network in TensorFlow 2.8. Figures are seconds
of the processor of the fastest call, which is least affected by other work on
the machine. `--seconds` is the time for each line; `--no_rival` leaves
TensorFlow out.
"""

import argparse
import time
from typing import Any, NamedTuple

import common
import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.networks import entry_torsos, recurrent, rpth
from ftwax.networks.dnc import interfaces, lazy_link, link_update

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
  memory = None if name == 'lstm' else interfaces.MemoryConfig(linkage=name)
  return rpth.RPTH(rpth.RPTHConfig(memory=memory))


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


def _random_input(spec, *leading_shape):
  frames = jax.random.randint(_KEY, (*leading_shape, 84, 84, 3), 0, 256)
  zeros = trees.zeros_like_spec(spec.actions, leading_shape)
  return types.NetworkInput(
    observation=frames.astype(jnp.uint8),
    previous_action=zeros,
    previous_reward=jnp.zeros(leading_shape),
  )


def _make_network(spec, name):
  return recurrent.make_recurrent_network(
    spec,
    make_core=lambda: _make_core(name),
    make_torso=entry_torsos.FTWTorso,
    example_hyperparameters=_HYPERPARAMETERS,
  )


def _make_torso_gradient():
  torso = hk.without_apply_rng(
    hk.transform(lambda x: entry_torsos.FTWTorso()(x))
  )
  shape = (_NUM_STEPS * _BATCH_SIZE, 84, 84, 3)
  frames = jax.random.randint(_KEY, shape, 0, 256).astype(jnp.uint8)
  params = jax.jit(torso.init)(_KEY, frames[:1])

  def loss(params, frames):
    return jnp.mean(jnp.square(torso.apply(params, frames)))

  return jax.value_and_grad(loss), (params, frames)


def _make_network_gradient(spec, name):
  """Returns the gradient of torso, core and heads, and its arguments."""
  network = _make_network(spec, name)
  params = jax.jit(network.init)(_KEY)
  inputs = _random_input(spec, _NUM_STEPS, _BATCH_SIZE)
  start = jnp.zeros((_NUM_STEPS, _BATCH_SIZE), bool)

  def loss(params, inputs):
    state = network.initial_state(_BATCH_SIZE)
    output, _ = network.unroll(
      params, _HYPERPARAMETERS, _KEY, inputs, start, state
    )
    return jnp.mean(jnp.square(output.logits)) + jnp.mean(output.value**2)

  return jax.value_and_grad(loss), (params, inputs)


def _print_networks(spec, seconds, rival):
  functions = {'torso': _make_torso_gradient()}
  for name in ('lstm', 'none', 'exact'):
    functions[f'rpth_{name}'] = _make_network_gradient(spec, name)
  rows = []
  for name, line in _measure(functions, seconds).items():
    row = [name, f'{1e3 * line.seconds:.0f}', '', '']
    if name in rival:
      ratio = rival[name] / line.seconds
      row[2:] = f'{1e3 * rival[name]:.0f}', f'{ratio:.2f}'
    rows.append(row)
  common.print_table(
    'Networks on 84x84x3, forward and backward, T = 20, batch 16',
    ['network', 'ms', 'TensorFlow ms', 'times as fast'],
    rows,
  )


def _measure_acting(step, arguments, state, seconds):
  """Measures single steps; the state stays on the device."""
  step = jax.jit(step, donate_argnums=len(arguments))
  state = jax.tree.map(jnp.copy, state)  # Donated zeros must not share memory.

  def call():
    nonlocal state
    output, state = step(*arguments, state)
    jax.block_until_ready(output)

  return common.measure(call, seconds=seconds, clock=time.process_time).minimum


def _print_acting(spec, seconds, rival):
  rows = []
  for name in ('lstm', 'none', 'sparse', 'exact'):
    params, (apply, _, initial_state) = _make_core_functions(name)
    core = _measure_acting(
      lambda params, inputs, state, apply=apply: apply(
        params, _KEY, inputs, state, _HYPERPARAMETERS
      ),
      (params, jnp.zeros((1, _NUM_INPUTS))),
      initial_state({}, None, 1),
      seconds,
    )
    network = _make_network(spec, name)
    whole = _measure_acting(
      lambda params, inputs, state, apply=network.apply: apply(
        params, _HYPERPARAMETERS, _KEY, inputs, state
      ),
      (jax.jit(network.init)(_KEY), _random_input(spec, 1)),
      network.initial_state(1),
      seconds,
    )
    rows.append([name, f'{1e6 * core:.0f}', f'{1e6 * whole:.0f}', ''])
  if rival:
    rows[0][-1] = f'{1e6 * rival["acting"]:.0f}'
  common.print_table(
    'RPTH, one step of acting at batch 1, in us',
    ['memory', 'core', 'with torso and heads', 'TensorFlow'],
    rows,
  )


def _print_link_update(seconds):
  """Compares an update of the links with a copy of the same size."""
  shape = (_BATCH_SIZE, 1, 450)
  draws = jax.random.uniform(_KEY, (2, *shape)) / 225
  write = link_update.Write(draws[0], draws[1])
  reads = jax.random.uniform(_KEY, (_BATCH_SIZE, 1, 4, 450)) / 225

  def update(matrix, write, reads):
    link = lazy_link.make_lazy(matrix, num_taps=0)
    link, directional = lazy_link.update_and_read(link, write, reads)
    return link.matrix, directional

  def measure(function, *arguments):
    function, matrix = (
      jax.jit(function, donate_argnums=0),
      jnp.zeros((*shape, 450)),
    )

    def call():
      nonlocal matrix
      matrix, *rest = function(matrix, *arguments)
      jax.block_until_ready((matrix, rest))

    return common.measure(
      call, seconds=seconds, clock=time.process_time
    ).minimum

  num_bytes = 2 * 4 * _BATCH_SIZE * 450 * 450  # One read and one write.
  times = {
    'add a number to it': measure(lambda matrix: (matrix + 1.0,)),
    'update, forward and backward reads': measure(update, write, reads),
  }
  common.print_table(
    f'The link matrices of {_BATCH_SIZE} sequences, one access, no gradient',
    ['what', 'ms', 'GB/s of one read and one write'],
    [
      [name, f'{1e3 * t:.3f}', f'{num_bytes / t / 1e9:.1f}']
      for name, t in times.items()
    ],
  )


def main():
  """Prints the tables."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--seconds', type=float, default=5.0)
  parser.add_argument('--no_rival', action='store_true')
  tables = ('networks', 'cores', 'acting', 'links')
  parser.add_argument('--tables', nargs='*', choices=tables, default=tables)
  arguments = parser.parse_args()
  seconds = arguments.seconds
  print(common.machine_line())
  spec = common.pixel_spec()
  rival = {}
  if not arguments.no_rival:
    rival = common.run_rival('tensorflow_networks.py', seconds)
  if 'networks' in arguments.tables:
    _print_networks(spec, seconds, rival)
  if 'cores' in arguments.tables:
    _print_cores(_measure_cores(seconds))
  if 'acting' in arguments.tables:
    _print_acting(spec, seconds, rival)
  if 'links' in arguments.tables:
    _print_link_update(seconds)


if __name__ == '__main__':
  main()
