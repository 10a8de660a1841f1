"""What a test process frees between modules."""

import held_memory
import jax
import numpy as np


def test_only_what_compiled_is_freed():
  held_memory.free()
  assert not held_memory.holds_compiled()
  function = jax.jit(lambda x: x + 1)
  function(np.ones(3))
  assert held_memory.holds_compiled()
  assert function._cache_size() == 1
  held_memory.free()
  assert not held_memory.holds_compiled()
  assert function._cache_size() == 0
