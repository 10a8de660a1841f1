"""`ftwax doctor` prints what a bug report needs, and finds what is broken."""

import importlib.metadata

import jax

from ftwax.cli import commands


def test_the_block_has_versions_and_devices(capsys):
  assert commands.main(['doctor']) == 0
  text = capsys.readouterr().out
  assert text.startswith('ftwax 0.') and text.endswith('All checks passed.\n')
  for line in ('python 3.', f'jax {jax.__version__}', 'devices ', 'JAX_PLAT'):
    assert f'\n{line}' in text


def test_missing_and_wrong_packages_are_faults(capsys, monkeypatch):
  required = ['numpy>999', 'no-such-package', 'ale-py; extra == "envs"']
  monkeypatch.setattr(importlib.metadata, 'requires', lambda name: required)
  assert commands.main(['doctor']) == 1
  text = capsys.readouterr().out
  assert 'FAULT numpy>999 is required; run uv sync' in text
  assert 'no-such-package is not installed\n' in text
  assert 'ale-py' not in text and text.endswith('2 failed.\n')


def test_no_device_is_a_fault(capsys, monkeypatch):
  def fail():
    raise RuntimeError('no device')

  monkeypatch.setattr(jax, 'devices', fail)
  assert commands.main(['doctor']) == 1
  assert 'JAX cannot compute: RuntimeError: no dev' in capsys.readouterr().out
