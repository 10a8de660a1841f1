"""No operation of a replay copies what is stored, whatever its capacity.

What a call holds beside its arguments and results, as XLA counts it, must not
grow with the capacity. Results that are as large as the replay are in the
results.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases
from dm_env import specs

from ftwax.replay import functional

SPEC = {
  'observation': specs.Array((4,), np.float32),
  'step_type': specs.Array((), np.int32),
  'reward': specs.Array((), np.float32),
  'discount': specs.Array((), np.float32),
}
SHAPES = slow_cases.rows(
  [(1, 8), (1, 1), (4, 1), (4, 8), (16, 4)], [(1, 8)], ci=()
)


def _make(num_environments, length, max_length, **options):
  return functional.make_replay(
    SPEC,
    functional.ReplayConfig(
      num_environments,
      max_length,
      sequence_length=length,
      batch_size=8,
      **options,
    ),
  )


# By name: the method of the replay, and its arguments for E environments.
OPERATIONS = {
  'add': ('add', lambda e: (_steps(e),)),
  'add to some': ('add', lambda e: (_steps(1), jnp.zeros(1, jnp.int32))),
  'add_sequence': ('add_sequence', lambda e: (_steps(e, 3),)),
  'sample': ('sample', lambda e: (jax.random.PRNGKey(0),)),
  'update_priorities': (
    'update_priorities',
    lambda e: (jnp.zeros(8, jnp.int32), jnp.zeros(8, jnp.int32), jnp.ones(8)),
  ),
}


def _steps(*prefix):
  shape = prefix[::-1]
  return jax.tree.map(
    lambda spec: jnp.zeros((*shape, *spec.shape), spec.dtype), SPEC
  )


_SMALL, _LARGE = 1 << 10, 1 << 16


def _assert_constant(compile_at):
  """Asserts that memory does not grow, and that no large array is copied.

  Args:
    compile_at: returns what is compiled for a capacity.
  """
  small, large = compile_at(_SMALL), compile_at(_LARGE)
  few, many = (
    compiled.memory_analysis().temp_size_in_bytes for compiled in (small, large)
  )
  # A level more of a tree, or a wider draw, may take some hundred bytes.
  assert many < few + 2000
  copied = [
    math.prod(map(int, shape.split(',')))
    for shape in re.findall(r'= \w+\[([\d,]+)\]\S* copy\(', large.as_text())
  ]
  assert max(copied, default=0) < _LARGE // 16


def _compile(operation, num_environments, length, capacity, **options):
  replay = _make(
    num_environments, length, capacity // num_environments, **options
  )
  name, make_arguments = OPERATIONS[operation]
  donates = () if name == 'sample' else (0,)
  function = jax.jit(getattr(replay, name), donate_argnums=donates)
  state = jax.eval_shape(replay.init)
  return function.lower(state, *make_arguments(num_environments)).compile()


@pytest.mark.parametrize(
  'prioritized', [pytest.param(False, marks=pytest.mark.slow), True]
)
@pytest.mark.parametrize(('num_environments', 'length'), SHAPES)
@pytest.mark.parametrize('operation', OPERATIONS)
def test_no_operation_copies_what_is_stored(
  operation, num_environments, length, prioritized
):
  if operation == 'update_priorities' and not prioritized:
    return
  _assert_constant(
    lambda capacity: _compile(
      operation, num_environments, length, capacity, prioritized=prioritized
    )
  )


@pytest.mark.parametrize('num_environments', [1, 4])
@pytest.mark.parametrize('operation', ['add', 'add_sequence', 'sample'])
def test_nor_with_episodes_and_returns(operation, num_environments):
  options = {'prioritized': True, 'episodes': True, 'record_returns': True}
  _assert_constant(
    lambda capacity: _compile(
      operation, num_environments, 4, capacity, **options
    )
  )


def test_nor_for_members_of_a_population():
  """A population maps over replays, whose trees are then one array."""

  def compile_at(capacity):
    replay = _make(2, 4, capacity // 2, prioritized=True)
    state = jax.eval_shape(jax.vmap(lambda _: replay.init()), jnp.arange(3))
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), _steps(2))
    function = jax.jit(jax.vmap(replay.add), donate_argnums=0)
    return function.lower(state, batch).compile()

  _assert_constant(compile_at)
