"""Counts what a program launches on a GPU, in the jaxpr that JAX lowers.

    python tests/launches.py          # The table of all cases.

XLA fuses operations on single numbers into their neighbours. Counted are the
others, which are about a kernel each, as often as they run: products,
reductions, sorts, scatters, concatenations and random bits. In a loop each
array that a step stacks is written by a kernel, and each that it carries may be
copied. XLA, compiling for an H100, makes about as many kernels.
"""

import functools
import sys
from typing import NamedTuple

import jax

from ftwax import scans
from ftwax.agents import ppo
from ftwax.cli import launch
from ftwax.environments import catch
from ftwax.networks import cores
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare
from ftwax.runtime.device import train

# Beginnings of the names of primitives that end a fusion.
_KERNELS = (
  'dot_general', 'conv_general', 'reduce', 'arg', 'cum', 'sort', 'scatter',
  'concatenate', 'random_bits', 'threefry', 'pallas_call',
)  # fmt: skip


class Scan(NamedTuple):
  """A loop of known length.

  Attributes:
    length: number of steps.
    times: how often the whole loop runs.
    stacked: number of arrays that a step stacks.
    consumed: number of arrays of which a step reads its row.
    carried: number of arrays that it carries.
    operations: number of operations of a step, those of inner loops once.
    launches: of a step.
  """

  length: int
  times: int
  stacked: int
  consumed: int
  carried: int
  operations: int
  launches: int


def count(jaxpr, times=1):
  """Returns the launches of a jaxpr that runs once, and its scans."""
  launches, scans_found = 0, []
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    inner = [
      count(each, times * params.get('length', 1))
      for each in _inner(params.values())
    ]
    found = [each for _, scans_inside in inner for each in scans_inside]
    counts = [each for each, _ in inner]
    if name == 'scan':
      (body,) = _inner([params['jaxpr']])
      stacked = _num_sliced(equation.outvars, body.outvars)
      carried = len(equation.outvars) - stacked
      total = sum(counts) + stacked + carried
      found.append(
        Scan(
          params['length'],
          times,
          stacked,
          _num_sliced(equation.invars, body.invars),
          carried,
          _num_operations(body),
          total,
        )
      )
      launches += params['length'] * total
    elif name in ('cond', 'while'):
      launches += max(counts, default=0) + len(equation.outvars)
    elif name.startswith(_KERNELS) and not name.startswith('reduce_precision'):
      launches += 1
    else:
      launches += sum(counts)
    scans_found += found
  return launches, scans_found


def _inner(values):
  for value in values:
    for each in value if isinstance(value, tuple | list) else (value,):
      each = getattr(each, 'jaxpr', each)
      if hasattr(each, 'eqns'):
        yield each


def _num_sliced(outside, inside):
  """Returns how many arrays have an axis that a step of a loop does not see."""
  return sum(
    len(whole.aval.shape) > len(row.aval.shape)
    for whole, row in zip(outside, inside, strict=True)
  )


def _num_operations(jaxpr):
  return sum(
    sum(map(_num_operations, _inner(each.params.values()))) or 1
    for each in jaxpr.eqns
  )


def _ppo(core):
  """PPO of the sizes of PureJaxRL, on a small game."""
  config = ppo.PPOConfig(
    core=core,
    separate_value=isinstance(core, cores.FeedForward),
    sequence_length=128,
    batch_size=16,
    num_epochs=4,
    num_minibatches=4,
  )
  return experiment_lib.ExperimentConfig(
    agent=config,
    environment=catch.make(),
    num_environments=16,
    max_num_actor_steps=100_000,
  )


def _capture_the_flag(*flags):
  options = ('--runtime=device', '--num_environments=32', *flags)
  return launch.find('capture_the_flag', options).build()


CASES = {
  'feed-forward': lambda: _ppo(cores.FeedForward(64)),
  'gru': lambda: _ppo(cores.GRU(128)),
  'main experiment': _capture_the_flag,
  'rpth': lambda: _capture_the_flag('--core=rpth'),
  'whole agent': lambda: _capture_the_flag('--agent=paper', '--num_members=4'),
}


@functools.cache
def of_case(name):
  """Returns the launches of an iteration on an accelerator, and the scans."""
  before = scans.counts_launches, scans.has_kernels
  scans.counts_launches = scans.has_kernels = lambda: True
  try:
    loop = train.make_loop(prepare.prepare(CASES[name]()))
    state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
    jaxpr = jax.make_jaxpr(loop._iterate)(
      state.training, state.rollout, state.replay
    )
  finally:
    scans.counts_launches, scans.has_kernels = before
  return count(jaxpr.jaxpr)


def main():
  """Prints each case and its scans, those with most launches first."""
  for name in sys.argv[1:] or CASES:
    launches, found = of_case(name)
    print(f'{name}: {launches:,} launches an iteration')
    print('  ' + ' '.join(f'{field:>10}' for field in Scan._fields))
    found.sort(key=lambda scan: -scan.times * scan.length * scan.launches)
    for scan in found[:6]:
      print('  ' + ' '.join(f'{value:10,}' for value in scan))


if __name__ == '__main__':
  main()
