"""Local runs whose environments step together, in vectors or processes."""

import functools
import os
import signal

import fakes
import gymnasium
import pytest
import run_helpers

from ftwax.agents import impala
from ftwax.environments import (
  catch,
  gymnasium_adapter,
  process_games,
  vector,
)
from ftwax.networks import cores
from ftwax.records import checkpoints
from ftwax.replay import replay_options

CONFIG = impala.IMPALAConfig(
  core=cores.LSTM(8),
  sequence_length=5,
  batch_size=4,
  queue=replay_options.Queue(max_size=8),
)


def _make_cart_pole(seed):
  env = gymnasium.make('CartPole-v1', max_episode_steps=10)
  return gymnasium_adapter.GymnasiumEnvironment(env, seed)


def _make_cart_poles(num_environments, seed):
  # Rows get seeds of their own as single environments do, for comparison.
  return vector.VectorEnvironment(
    [_make_cart_pole(seed + row) for row in range(num_environments)]
  )


def _make_gymnasium_vector(num_environments, seed):
  made = gymnasium.make_vec(
    'CartPole-v1',
    num_environments,
    vectorization_mode='sync',
    max_episode_steps=10,
  )
  return gymnasium_adapter.GymnasiumVectorEnvironment(made, seed)


class _Dying(fakes.FakeEnvironment):
  """Kills its process at some step; in the process of the run it lives on."""

  def __init__(self, seed, runner):
    super().__init__(fakes.make_vector_spec(), 4, seed=seed)
    self._steps_left = 30 if os.getpid() != runner else 10**9

  def step(self, action):
    self._steps_left -= 1
    if not self._steps_left:
      os.kill(os.getpid(), signal.SIGKILL)
    return super().step(action)


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('local', tmp_path)


def _make_experiment(factory, **options):
  options = {'num_environments': 2, **options}
  return run_helpers.make_experiment(CONFIG, factory, **options)


@pytest.mark.slow
def test_processes_change_no_result(run):
  alone, apart = (
    run(
      _make_experiment(
        _make_cart_pole, stepping=process_games.Stepping(processes)
      ),
      f'run_{processes}',
      eval_every=100,
      num_eval_episodes=3,
    )
    for processes in (0, 2)
  )
  assert alone.counts._replace(seconds=0) == apart.counts._replace(seconds=0)
  run_helpers.assert_same(alone.state, apart.state)


@pytest.mark.slow
def test_vectors_train_and_evaluate(run):
  one, other = (
    run(
      _make_experiment(vector.VectorFactory(make)),
      make.__name__,
      eval_every=100,
      num_eval_episodes=3,
    )
    for make in (_make_gymnasium_vector, _make_cart_poles)
  )
  assert one.counts.actor_steps >= 200 and one.counts.learner_steps
  run_helpers.assert_same(one.state, other.state)


def test_a_process_that_dies_costs_no_training(run, tmp_path):
  experiment = _make_experiment(
    functools.partial(_Dying, runner=os.getpid()),
    stepping=process_games.Stepping(1),
  )
  with pytest.raises(
    process_games.EnvironmentProcessError,
    match=r"environment 'test\[0..1\]' .* ended by SIGKILL",
  ):
    run(experiment)
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  # Of 29 calls after the first, those of two iterations: 8 steps of each and 2
  # starts of episodes.
  assert saved.steps() == [32]
  saved.close()
  resumed = run(
    experiment.replace(stepping=process_games.Stepping()), resume=True
  )
  assert resumed.counts.actor_steps == 208


def test_bad_options_are_refused(tmp_path):
  with pytest.raises(
    ValueError, match=r'processes \(2\) must be 0 for runtime='
  ):
    run_helpers.make_run('device', tmp_path)(
      _make_experiment(catch.make, stepping=process_games.Stepping(2))
    )
  with pytest.raises(ValueError, match=r'processes \(-1\) of Stepping must'):
    process_games.Stepping(-1)
  with pytest.raises(
    ValueError, match=r'timeout_s \(0\) of Stepping must be .*above 0'
  ):
    process_games.Stepping(timeout_s=0)
