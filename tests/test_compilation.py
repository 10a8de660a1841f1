"""What is printed while something takes time."""

import jax
import jax.numpy as jnp

from ftwax import compilation


def test_compiling_is_announced_before_and_timed(capsys):
  with compilation.shown('a run: compiling'):
    assert capsys.readouterr().out == 'a run: compiling...\n'
  out = capsys.readouterr().out
  assert out.startswith('a run: compiling took ') and out.count('\n') == 1


def test_what_takes_long_to_compile_is_counted():
  @jax.jit
  def slow(x):
    for _ in range(300):
      x = jnp.sort(jnp.sin(x) @ jnp.cos(x))
    return x

  before = compilation.num_compiled()
  slow(jnp.ones((3, 3)))
  assert compilation.num_compiled() == before + 1
  slow(jnp.zeros((3, 3)))
  jax.jit(lambda x: x + 1)(1.0)
  assert compilation.num_compiled() == before + 1
