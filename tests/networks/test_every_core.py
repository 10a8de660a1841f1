"""What every recurrent core must do."""

import functools
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases

from ftwax.networks import cores, recurrence, rl2_core

T, B, NUM_INPUTS, SIZE = 6, 3, 5, 8
MEMORY = cores.Memory(num_slots=4, word_size=3, num_reads=1)
# A window shorter than the unroll, so that steps fall out of it.
GTRXL = cores.GTrXL(SIZE, num_heads=2, window=3)
LAYER_NORM = cores.LSTM(SIZE, layer_norm=True, dropout=0.25)


CORES = {
  **{name: core.with_size(SIZE) for name, core in cores.NAMED.items()},
  'gtrxl': GTRXL,
  'feed-forward of tanh': cores.FeedForward(
    SIZE, activation='tanh', initializer='orthogonal'
  ),
  'lru of two layers': cores.LRU(SIZE, num_layers=2),
  'gtrxl of two layers': GTRXL.replace(num_layers=2),
  'lstm of a length': cores.LSTM(SIZE, memory_length=20),
  'layer-normed lstm': LAYER_NORM,
  'lstm with dropout': cores.LSTM(SIZE, dropout=0.25),
  'stacked_lstm': cores.StackedLSTM((4, 5)),
  'stacked gru': cores.StackedLSTM((4, 5), layer=cores.GRU()),
  'skip_connection': lambda: recurrence.SkipConnection(cores.GRU(5).make()),
  'rl2': lambda: rl2_core.RL2Core(
    cores.LRU(SIZE).make(), cores.GRU(SIZE).make()
  ),
  'dnc': cores.DNC(6, memory=MEMORY, output_size=5),
  'rpth': cores.RPTH(SIZE, latent_size=4, slow_period=2),
  'rpth_dnc': cores.RPTH(SIZE, latent_size=4, slow_period=2, memory=MEMORY),
  'rpth of lru': cores.RPTH(cores.LRU(SIZE), latent_size=4, slow_period=2),
  'rpth_dnc of layer-normed lstm': cores.RPTH(
    LAYER_NORM, latent_size=4, slow_period=2, memory=MEMORY
  ),
  'rpth_dnc of gru': cores.RPTH(
    cores.GRU(SIZE), latent_size=4, slow_period=2, memory=MEMORY
  ),
}


# Those that take long to compile.
LONG = (
  'rl2',
  'dnc',
  'rpth',
  'rpth_dnc',
  'rpth of lru',
  'rpth_dnc of gru',
  'rpth_dnc of layer-normed lstm',
  'gtrxl of two layers',
)
each_core = pytest.mark.parametrize(
  'name', slow_cases.cases(CORES, {*CORES} - {*LONG}, ci=())
)


class Case(NamedTuple):
  """Functions of one core, with parameters and a first state."""

  params: dict
  state: tuple
  zero_state: tuple
  unroll: object
  unroll_by_steps: object


@functools.cache
def make_case(name):
  def make_functions():
    core = cores.as_part(CORES[name]).make()

    def step(inputs, state):
      return core(inputs, state)

    def unroll(inputs, start, state):
      return core.unroll(inputs, start, state)

    def unroll_by_steps(inputs, start, state):
      features = []
      for input_t, start_t in zip(inputs, start, strict=True):
        output, state = step(input_t, recurrence.reset_state(start_t, state))
        features.append(output.features)
      return recurrence.CoreOutput(jnp.stack(features), {}), state

    def init(inputs):
      return step(inputs, core.initial_state(B))

    return init, (core.initial_state, unroll, unroll_by_steps)

  transformed = hk.without_apply_rng(hk.multi_transform(make_functions))
  initial_state, unroll, unroll_by_steps = transformed.apply
  params = jax.jit(transformed.init)(jax.random.PRNGKey(0), make_inputs(0)[0])
  zero_state = initial_state({}, B)
  unroll, unroll_by_steps = map(jax.jit, (unroll, unroll_by_steps))
  no_start = jnp.zeros((T, B), bool)
  state = unroll(params, make_inputs(1), no_start, zero_state)[1]
  return Case(params, state, zero_state, unroll, unroll_by_steps)


def make_inputs(seed):
  rng = np.random.default_rng(seed)
  return jnp.float32(rng.normal(size=(T, B, NUM_INPUTS)))


def make_start():
  # Row 0 never starts, row 1 at first and later, row 2 in the middle.
  start = np.zeros((T, B), bool)
  start[0, 1] = start[3, 1] = start[4, 1] = start[2, 2] = True
  return jnp.asarray(start)


FIRST_STEPS = (0, 4, 2)  # Of the last episode of each row.


def assert_close(actual, expected, atol=1e-5):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=atol),
    actual,
    expected,
  )


@each_core
def test_state_is_of_fixed_shape_and_first_zero(name):
  case = make_case(name)
  for leaf in jax.tree.leaves(case.zero_state):
    assert leaf.shape[0] == B
    assert jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.dtype == jnp.int32
    assert not np.any(leaf)
  assert jax.tree.map(jnp.shape, case.state) == jax.tree.map(
    jnp.shape, case.zero_state
  )
  assert jax.tree.map(jnp.result_type, case.state) == jax.tree.map(
    jnp.result_type, case.zero_state
  )


@each_core
def test_an_unroll_equals_steps(name):
  case = make_case(name)
  args = case.params, make_inputs(0), make_start(), case.state
  output, state = case.unroll(*args)
  expected, expected_state = case.unroll_by_steps(*args)
  assert output.features.shape[:2] == (T, B)
  assert_close(output.features, expected.features)
  assert_close(state, expected_state)


@each_core
def test_nothing_passes_a_start(name):
  case, start = make_case(name), make_start()
  inputs, others = make_inputs(0), make_inputs(2)
  is_before = np.arange(T)[:, None] < np.array(FIRST_STEPS)[None]
  other_inputs = jnp.where(is_before[..., None], others, inputs)
  output, state = case.unroll(case.params, inputs, start, case.state)
  other = case.unroll(case.params, other_inputs, start, case.zero_state)
  for row, first in enumerate(FIRST_STEPS):
    if first:
      np.testing.assert_array_equal(
        output.features[first:, row], other[0].features[first:, row]
      )
      jax.tree.map(
        lambda x, y, row=row: np.testing.assert_array_equal(x[row], y[row]),
        state,
        other[1],
      )


def differentiate(unroll, case, inputs):
  """Differentiates with respect to parameters, inputs and first state."""
  is_float = [
    jnp.issubdtype(leaf.dtype, jnp.floating)
    for leaf in jax.tree.leaves(case.state)
  ]
  leaves, treedef = jax.tree.flatten(case.state)

  def objective(params, inputs, floats):
    floats = iter(floats)
    state = treedef.unflatten(
      [next(floats) if f else x for f, x in zip(is_float, leaves, strict=True)]
    )
    output, state = unroll(params, inputs, make_start(), state)
    outputs = [output.features, *jax.tree.leaves(state)]
    return sum(jnp.sum(jnp.sin((i + 1.0) * x)) for i, x in enumerate(outputs))

  floats = [x for f, x in zip(is_float, leaves, strict=True) if f]
  gradient = jax.jit(jax.grad(objective, argnums=(0, 1, 2)))
  return gradient(case.params, inputs, floats)


@pytest.mark.slow
@each_core
def test_gradients_are_those_of_steps(name):
  case, inputs = make_case(name), make_inputs(0)
  gradients = differentiate(case.unroll, case, inputs)
  expected = differentiate(case.unroll_by_steps, case, inputs)
  assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))
  assert any(np.any(x) for x in jax.tree.leaves(gradients[0]))
  assert_close(gradients, expected, atol=1e-4)


@each_core
def test_what_is_remembered_is_in_the_episode(name):
  case, inputs = make_case(name), make_inputs(0)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(None, 0))
  @jax.grad
  def differentiate_last(inputs, row):
    output, _ = case.unroll(case.params, inputs, make_start(), case.state)
    return jnp.sum(jnp.square(output.features[-1, row]))

  gradients = differentiate_last(inputs, jnp.arange(B))
  reaches = np.any(gradients != 0, axis=-1)  # [row, T, B]
  expected = np.zeros((B, T, B), bool)
  for row, first in enumerate(FIRST_STEPS):
    if isinstance(CORES[name], cores.FeedForward):
      first = T - 1
    elif name == 'gtrxl':
      first = max(first, T - 1 - 3)
    expected[row, first:, row] = True
  np.testing.assert_array_equal(reaches, expected)


@pytest.mark.parametrize(
  'name', [name for name in cores.NAMED if name not in LONG]
)
def test_members_of_a_population_each_have_their_own(name):
  case, inputs = make_case(name), make_inputs(0)
  others = jax.tree.map(lambda x: 0.5 * x, case.params)
  both = jax.tree.map(lambda *x: jnp.stack(x), case.params, others)
  unroll = jax.jit(jax.vmap(case.unroll, in_axes=(0, None, None, None)))
  outputs, _ = unroll(both, inputs, make_start(), case.state)
  for member, params in enumerate((case.params, others)):
    expected, _ = case.unroll(params, inputs, make_start(), case.state)
    assert_close(outputs.features[member], expected.features)


@pytest.mark.parametrize(
  ('make', 'options', 'message'),
  [
    (
      cores.LRU,
      {'num_layers': 0},
      r'num_layers \(0\) of LRU must be at least 1',
    ),
    (cores.MinGRU, {'memory_length': 0}, r'memory_length \(0\) of MinGRU must'),
    (
      cores.LRU,
      {'memory_length': np.nan},
      r'memory_length \(nan\) of LRU must',
    ),
    (cores.LSTM, {'memory_length': 1}, r'memory_length \(1\) of LSTM must be'),
    (cores.GTrXL, {'window': 0}, r'window \(0\) of GTrXL must be at least 1'),
    (cores.GTrXL, {'num_heads': 3}, r'must be a multiple of twice num_heads'),
    (
      cores.LRU,
      {'hidden_size': 7},
      r'hidden_size \(7\) of an LRU must',
    ),
    (
      cores.RPTH,
      {'num_levels': 1},
      r'num_levels \(1\) of RPTH must',
    ),
    (
      cores.RPTH,
      {'slow_period': (5, 20)},
      r'slow_period \(\(5, 20\)\) of RPTH must be one period, or one for each'
      r' of the 1 slow levels; for a range choose .*UniformInteger\(5, 20\)',
    ),
    (
      cores.RPTH,
      {'slow_period': (5, 2.5), 'num_levels': 3},
      r'slow_period \(2.5\) must be an integer',
    ),
    (
      cores.RPTH,
      {'slow_period': (0, 5), 'num_levels': 3},
      r'slow_period \(0\) must lie in \[1, 2.14748e\+09\]',
    ),
    (cores.RPTH, {'latent_size': 0}, r'latent_size \(0\) of RPTH must be at'),
    (cores.RPTH, {'init_scale': -1.0}, r'init_scale \(-1.0\) .* choose 0.1'),
    (cores.RPTH, {'min_scale': 0.0}, r'min_scale \(0.0\) .* choose 1e-06'),
    (cores.RPTH, {'noise_scale': -1.0}, r'noise_scale \(-1.0\) .* at least 0'),
    (cores.RPTH, {'clip_value': -1.0}, r'clip_value \(-1.0\) .* above 0'),
    (cores.DNC, {'hidden_size': 0}, r'hidden_size \(0\) of DNC must be at'),
    (cores.DNC, {'output_size': 0}, r'output_size \(0\) of DNC must be at'),
  ],
)
def test_bad_options(make, options, message):
  with pytest.raises(ValueError, match=message):
    make(**options)
