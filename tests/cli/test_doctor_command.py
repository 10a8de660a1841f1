"""`ftwax doctor` finds what is broken on purpose."""

import collections
import socket

import pytest

from ftwax.cli import commands, health_checks

_Usage = collections.namedtuple('_Usage', 'total used free')


def _levels(findings):
  return {finding.subject: finding.level for finding in findings}


def test_a_wrong_numpy_is_found(monkeypatch):
  monkeypatch.setattr(
    health_checks, '_installed', lambda name: {'numpy': '2.1.0'}.get(name)
  )
  found = list(health_checks.check_packages(['numpy<2'], {'numpy': '1.26.4'}))
  assert found[0].level == health_checks.FAULT
  assert (
    "2.1.0 is not <2; run uv sync, or pip install 'numpy<2'" in found[0].text
  )
  # One that is no fault, but not the one with which all was tested.
  found = list(health_checks.check_packages(['numpy>2'], {'numpy': '2.0.0'}))
  assert [one.level for one in found] == [health_checks.NOTE]
  assert 'numpy 2.1.0 (2.0.0)' in found[0].text


def test_what_is_missing_is_found(monkeypatch):
  monkeypatch.setattr(health_checks, '_installed', lambda name: None)
  found = list(
    health_checks.check_packages(
      ['tensorflow-cpu==2.8.4', 'ale-py; extra == "envs"'], {}
    )
  )
  assert _levels(found) == {'tensorflow-cpu': health_checks.FAULT}
  assert 'is not installed' in found[0].text


@pytest.mark.python_310  # Nothing is imported on newer ones.
def test_what_does_not_import_is_found(tmp_path, monkeypatch):
  (tmp_path / 'tensorflow.py').write_text(
    'raise ImportError("it is broken\\nin two lines")'
  )
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  found = list(health_checks.check_imports(['tensorflow', 'json']))
  assert _levels(found) == {
    'tensorflow': health_checks.FAULT,
    'json': health_checks.OK,
  }
  assert 'ImportError: it is broken' in found[0].text


def test_a_full_disk_is_found(monkeypatch):
  monkeypatch.setattr(
    health_checks.shutil, 'disk_usage', lambda path: _Usage(9, 9, 2**20)
  )
  (finding,) = health_checks.check_disk(['/somewhere'])
  assert finding.level == health_checks.FAULT
  assert '0.0 GiB free in /somewhere; delete old runs' in finding.text
  (finding,) = health_checks.check_shared_memory('/')
  assert finding.level == health_checks.NOTE
  assert '--shm-size' in finding.text


def test_a_taken_port_is_found():
  with socket.socket() as taken:
    taken.bind(('', 0))
    taken.listen()
    port = taken.getsockname()[1]
    (finding,) = health_checks.check_ports([port])
  assert finding.level == health_checks.FAULT
  assert f'{port}: Address already in use' in finding.text
  assert _levels(health_checks.check_ports()) == {'port': health_checks.OK}


def test_no_device_is_found(monkeypatch):
  import jax

  def fail():
    raise RuntimeError('no device')

  monkeypatch.setattr(jax, 'devices', fail)
  (finding,) = health_checks.check_devices()
  assert finding.level == health_checks.FAULT and 'no device' in finding.text


def test_the_block_ends_with_a_count(capsys, monkeypatch):
  monkeypatch.setattr(health_checks, 'check_imports', lambda: ())
  monkeypatch.setattr(health_checks, 'check_packages', lambda: ())
  assert commands.main(['doctor']) == 0
  text = capsys.readouterr().out
  assert text.startswith('ftwax 0.') and text.endswith('All checks passed.\n')
  assert 'python' in text and 'jax' in text
  with socket.socket() as taken:
    taken.bind(('', 0))
    taken.listen()
    port = taken.getsockname()[1]
    assert commands.main(['doctor', f'--port={port}']) == 1
  assert capsys.readouterr().out.endswith('1 failed.\n')
