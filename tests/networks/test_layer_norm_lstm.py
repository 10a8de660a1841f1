"""The LSTM with layer norm and dropout, against its equations.

i, j, f, o = LN(gates), without biases
c' = LN(c sigmoid(f + forget bias) + dropout(tanh(j)) sigmoid(i))
h' = tanh(c') sigmoid(o)
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases

from ftwax import scans
from ftwax.networks import (
  cores,
  gated_unrolls,
  noise,
  recurrence,
  recurrent_cores,
)

T, B, INPUTS, H, RATE, FORGET_BIAS = 7, 3, 5, 6, 0.5, 1.5
CORE = cores.LSTM(H, FORGET_BIAS, layer_norm=True, dropout=RATE)


def make(core):
  """Returns init, and apply with the entries initial_state, step, unroll."""

  def make_functions():
    made = core.make()

    def init(inputs):
      made(inputs, made.initial_state(len(inputs)))

    def step(inputs, state):
      return made(inputs, state)

    def unroll(inputs, start, state):
      return made.unroll(inputs, start, state)

    return init, (made.initial_state, step, unroll)

  transformed = hk.without_apply_rng(hk.multi_transform(make_functions))
  return transformed.init, *transformed.apply


def random_params(init, seed=0):
  """Returns parameters, none of which is as at first."""
  random = np.random.default_rng(seed)
  shapes = jax.eval_shape(init, jax.random.PRNGKey(0), jnp.ones((B, INPUTS)))
  return jax.tree.map(
    lambda leaf: jnp.float32(random.normal(size=leaf.shape)), shapes
  )


def data(seed=0):
  random = np.random.default_rng(seed)
  start = np.zeros((T, B), bool)
  # Row 0 never starts, row 1 does at first and later, row 2 in the middle.
  start[0, 1] = start[4, 1] = start[5, 1] = start[3, 2] = True
  state = [jnp.float32(random.normal(size=(B, H))) for _ in range(2)]
  return (
    jnp.float32(random.normal(size=(T, B, INPUTS))),
    jnp.asarray(start),
    state,
    jnp.float32(random.uniform(size=(T, B, H))),
  )


def by_definition(np, params, x, h, c, drawn):
  """One step of all rows, in NumPy or JAX; returns `h` and `c`."""

  def norm(x, k):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normalized = (x - mean) / np.sqrt(variance + 1e-12)
    return normalized * params['gain'][k][None] + params['shift'][k][None]

  def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))

  gates = x @ params['w_i'] + h @ params['w_h']
  i, j, f, o = (norm(gates[:, k * H : (k + 1) * H], k) for k in range(4))
  candidate = np.where(drawn < RATE, 0.0, np.tanh(j) / (1.0 - RATE))
  c = norm(c * sigmoid(f + FORGET_BIAS) + candidate * sigmoid(i), 4)
  return np.tanh(c) * sigmoid(o), c


@pytest.fixture(name='drawn')
def fix_the_draws(monkeypatch):
  """Makes modules draw given numbers, all of an unroll or those of a step."""
  current = {'draws': data()[-1][0]}
  monkeypatch.setattr(noise, 'uniform', lambda size: current['draws'])
  return current


@pytest.mark.usefixtures('drawn')
def test_a_step_equals_numpy():
  init, _, step, _ = make(CORE)
  params = random_params(init)
  assert set(params['lstm']) == {'w_i', 'w_h', 'gain', 'shift'}
  inputs, _, state, draws = data()
  output, after = jax.jit(step)(params, inputs[0], make_state(state))
  exact = jax.tree.map(lambda leaf: np.float64(leaf), params['lstm'])
  h, c = by_definition(
    np, exact, *map(np.float64, (inputs[0], *state)), np.asarray(draws[0])
  )
  np.testing.assert_allclose(output.features, h, atol=2e-6)
  np.testing.assert_array_equal(after.hidden, output.features)
  np.testing.assert_allclose(after.cell, c, atol=2e-6)


def make_state(state):
  return recurrent_cores.LSTMState(*state)


def unroll_by_definition(params, inputs, start, state, draws):
  h, c = state
  hidden = []
  for t in range(T):
    h, c = (jnp.where(start[t][:, None], 0.0, x) for x in (h, c))
    h, c = by_definition(jnp, params['lstm'], inputs[t], h, c, draws[t])
    hidden.append(h)
  return jnp.stack(hidden), (h, c)


@pytest.mark.parametrize(
  'on_accelerator', slow_cases.cases([False, True], [], ci=[False])
)
def test_an_unroll_and_its_gradients_equal_the_equations(
  on_accelerator, drawn, monkeypatch
):
  """Across the starts of episodes, for parameters, inputs and first state."""
  monkeypatch.setattr(scans, 'counts_launches', lambda: on_accelerator)
  init, _, _, unroll = make(CORE)
  _, start, _, draws = data()
  arguments = random_params(init), *data()[:3:2]

  def ours(params, inputs, state):
    output, last = unroll(params, inputs, start, make_state(state))
    return output.features, tuple(last)

  def reference(params, inputs, state):
    return unroll_by_definition(params, inputs, start, state, draws)

  def differentiate(function):
    """Returns a function of its outputs and gradients, compiled as one."""

    def objective(*arguments):
      outputs = function(*arguments)
      leaves = enumerate(jax.tree.leaves(outputs))
      return sum(jnp.sum(jnp.sin((i + 1) * x)) for i, x in leaves), outputs

    return jax.jit(jax.value_and_grad(objective, (0, 1, 2), has_aux=True))

  with jax.enable_x64(True):  # Rounding would hide small differences.
    arguments = jax.tree.map(lambda x: jnp.float64(np.asarray(x)), arguments)
    drawn['draws'] = draws = jnp.float64(np.asarray(draws))
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9),
      differentiate(ours)(*arguments),
      differentiate(reference)(*arguments),
    )


def test_zero_inputs_have_small_gradients():
  """All gates are equal there, which a norm could divide by almost zero."""
  init, initial_state, _, unroll = make(CORE.replace(dropout=None))
  params = jax.jit(init)(jax.random.PRNGKey(0), np.ones((B, INPUTS), 'f'))

  def objective(params, inputs):
    start = jnp.zeros((T, B), bool)
    output, _ = unroll(params, inputs, start, initial_state({}, B))
    return jnp.sum(jnp.sin(1.0 + output.features))

  differentiate = jax.jit(jax.grad(objective, (0, 1)))
  gradients = differentiate(params, np.zeros((T, B, INPUTS), 'f'))
  for leaf in jax.tree.leaves(gradients):
    assert np.abs(np.asarray(leaf)).max() < 100.0


@pytest.mark.parametrize(
  'core',
  [
    CORE,
    cores.LSTM(H, dropout=RATE),
    cores.StackedLSTM((H, H), layer=CORE),
  ],
)
def test_masks_are_functions_of_seeds(core):
  """Each step of each row has its own; without seeds there is none."""
  init, initial_state, step, unroll = make(core)
  inputs, start, _, _ = data()
  params = random_params(init)
  state = initial_state({}, B)
  seeds = np.arange(T * B, dtype=np.int32).reshape(T, B)

  @jax.jit
  def unroll_seeded(params, seeds, inputs):
    with noise.seeded(seeds):
      return unroll(params, inputs, start, state)[0].features

  @jax.jit
  def step_seeded(params, seeds, inputs, start, state):
    with noise.seeded(seeds):
      return step(params, inputs, recurrence.reset_state(start, state))

  def features(seeds, inputs=inputs):
    return np.asarray(unroll_seeded(params, seeds, inputs))

  found = features(seeds)
  np.testing.assert_array_equal(features(seeds), found)
  assert np.abs(features(seeds + 1) - found).max() > 1e-2
  np.testing.assert_array_equal(features(None), features(None))
  by_steps, after = [], state
  for row in zip(seeds, np.asarray(inputs), np.asarray(start), strict=True):
    output, after = step_seeded(params, *row, after)
    by_steps.append(output.features)
  np.testing.assert_allclose(np.stack(by_steps), found, atol=2e-5)
  # Rows with the same input differ by their masks alone.
  same = features(seeds, np.ones_like(inputs))[0]
  assert np.abs(same[0] - same[1]).max() > 1e-2


def test_dropped_candidates_keep_their_mean():
  """Of a plain cell from the zero state: sigmoid(i) dropout(tanh(g))."""
  init, initial_state, step, _ = make(cores.LSTM(H, dropout=RATE))
  params = random_params(init)
  inputs = np.tile(np.asarray(data()[0])[:1, 0], (4000, 1))

  @jax.jit
  def step_from_zero(params, seeds, inputs):
    with noise.seeded(seeds):
      return step(params, inputs, initial_state({}, len(inputs)))[1].cell

  seeds = np.arange(len(inputs), dtype=np.int32)
  cells = np.asarray(step_from_zero(params, seeds, inputs))
  whole = np.asarray(step_from_zero(params, None, inputs))[0]
  share = np.mean(cells == 0.0, axis=0)
  np.testing.assert_allclose(share, RATE, atol=0.04)
  np.testing.assert_allclose(np.mean(cells, axis=0), whole, rtol=0.1)
  np.testing.assert_allclose(
    np.max(np.abs(cells), 0), np.abs(whole) / (1.0 - RATE), 1e-5
  )


@pytest.mark.parametrize('core', [CORE, cores.LSTM(16, dropout=RATE)])
def test_the_unroll_of_the_plain_cell_is_not_used(core, monkeypatch):
  def fail(*arguments):
    raise AssertionError('the unroll of another cell')

  monkeypatch.setattr(gated_unrolls, 'lstm', fail)
  init, initial_state, _, unroll = make(core)
  inputs, start, _, _ = data()
  arguments = inputs, start, initial_state({}, B)
  jax.eval_shape(unroll, random_params(init), *arguments)
  init, initial_state, _, unroll = make(cores.LSTM(16))
  arguments = inputs, start, initial_state({}, B)
  with pytest.raises(AssertionError, match='another cell'):
    jax.eval_shape(unroll, random_params(init), *arguments)


LAYERS = {
  'gru': cores.GRU(),
  'lru': cores.LRU(),
  'min_gru': cores.MinGRU(),
  'gtrxl': cores.GTrXL(),
  'feed_forward': cores.FeedForward(),
  'lstm of a length': cores.LSTM(memory_length=9),
  'layer-normed lstm': cores.LSTM(layer_norm=True),
  'dnc': cores.DNC(memory=cores.Memory(3, 2, 1), output_size=4),
}
SHORT = ('gru', 'lru', 'layer-normed lstm')


@pytest.mark.parametrize('name', slow_cases.cases(LAYERS, SHORT, ci=()))
def test_any_core_of_one_size_is_a_layer(name):
  layer = LAYERS[name]
  core = cores.StackedLSTM((8, 16), layer=layer)
  init, initial_state, step, _ = make(core)
  inputs = data()[0][0]
  params = jax.jit(init)(jax.random.PRNGKey(0), inputs)
  names = {name.split('/')[2] for name in params}
  assert names == {'layer_0', 'layer_1'}
  output, after = jax.jit(step)(params, inputs, initial_state({}, B))
  sizes = [x.shape[-1] for x in output.auxiliary['layers']]
  assert sizes == ([4, 4] if isinstance(layer, cores.DNC) else [8, 16])
  np.testing.assert_array_equal(output.features, output.auxiliary['layers'][1])
  assert len(after) == 2


@pytest.mark.parametrize(
  ('make_core', 'message'),
  [
    (lambda: cores.LSTM(dropout=1.0), r'dropout \(1.0\) must lie in \[0, 0.99'),
    (lambda: cores.LSTM(dropout='a'), r"dropout \('a'\) must be a number or a"),
    (
      lambda: cores.LSTM(memory_length=5, layer_norm=True),
      r'memory_length \(5\) of LSTM must be None with layer_norm.* forget_bias',
    ),
    (
      lambda: cores.LSTM(1, layer_norm=True),
      r'hidden_size \(1\) of LSTM must be at least 2 with layer_norm',
    ),
    (
      lambda: cores.StackedLSTM(layer=cores.RPTH()),
      r'layer \(RPTH.* of StackedLSTM must be a core with one size, such as',
    ),
    (
      lambda: cores.StackedLSTM((4, 5), layer=cores.LRU()),
      r'hidden_size \(5\) of an LRU must be even',
    ),
  ],
)
def test_bad_options(make_core, message):
  with pytest.raises(ValueError, match=message):
    make_core()
