"""Compiled runs lower for accelerators, too, which tests do not have.

Lowering is what Python does: it ends where the compiler of the platform would
begin. What fails here cannot run there. Products of matrices are lowered in the
precision that the docs name for accelerators, which CPUs ignore.
"""

import functools
import re

import jax
import population_helpers
import pytest

from ftwax.agents import ftw
from ftwax.runtime import prepare
from ftwax.runtime.device import train

PLATFORMS = ('cuda', 'rocm', 'tpu')


@pytest.fixture(scope='module')
def parts():
  config = ftw.small(
    core='lstm',
    sequence_length=3,
    batch_size=4,
    num_epochs=1,
    num_minibatches=2,
    tasks=(),
  ).with_size(4)
  return prepare.prepare(population_helpers.make_experiment(config=config))


# Most operations of each function, loops counted once: on an accelerator, where
# each is at most one launch, these and not the arithmetic limit small agents.
MAX_OPERATIONS = {
  'init': 25_000,
  'call': 13_200,
  'act': 8_000,
  'begin_round': 12_200,
  'evolve': 10_000,
}


def _num_operations(text):
  """Counts operations, without constants and with each call's inlined.

  As XLA does it: versions of JAX write the same program with more or fewer
  shared functions and constants.
  """
  calls, counts = {}, {}
  for function in text.split(' func.func ')[1:]:
    name = re.search(r'@([\w.]+)', function)[1]
    calls[name] = re.findall(r'call @([\w.]+)', function)
    counts[name] = len(re.findall(r' = "?stablehlo\.(?!constant)', function))

  @functools.cache
  def count(name):
    return counts[name] + sum(map(count, calls[name]))

  return count('main')


@pytest.mark.parametrize('name', MAX_OPERATIONS)
def test_runs_lower_for_all_platforms(parts, name):
  loop = train.make_loop(parts)
  state = jax.eval_shape(loop.init, parts.key)
  function, *arguments = {
    'init': (loop.init, parts.key),
    'call': (functools.partial(loop.call, 1), state),
    'act': (loop.act, state.training, state.rollout),
    'begin_round': (loop.begin_round, state),
    'evolve': (parts.evolve, state.population),
  }[name]
  with jax.default_matmul_precision('BF16_BF16_F32'):
    lowered = (
      jax.jit(function).trace(*arguments).lower(lowering_platforms=PLATFORMS)
    )
  # Nothing returns to the host, which would stop the device in each step.
  text = lowered.as_text()
  assert 'callback' not in text and 'infeed' not in text
  assert _num_operations(text) <= MAX_OPERATIONS[name]
  products = re.findall('stablehlo.dot_general .*', text)
  # Rewards and ratings ask for all of float32.
  products = [each for each in products if 'HIGHEST' not in each]
  assert products or name not in ('call', 'act')
  for product in products:
    assert product.count('_precision_type = bf16') == 2, product
    assert 'accumulation_type = f32' in product
    assert product.endswith('xf32>'), product  # Weights and results.
