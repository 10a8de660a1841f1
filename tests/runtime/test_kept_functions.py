"""Compiled functions are kept in the user's cache directory."""

import os
import pathlib
import re
import stat

import jax
import pytest

from ftwax.runtime import devices

SETTINGS = (
  'jax_compilation_cache_dir',
  'jax_enable_compilation_cache',
  'jax_persistent_cache_min_compile_time_secs',
)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
  """Returns the user's cache directory; no setting of JAX's is in the way."""
  before = {name: getattr(jax.config, name) for name in SETTINGS}
  for name in SETTINGS:  # Set first, so that what a test sets is taken back.
    monkeypatch.setenv(name.upper(), '')
    monkeypatch.delenv(name.upper())
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  jax.config.update('jax_compilation_cache_dir', None)
  jax.config.update('jax_enable_compilation_cache', True)
  yield tmp_path
  for name, value in before.items():
    jax.config.update(name, value)


def test_a_directory_of_the_user_alone_is_chosen(cache):
  devices.keep_compiled_functions()
  path = pathlib.Path(jax.config.jax_compilation_cache_dir)
  assert path.parent == cache / 'ftwax' / 'jax'
  assert stat.S_IMODE(path.stat().st_mode) == 0o700
  # Programs that this one starts find it, too.
  assert os.environ['JAX_COMPILATION_CACHE_DIR'] == str(path)


@pytest.mark.parametrize(
  ('name', 'value'),
  [
    ('jax_compilation_cache_dir', '/chosen/by/the/user'),
    ('jax_enable_compilation_cache', False),
  ],
)
def test_settings_of_jax_have_precedence(cache, name, value):
  jax.config.update(name, value)
  devices.keep_compiled_functions()
  assert getattr(jax.config, name) == value
  assert 'JAX_COMPILATION_CACHE_DIR' not in os.environ
  assert list(cache.iterdir()) == []


def test_other_settings_of_the_environment_stay(monkeypatch):
  monkeypatch.setenv('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '7')
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 7.0)
  devices.keep_compiled_functions()
  assert jax.config.jax_persistent_cache_min_compile_time_secs == 7.0


def test_nothing_is_kept_where_nothing_can_be_written(cache):
  (cache / 'ftwax').write_text('a file in place of a directory')
  devices.keep_compiled_functions()
  assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize('kind', ['writable', 'of another', 'link'])
def test_machine_code_of_others_is_not_taken(
  cache, tmp_path, monkeypatch, caplog, kind
):
  devices.keep_compiled_functions()
  path = pathlib.Path(jax.config.jax_compilation_cache_dir)
  jax.config.update('jax_compilation_cache_dir', None)
  monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR')
  if kind == 'writable':
    path.chmod(0o777)
  elif kind == 'of another':
    own = os.getuid()
    monkeypatch.setattr(os, 'getuid', lambda: own + 1)
  else:
    path.rename(tmp_path / 'elsewhere')
    path.symlink_to(tmp_path / 'elsewhere')
  devices.keep_compiled_functions()
  assert not jax.config.jax_compilation_cache_dir
  assert re.search('not kept: .* must be a directory of this user', caplog.text)


def test_what_was_used_least_recently_is_deleted(monkeypatch):
  devices.keep_compiled_functions()
  path = pathlib.Path(jax.config.jax_compilation_cache_dir)
  for used_at, name in enumerate(('oldest', 'old', 'new')):
    (path / name).write_bytes(bytes(10))
    os.utime(path / name, (used_at, used_at))
  jax.config.update('jax_compilation_cache_dir', None)
  monkeypatch.setattr(devices, '_MAX_CACHE_BYTES', 20)
  devices.keep_compiled_functions()
  assert sorted(file.name for file in path.iterdir()) == ['new', 'old']
