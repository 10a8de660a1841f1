"""Checks of environments, and the command for them."""

import pathlib
import re

import fakes
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax.cli import commands
from ftwax.environments import checking, environment_faults


class Codes(gymnasium.Env):
  """A grid of codes, rewards of a thousand, and no end."""

  observation_space = spaces.Dict(
    grid=spaces.Box(0, 255, (16, 16), np.uint8),
    far=spaces.Box(-1, 1, (1,), np.float32),
    size=spaces.Box(-np.inf, np.inf, (1,), np.float32),
  )
  action_space = spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    return self._observe(), {}

  def step(self, action):
    return self._observe(far=2.0), 1000.0 * action, False, False, {}

  def _observe(self, far=0.0):
    return {
      'grid': np.random.default_rng().integers(0, 11, (16, 16), np.uint8),
      'far': np.full(1, far, np.float32),
      'size': np.full(1, 50.0, np.float32),
    }


def test_a_good_environment_gets_facts_and_no_advice():
  found = ftwax.check_environment('CartPole-v1', num_steps=300)
  assert found.advice == ()
  assert 'float32 (4,)' in found.facts['observation']
  assert 'terminated, the others' in found.facts['episodes']
  assert found.facts['reward'] == 'from 0 to 1'
  assert found.facts['speed'].endswith('steps/s')


@pytest.mark.parametrize(
  'sentence',
  [
    "observation['grid'] is an image by its shape, divided by 255",
    "observation['far'] leaves the bounds of its spec (from 0 to 2)",
    "observation['size'] is large (from 50 to 50)",
    "observation['size'] never changes",
    'Rewards are large (from 0 to 1000)',
    'No episode ended in 50 steps',
    'The same seed and actions gave other timesteps',
  ],
)
def test_each_trap_gets_advice(sentence, findings=[]):  # noqa: B006
  if not findings:
    findings.append(checking.check(Codes, num_steps=50))
  assert any(one.startswith(sentence) for one in findings[0].advice)


class Valve(gymnasium.Env):
  """Has a bound on one side of its action."""

  observation_space = spaces.Box(0, 255, (4, 20, 20), np.uint8)
  action_space = spaces.Box(0.0, np.inf, (1,))

  def reset(self, seed=None, options=None):
    return self.observation_space.sample(), {}

  def step(self, action):
    assert action >= 0.0
    return self.observation_space.sample(), 1.0, True, False, {}


def test_half_bounded_actions_and_what_entries_are_taken_for_are_told():
  found = checking.check(Valve, num_steps=20)
  assert any('bound on one side only' in one for one in found.advice)
  assert 'pixels in [0, 1] (image, 20x20x4)' in (found.facts['observation'])


def test_random_actions_lie_within_far_bounds():
  class Far(Valve):
    action_space = spaces.Box(150.0, 200.0, (1,))

    def step(self, action):
      assert 150.0 <= action <= 200.0
      return super().step(action)

  checking.check(Far, num_steps=20)


def test_an_error_of_the_environment_is_that_of_a_run():
  class Raising(Codes):
    def step(self, action):
      raise RuntimeError('no water')

  with pytest.raises(environment_faults.EnvironmentFault, match='no water'):
    checking.check(Raising)


@pytest.mark.parametrize(
  'spec',
  [
    fakes.make_composite_spec(),
    fakes.make_continuous_spec(),
    fakes.add_action_mask(fakes.make_dict_spec()),
  ],
  ids=['parts', 'continuous', 'mask'],
)
def test_random_actions_are_those_that_the_specs_allow(spec):
  # A fake refuses others.
  found = checking.check(
    lambda seed: fakes.FakeEnvironment(spec, 5, seed=seed), 60
  )
  assert found.facts['episodes'].startswith('10 in 60 steps, of 6 steps')


def test_the_command_checks_a_file(tmp_path, capsys):
  path = tmp_path / 'my_env.py'
  path.write_text(
    'import gymnasium\n\n\n'
    'class Pole(gymnasium.Wrapper):\n'
    '  def __init__(self):\n'
    "    super().__init__(gymnasium.make('CartPole-v1'))\n"
  )
  assert commands.main(['check', f'{path}:Pole', '--steps=200']) == 0
  text = capsys.readouterr().out
  assert 'All checks passed.' in text and 'steps/s' in text
  with pytest.raises(SystemExit, match=r'no Pol; did you mean Pole\?'):
    commands.main(['check', f'{path}:Pol'])
  missing = pathlib.Path(tmp_path, 'none.py')
  with pytest.raises(SystemExit, match='must name a file, and there is no'):
    commands.main(['check', f'{missing}:Pole'])


_PAGE = pathlib.Path(__file__).parents[2] / 'docs/how_to'
_SPACES = re.findall(
  r'^\| `([A-Z].*\))` \| (.*) \|$',
  (_PAGE / 'observations_and_actions.md')
  .read_text('utf-8')
  .partition('## Legal actions')[0],
  re.MULTILINE,
)


@pytest.mark.parametrize(('text', 'taken_for'), _SPACES)
def test_the_page_says_what_each_space_is_taken_for(text, taken_for):
  names = {**vars(spaces), 'inf': np.inf}
  names |= {'uint8': np.uint8, 'float32': np.float32}
  space = eval(text, names)  # Of our own page.

  class Shows(gymnasium.Env):
    observation_space = spaces.Dict(x=space)
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
      return self.observation_space.sample(), {}

    def step(self, action):
      return self.observation_space.sample(), 1.0, True, False, {}

  found = checking.check(Shows, num_steps=3)
  assert found.facts["observation['x']"].endswith(f'taken for {taken_for}')


def test_the_page_has_thirteen_spaces():
  assert len(_SPACES) == 13
