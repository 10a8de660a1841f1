import functools

import dnc_oracle as oracle
import haiku as hk
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import cores, recurrence, recurrent_cores
from ftwax.networks.dnc import (
  access,
  controllers,
  core,
  interfaces,
  memory_state,
  open_links,
)

pytestmark = pytest.mark.slow

BATCH, NUM_INPUTS = 3, 4
OPTIONS = {
  'exact': {},
  'plain': {},
  'sparse': {'num_links': 6},
  'none': {},
  'all options': {
    'key_masking': True,
    'deallocation': True,
    'link_sharpness': True,
    'num_writes': 2,
  },
}


def make_config(name, **kwargs):
  linkage = name if name in interfaces.LINKAGES else 'exact'
  sizes = {'num_slots': 6, 'word_size': 5, 'num_reads': 2, 'linkage': linkage}
  return cores.Memory(**{**sizes, **OPTIONS[name], **kwargs})


def make_functions(config, make_controller=None):
  """Returns init, apply and unroll of a DNC."""

  def make():
    module = core.ControlledMemory(config, make_controller)

    def init(inputs):
      return module(inputs, module.initial_state(inputs.shape[0]))

    return init, (module.__call__, module.unroll, module.initial_state)

  return hk.multi_transform(make)


def row(tree, b):
  return jax.tree.map(lambda leaf: np.asarray(leaf[b], np.float64), tree)


def oracle_state(state, b):
  fields = state._asdict()
  links = fields.pop('links')
  fields = row(fields, b)
  if links:
    fields['precedence'] = np.asarray(links.precedence[b], np.float64)
  return fields


def access_once(config, interface, state, mask=None):
  """Does one access between opening and closing the links."""
  state = open_links.open_links(config, state, has_reads_ahead=True)
  if mask is None:
    state = access.access(config, interface, state)
  else:
    state = access.masked_access(config, interface, state, mask)
    state = open_links.flush(state)
  return open_links.close_links(config, state)


@pytest.mark.parametrize('name', OPTIONS)
def test_access_is_that_of_the_oracle(name):
  config = make_config(name)
  state = memory_state.initial_state(config, BATCH)
  n = config.num_slots
  links = [np.zeros((config.num_writes, n, n)) for _ in range(BATCH)]
  largest_link = 0.0
  rng = np.random.default_rng(0)
  # Not from an empty memory, where equal usages are in no certain order.
  state = state._replace(
    memory=jnp.float32(rng.normal(size=state.memory.shape)),
    usage=jnp.float32(0.1 * rng.uniform(size=state.usage.shape)),
  )
  step = jax.jit(functools.partial(access_once, config))
  for _ in range(8):
    numbers = rng.normal(size=(BATCH, interfaces.interface_size(config)))
    interface = interfaces.parse_interface(config, 4 * jnp.float32(numbers))
    new_state = step(interface, state)
    for b in range(BATCH):
      fields = {k: v for k, v in interface._asdict().items() if v is not None}
      expected = oracle.access(
        row(fields, b),
        {**oracle_state(state, b), 'link': links[b]},
        'exact' if name in ('plain', 'all options') else name,
        num_links=config.num_links,
        deallocation=config.deallocation,
      )
      links[b] = expected.pop('link')
      largest_link = max(largest_link, *links[b].ravel(), 0.0)
      for key, value in oracle_state(new_state, b).items():
        np.testing.assert_allclose(value, expected[key], atol=1e-5, err_msg=key)
    state = new_state
    # Less than the gate where there is not a whole slot left to allocate.
    sums = np.sum(state.write_weights, -1)
    assert np.all(sums <= interface.write_gates + 1e-5)
    assert np.all(np.sum(state.read_weights, -1) <= 1.0 + 1e-5)
  if config.has_links:
    assert largest_link > 0.1


@pytest.mark.parametrize('name', ['exact', 'sparse', 'none'])
def test_masked_rows_stay_as_they_are(name):
  config = make_config(name)
  rng = np.random.default_rng(0)
  state = memory_state.initial_state(config, BATCH)
  step = jax.jit(functools.partial(access_once, config))
  for mask in ([True] * 3, [True] * 3, [True, False, True]):
    numbers = rng.normal(size=(BATCH, interfaces.interface_size(config)))
    interface = interfaces.parse_interface(config, jnp.float32(numbers))
    before, mask = state, jnp.array(mask)
    state = step(interface, state, mask)
    unmasked = step(interface, before)
  jax.tree.map(
    lambda x, y: np.testing.assert_array_equal(x[1], y[1]), state, before
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x[::2], y[::2], atol=1e-6),
    state,
    unmasked,
  )


def assert_close(expected, found, **tolerance):
  tolerance = tolerance or {'atol': 1e-5}
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, **tolerance), expected, found
  )


def make_sequence(num_steps=9):
  rng = np.random.default_rng(1)
  inputs = rng.normal(size=(num_steps, BATCH, NUM_INPUTS)).astype(np.float32)
  start = np.zeros((num_steps, BATCH), bool)
  start[num_steps // 3, 1] = start[-1, 2] = start[0, 0] = True
  return inputs, jnp.array(start)


@pytest.mark.parametrize('name', OPTIONS)
def test_unroll_equals_steps_with_resets(name, key):
  config = cores.DNC(8, memory=make_config(name), output_size=7)
  transformed = make_functions(config)
  inputs, start = make_sequence()
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, unroll, initial_state = transformed.apply
  apply = jax.jit(apply)
  warm = apply(params, None, inputs[3], initial_state({}, None, BATCH))[1]
  outputs, last = jax.jit(lambda *args: unroll(params, None, *args))(
    inputs, start, warm
  )
  state = warm
  for t in range(len(inputs)):
    state = recurrence.reset_state(start[t], state)
    output, state = apply(params, None, inputs[t], state)
    assert_close(output, jax.tree.map(lambda leaf, t=t: leaf[t], outputs))
  assert_close(state, last)
  assert outputs.features.shape == (len(inputs), BATCH, 7)


def make_loss(config, key, num_steps):
  transformed = make_functions(config)
  inputs, start = make_sequence(num_steps)
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, unroll, initial_state = transformed.apply
  state = jax.jit(apply)(
    params, None, inputs[0], initial_state({}, None, BATCH)
  )[1]

  def loss(params, inputs, state):
    outputs, last = unroll(params, None, inputs, start, state)
    reads = last.memory.read_weights
    return jnp.mean(outputs.features**2) + jnp.sum(reads**2)

  return loss, (params, inputs, state)


@pytest.mark.parametrize('num_steps', [3, 11])
def test_recomputing_gradient_equals_autodiff_of_the_plain_form(num_steps, key):
  gradients = []
  for name in ('plain', 'exact'):
    config = cores.DNC(8, memory=make_config(name), output_size=7)
    loss, args = make_loss(config, key, num_steps)
    gradients.append(jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*args))
  expected, found = gradients

  def compare(x, y):
    if x.shape == (BATCH, 1, 6, 6):  # The link's diagonal is always zero.
      off_diagonal = 1.0 - np.eye(6)[None, None]
      x, y = x * off_diagonal, y * off_diagonal
    np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3)

  jax.tree.map(compare, expected, found)


@pytest.mark.parametrize('name', ['sparse', 'all options'])
def test_recomputing_changes_no_gradient(name, key):
  """Against the same steps without any recomputation or deferred weights."""
  config = cores.DNC(8, memory=make_config(name), output_size=7)
  transformed = make_functions(config)
  inputs, start = make_sequence(4)
  start = jnp.zeros_like(start)
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, unroll, initial_state = transformed.apply
  zero = initial_state({}, None, BATCH)

  def unrolled(params):
    return jnp.sum(unroll(params, None, inputs, start, zero)[0].features ** 2)

  def stepped(params):
    total, state = 0.0, zero
    for step_inputs in inputs:
      output, state = apply(params, None, step_inputs, state)
      total += jnp.sum(output.features**2)
    return total

  expected = jax.jit(jax.grad(stepped))(params)
  found = jax.jit(jax.grad(unrolled))(params)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3),
    expected,
    found,
  )


def test_gradient_of_parameters_equals_finite_differences(key):
  memory = make_config('exact', usage_gradient=True)
  config = cores.DNC(8, memory=memory, output_size=7)
  loss, (params, inputs, state) = make_loss(config, key, 5)
  flat, unflatten = jax.flatten_util.ravel_pytree(params)
  value = jax.jit(lambda flat: loss(unflatten(flat), inputs, state))
  gradient = jax.jit(jax.grad(value))(flat)
  rng = np.random.default_rng(0)
  for _ in range(5):
    direction = rng.normal(size=flat.shape).astype(np.float32)
    difference = value(flat + 1e-3 * direction) - value(flat - 1e-3 * direction)
    np.testing.assert_allclose(
      jnp.vdot(gradient, direction), difference / 2e-3, rtol=1e-2, atol=2e-3
    )


@pytest.mark.parametrize('name', ['sparse', 'none', 'all options'])
def test_all_is_finite_over_ten_thousand_random_steps(name, key):
  config = cores.DNC(4, memory=make_config(name), output_size=None)
  transformed = make_functions(config)
  num_steps = 10_000
  inputs = 3 * jax.random.normal(key, (num_steps, 1, NUM_INPUTS))
  params = jax.jit(transformed.init)(key, inputs[0])
  # Wild controls: gates open and shut, strengths of some tens.
  params = jax.tree.map(lambda leaf: 4 * leaf, params)
  _, unroll, initial_state = transformed.apply
  start = jnp.zeros((num_steps, 1), bool)
  zero = initial_state({}, None, 1)

  @jax.jit
  def value_and_grad(params):
    def loss(params):
      outputs, last = unroll(params, None, inputs, start, zero)
      return jnp.mean(outputs.features), (outputs, last)

    return jax.value_and_grad(loss, has_aux=True)(params)

  (value, (outputs, last)), gradient = value_and_grad(params)
  for leaf in jax.tree.leaves((value, outputs, last, gradient)):
    assert np.all(np.isfinite(leaf))
  assert np.all(outputs.auxiliary['read_weights'].sum(-1) <= 1.0 + 1e-4)
  assert max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(gradient)) > 0.0


def test_any_core_may_be_the_controller(key):
  config = cores.DNC(8, memory=make_config('exact'))
  transformed = make_functions(
    config, lambda: controllers.CoreController(recurrent_cores.GRU(8).make())
  )
  inputs, start = make_sequence()
  params = jax.jit(transformed.init)(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  outputs, last = jax.jit(unroll)(params, None, inputs, start, state)
  assert outputs.features.shape == (9, BATCH, config.output_size)
  assert last.controller.shape == (BATCH, 8)


def test_controller_that_does_not_fit_the_memory(key):
  transformed = make_functions(
    cores.DNC(8, memory=make_config('none')),
    lambda: controllers.CoreController(recurrent_cores.GRU(9).make()),
  )
  with pytest.raises(ValueError, match=r'hidden_size \(8\) .* output \(9\)'):
    transformed.init(key, make_sequence()[0][0])


@pytest.mark.parametrize('name', ['exact', 'sparse'])
def test_zero_state_can_be_donated(name):
  """No two of its leaves share their memory."""
  transformed = make_functions(cores.DNC(8, memory=make_config(name)))
  initial_state = transformed.apply[2]
  state = initial_state({}, None, BATCH)
  pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
  assert len(set(pointers)) == len(pointers)


def test_clipping_bounds_features(key):
  config = cores.DNC(
    8, memory=make_config('none'), output_size=7, clip_value=0.1
  )
  transformed = make_functions(config)
  inputs, _ = make_sequence()
  params = jax.jit(transformed.init)(key, inputs[0])
  params = jax.tree.map(lambda leaf: 9 * leaf, params)
  apply, _, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  output, _ = jax.jit(apply)(params, None, inputs[0], state)
  assert np.max(np.abs(output.features)) == np.float32(0.1)


def test_usage_gradient_is_a_switch(key):
  def gradient(**options):
    config = cores.DNC(8, memory=make_config('exact', **options))
    loss, args = make_loss(config, key, 6)
    return jax.tree.leaves(jax.jit(jax.grad(loss))(*args))

  stopped, passed = gradient(), gradient(usage_gradient=True)
  assert any(
    np.max(np.abs(x - y)) > 1e-7 for x, y in zip(stopped, passed, strict=True)
  )


@pytest.mark.parametrize(
  ('kwargs', 'message'),
  [
    ({'num_slots': 0}, r'num_slots \(0\) of Memory must be at least 1'),
    ({'num_reads': 0}, r'num_reads \(0\) of Memory must be'),
    ({'num_writes': 0}, r'num_writes \(0\) of Memory must be'),
    ({'word_size': 2.5}, r'word_size \(2.5\) of Memory must be an integer'),
    ({'linkage': 'dense'}, r"linkage \('dense'\) of Memory must be one of"),
    (
      {'linkage': 'sparse', 'num_slots': 4},
      r'num_links \(8\) must be at most num_slots \(4\)',
    ),
    (
      {'linkage': 'none', 'link_sharpness': True},
      r"link_sharpness \(True\) must be off where linkage is 'none'",
    ),
  ],
)
def test_bad_memories(kwargs, message):
  with pytest.raises(ValueError, match=message):
    cores.Memory(**kwargs)


def test_features_may_be_without_projection():
  assert cores.DNC(4, output_size=None).output_size is None
