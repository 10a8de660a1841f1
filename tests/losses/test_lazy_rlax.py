"""rlax is imported late, and says so when it cannot be."""

import sys
import types

import pytest

from ftwax.losses import lazy_rlax


def test_rlax_is_loaded_once():
  assert lazy_rlax.load() is lazy_rlax.load() is sys.modules['rlax']


def test_a_missing_rlax_raises_the_error_of_its_import(monkeypatch):
  monkeypatch.setitem(sys.modules, 'rlax', None)
  monkeypatch.delitem(sys.modules, 'tensorflow', raising=False)
  with pytest.raises(ImportError, match='import of rlax halted'):
    lazy_rlax.load.__wrapped__()


def test_after_tensorflow_the_error_says_what_to_do(monkeypatch):
  tensorflow = types.ModuleType('tensorflow')
  monkeypatch.setitem(sys.modules, 'rlax', None)
  monkeypatch.setitem(sys.modules, 'tensorflow', tensorflow)
  message = r'need rlax, which .* after TensorFlow: .*Call .*load\(\)` before'
  with pytest.raises(ImportError, match=message):
    lazy_rlax.load.__wrapped__()
  assert sys.modules['tensorflow'] is tensorflow
