"""rlax is imported late and without TensorFlow, and an error says why not."""

import subprocess
import sys
import types

import pytest

from ftwax.losses import lazy_rlax

_LOAD = """
import sys
from ftwax.losses import lazy_rlax
rlax = lazy_rlax.load()
loaded = [name for name in sys.modules if name.startswith('tensorflow')]
print([name for name in loaded if not name.startswith('tensorflow_prob')])
import jax.numpy as jnp
print(rlax.vtrace(*[jnp.ones(3)] * 5))
"""


def test_rlax_is_loaded_once():
  assert lazy_rlax.load() is lazy_rlax.load() is sys.modules['rlax']


@pytest.mark.slow
def test_tensorflow_is_not_loaded():
  printed = subprocess.run(
    [sys.executable, '-c', _LOAD],
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  ).stdout
  assert printed.splitlines() == ['[]', '[3. 2. 1.]']


@pytest.mark.parametrize('loaded', [None, types.ModuleType('tensorflow')])
def test_a_missing_rlax_raises_the_error_of_its_import(monkeypatch, loaded):
  monkeypatch.setitem(sys.modules, 'rlax', None)
  if loaded is None:
    monkeypatch.delitem(sys.modules, 'tensorflow', raising=False)
  else:
    monkeypatch.setitem(sys.modules, 'tensorflow', loaded)
  message = r'need rlax, which cannot be imported: import of rlax halted'
  with pytest.raises(ImportError, match=message):
    lazy_rlax.load.__wrapped__()
  assert sys.modules.get('tensorflow') is loaded
