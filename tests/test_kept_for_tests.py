"""The folders of functions and modules that sessions of tests keep."""

import os
import subprocess
import sys

import kept_functions


def test_the_folder_is_that_of_versions_and_machine(tmp_path, monkeypatch):
  folder = kept_functions.make_folder(tmp_path)
  (folder / 'function').write_bytes(b'x' * 10)
  assert kept_functions.make_folder(tmp_path) == folder
  assert (folder / 'function').exists()
  monkeypatch.setattr(
    kept_functions.importlib.metadata, 'version', lambda name: f'{name} 99'
  )
  other = kept_functions.make_folder(tmp_path)
  # Another session may still write there, until it is old.
  assert other != folder and folder.exists()
  os.utime(folder, (0, 0))
  assert kept_functions.make_folder(tmp_path) == other
  assert not folder.exists()


def test_a_large_folder_loses_its_older_half(tmp_path, monkeypatch):
  """Another session may be using it, which misses what it lacks."""
  folder = kept_functions.make_folder(tmp_path)
  for age in range(4):
    path = folder / f'function_{age}'
    path.write_bytes(b'x' * 10)
    os.utime(path, (2e9 - age, 2e9 - age))
  monkeypatch.setattr(kept_functions, '_MAX_BYTES', 40)
  kept_functions.make_folder(tmp_path)
  assert len([*folder.iterdir()]) == 4
  monkeypatch.setattr(kept_functions, '_MAX_BYTES', 39)
  kept_functions.make_folder(tmp_path)
  assert [path.name for path in folder.iterdir()] == ['function_0']


def test_clones_and_pythons_share_a_folder_of_the_user(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  folder = kept_functions.make_folder()
  assert folder.is_relative_to(tmp_path)
  monkeypatch.setattr(kept_functions.platform, 'python_version', lambda: '3.9')
  assert kept_functions.make_folder() == folder
  if os.name == 'posix':
    modes = {path.stat().st_mode & 0o777 for path in (folder, folder.parent)}
    assert modes == {0o700}


def test_functions_are_kept_in_the_clone_of_a_user_without_a_cache(
  tmp_path, monkeypatch
):
  (tmp_path / 'file').write_text('')
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'file'))
  assert '.pytest_cache' in kept_functions.find_root().parts


def test_all_processes_of_a_session_have_the_same_flags(monkeypatch):
  """Those of xdist inherit what the first one added."""
  flags = os.environ['XLA_FLAGS'].split()
  assert flags and len(flags) == len({*flags})
  monkeypatch.setenv('XLA_FLAGS', '--xla_of_user=1')
  for _ in range(2):
    kept_functions.add_flags('--xla_of_tests=2')
    assert os.environ['XLA_FLAGS'] == '--xla_of_user=1 --xla_of_tests=2'


_KEEPS_MODULES = """
import pathlib, subprocess, sys
import kept_functions
kept_functions.keep_modules(pathlib.Path(sys.argv[1]))
import here
subprocess.run([sys.executable, '-c', 'import there'], check=True)
"""


def test_modules_are_kept_where_python_must_not_write_beside_them(tmp_path):
  folder = tmp_path / 'kept'
  for name in ('here', 'there'):
    (tmp_path / f'{name}.py').write_text('')
  path = f'{tmp_path}{os.pathsep}{os.path.dirname(kept_functions.__file__)}'

  def run():
    subprocess.run(
      [sys.executable, '-c', _KEEPS_MODULES, folder],
      env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONPATH': path},
      check=True,
    )
    return sorted(file.name.split('.')[0] for file in folder.rglob('*.pyc'))

  assert {'here', 'there'} <= {*run()}
  assert not [*tmp_path.rglob('__pycache__')]
  (folder / 'old.pyc').write_bytes(b'')
  assert 'old' in run()


def test_a_large_folder_of_modules_begins_anew(tmp_path, monkeypatch):
  for name in ('PYTHONDONTWRITEBYTECODE', 'PYTHONPYCACHEPREFIX'):
    monkeypatch.setenv(name, '')
  for name in ('pycache_prefix', 'dont_write_bytecode'):
    monkeypatch.setattr(sys, name, getattr(sys, name))
  module = tmp_path / 'module.pyc'
  module.write_bytes(b'x' * 10)
  kept_functions.keep_modules(tmp_path)
  assert module.exists()
  monkeypatch.setattr(kept_functions, '_MAX_BYTES', 5)
  kept_functions.keep_modules(tmp_path)
  assert not module.exists()
