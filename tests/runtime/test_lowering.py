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
  config = ftw.FTWConfig(
    core='lstm',
    sequence_length=3,
    batch_size=4,
    num_epochs=1,
    num_minibatches=2,
    use_pixel_control=False,
    use_reward_prediction=False,
  ).with_size(4)
  return prepare.prepare(population_helpers.make_experiment(config=config))


# Most operations of each function, loops counted once: on an accelerator, where
# each is at most one launch, these and not the arithmetic limit small agents.
MAX_OPERATIONS = {
  'init': 5_600,
  'call': 6_900,
  'act': 2_600,
  'begin_round': 3_300,
  'evolve': 2_900,
}


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
  assert text.count(' = stablehlo.') <= MAX_OPERATIONS[name]
  products = re.findall('stablehlo.dot_general .*', text)
  # Rewards and ratings ask for all of float32.
  products = [each for each in products if 'HIGHEST' not in each]
  assert products or name not in ('call', 'act')
  for product in products:
    assert product.count('_precision_type = bf16') == 2, product
    assert 'accumulation_type = f32' in product
    assert product.endswith('xf32>'), product  # Weights and results.
