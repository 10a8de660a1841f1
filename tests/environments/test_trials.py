"""Trials against the episodes that they are made of."""

import dm_env
import episodes
import fakes
import numpy as np
import pytest

from ftwax.environments import trials


def _make(num_episodes=3, calls=None, **kwargs):
  spec = kwargs.pop('spec', fakes.make_vector_spec())
  environment = fakes.FakeEnvironment(spec, episode_length=2, **kwargs)
  calls = [] if calls is None else calls
  return trials.TrialEnvironment(
    environment, num_episodes, lambda: calls.append('trial')
  )


@pytest.mark.parametrize('truncate', [False, True])
def test_episodes_of_a_trial_follow_each_other(truncate):
  calls = []
  environment = _make(calls=calls, truncate=truncate)
  inner = fakes.FakeEnvironment(
    fakes.make_vector_spec(), episode_length=2, truncate=truncate
  )
  for trial in range(2):
    timestep = environment.reset()
    assert timestep.first() and len(calls) == trial + 1
    expected = inner.reset()
    for episode in range(3):
      np.testing.assert_array_equal(
        timestep.observation['observation'], expected.observation
      )
      assert timestep.observation[trials.EPISODE_START] == 1.0
      timestep, expected = environment.step(0), inner.step(0)
      assert timestep.mid() and timestep.reward == expected.reward
      assert timestep.observation[trials.EPISODE_START] == 0.0
      timestep, ended = environment.step(0), inner.step(0)
      assert timestep.reward == ended.reward
      if episode < 2:
        assert timestep.mid() and timestep.discount == 1.0
        expected = inner.reset()
    assert timestep.last() and timestep.discount == 0.0
    np.testing.assert_array_equal(
      timestep.observation['observation'], ended.observation
    )


def test_step_after_the_end_starts_a_trial():
  environment = _make(num_episodes=1)
  kinds = [environment.step(0).step_type for _ in range(5)]
  first, mid, last = dm_env.StepType
  assert kinds == [first, mid, last, first, mid]


def test_specs_are_kept():
  environment = episodes.Checked(_make(spec=fakes.make_dict_spec()), 'trials')
  timestep = environment.reset()
  for _ in range(8):
    timestep = environment.step(0)
  assert set(timestep.observation) == {
    'image',
    'vector',
    'inventory',
    trials.EPISODE_START,
  }


def test_bad_trials_are_refused():
  with pytest.raises(
    ValueError, match=r'num_episodes \(0\) must be at least 1'
  ):
    _make(num_episodes=0)
  with pytest.raises(ValueError, match="must not have the entry 'episode_star"):
    trials.TrialEnvironment(_make(), 2)
