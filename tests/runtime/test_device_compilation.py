"""What is told, kept and checked while a call is compiled."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.runtime.device import run as device_run


def _advance(state):
  return {'x': state['x'] + 1.0}, jnp.sum(state['x'])


@pytest.fixture
def state():
  return {'x': jnp.arange(3.0)}


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_spinner_tells_what_is_compiled(monkeypatch, state):
  terminal = _Terminal()
  monkeypatch.setenv('TERM', 'xterm')
  monkeypatch.setattr('sys.stdout', terminal)
  device_run.compile_call(_advance, state, 'a run')
  assert 'a run: compiling' in terminal.getvalue()
  assert 'took' not in terminal.getvalue()


def test_elsewhere_a_line_tells_how_long_it_took(capsys, state):
  device_run.compile_call(_advance, state, 'a run')
  out = capsys.readouterr().out
  assert out.startswith('a run: compiling took ') and out.count('\n') == 1


def test_the_state_is_taken_over_and_stays_where_it_is(state):
  device = jax.devices()[1]
  state = jax.device_put(state, device)
  call = device_run.compile_call(_advance, state, 'a run')
  after, total = call(state)
  assert state['x'].is_deleted()
  assert after['x'].devices() == {device}
  np.testing.assert_array_equal(after['x'], [1.0, 2.0, 3.0])
  assert total == 3.0
