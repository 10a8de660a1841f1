"""The rules in which an agent of given specs can play."""

import pytest

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import browser


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'view_size': 5, 'compass': False},
    {'observation': 'rgb'},
    {'observation': 'rgb', 'tile_size': 3},
    {'observation': 'rgb', 'view_size': 9},
  ],
)
def test_a_config_is_read_from_the_specs_of_an_agent(options):
  spec = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(height=11, width=15, **options)
  ).spec
  read = browser.read_config(spec, team_size=2)
  assert capture_the_flag.make(read).spec == spec
  for name in ('view_size', 'tile_size', 'observation'):
    assert getattr(read, name) == options.get(
      name, getattr(capture_the_flag.CaptureTheFlagConfig, name)
    )
