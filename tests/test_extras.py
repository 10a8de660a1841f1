import sys

import pytest

from ftwax import extras


@pytest.mark.parametrize(
  ('package', 'module', 'extra'),
  [
    ('ale_py', 'atari', 'envs'),
    ('cv2', 'atari', 'envs'),
  ],
)
def test_missing_packages_are_named(monkeypatch, package, module, extra):
  monkeypatch.setitem(sys.modules, package, None)
  for name in [key for key in sys.modules if key.startswith(f'{package}.')]:
    monkeypatch.setitem(sys.modules, name, None)
  module = f'ftwax.environments.{module}'
  monkeypatch.delitem(sys.modules, module, raising=False)
  with pytest.raises(
    ImportError, match=rf'must be installed .* run uv sync.*\[{extra}\]'
  ):
    __import__(module)


def test_the_remedy_is_that_of_the_installation(monkeypatch, tmp_path):
  assert extras.install('web').startswith('uv sync --extra web, or')
  assert extras.install('').startswith('uv sync, or')
  assert extras.install('acme') == (
    'uv sync --extra acme, or pip install -c constraints-acme.txt -e ".[acme]"'
  )
  package = tmp_path / 'site-packages' / 'ftwax'
  monkeypatch.setattr(extras, '__file__', str(package / 'extras.py'))
  assert extras.install('web') == 'pip install "ftwax[web]"'
