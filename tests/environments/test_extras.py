import sys

import pytest


@pytest.mark.parametrize(
  ('package', 'module', 'message'),
  [
    (
      'gymnasium',
      'gymnasium_spaces',
      r'gymnasium must .* `pip install .*\[envs\]',
    ),
    ('ale_py', 'atari', r'ale-py must .* `pip install .*\[envs\]'),
    ('cv2', 'atari', r'opencv-python-headless must .* `pip install .*\[envs\]'),
  ],
)
def test_missing_packages_are_named(monkeypatch, package, module, message):
  monkeypatch.setitem(sys.modules, package, None)
  for name in [key for key in sys.modules if key.startswith(f'{package}.')]:
    monkeypatch.setitem(sys.modules, name, None)
  module = f'ftwax.environments.{module}'
  monkeypatch.delitem(sys.modules, module, raising=False)
  with pytest.raises(ImportError, match=message):
    __import__(module)
