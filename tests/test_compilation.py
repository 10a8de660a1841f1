"""What is printed while something takes time."""

import jax

from ftwax import compilation


def test_compiling_is_announced_before_and_timed(capsys):
  with compilation.shown('a run: compiling'):
    assert capsys.readouterr().out == 'a run: compiling...\n'
  out = capsys.readouterr().out
  assert out.startswith('a run: compiling took ') and out.count('\n') == 1


def test_what_is_compiled_is_counted():
  before = compilation.num_compiled()
  function = jax.jit(lambda x: x + 1)
  function(1.0)
  assert compilation.num_compiled() > before
  after = compilation.num_compiled()
  function(2.0)
  assert compilation.num_compiled() == after
