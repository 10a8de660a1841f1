"""Games whose environments step in other processes."""

import contextlib
import errno
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import dm_env
import fakes
import gymnasium
import jax
import numpy as np
import pytest

from ftwax.environments import (
  environment_faults,
  game_vectors,
  game_worker,
  games,
  gymnasium_adapter,
  process_games,
  validation,
  vector,
)

SPEC = fakes.make_dict_spec()


def make_fake(seed):
  return fakes.FakeEnvironment(SPEC, 2 + seed, bool(seed % 2), seed)


def make_cart_pole(seed):
  env = gymnasium.make('CartPole-v1', max_episode_steps=15)
  return gymnasium_adapter.GymnasiumEnvironment(env, seed)


class Counting(games.SpecifiedGame):
  """A game of two that the player with more to its name wins."""

  def __init__(self, seed):
    super().__init__(fakes.make_vector_spec(2), (0, 1))
    self._seed = seed
    self._must_reset = True

  def reset(self):
    self._must_reset = False
    self._sums = np.full(2, self._seed)
    self._num_steps = 0
    return self._timestep(dm_env.StepType.FIRST)

  def step(self, action):
    if self._must_reset:
      return self.reset()
    self._sums = self._sums + action
    self._num_steps += 1
    self._must_reset = self._num_steps == 3
    last = dm_env.StepType.LAST
    return self._timestep(last if self._must_reset else dm_env.StepType.MID)

  def outcome(self):
    return games.outcome_of_scores(self._sums)

  def close(self):
    pass

  def _timestep(self, step_type):
    observation = np.repeat(self._sums[:, None], 2, axis=1).astype(np.float32)
    return dm_env.TimeStep(
      np.full(2, step_type, np.int32),
      np.zeros(2, np.float32),
      np.ones(2, np.float32),
      observation,
    )


class Broken(fakes.FakeEnvironment):
  """Does something to its process in the third step of the last row."""

  def __init__(self, seed, what):
    super().__init__(fakes.make_spec(), seed=seed)
    self._what = what if seed == 2 else None
    self._num_steps = 0

  def step(self, action):
    self._num_steps += 1
    if self._what is not None and self._num_steps == 3:
      timestep = self._what()
      if timestep is not None:
        return timestep
    return super().step(action)


def make_games(factory, seeds=(0, 1, 2), num_processes=2, timeout_s=30.0):
  return process_games.ProcessGames(
    factory, seeds, 'test', num_processes, timeout_s
  )


def assert_equal(tree, other):
  assert jax.tree.structure(tree) == jax.tree.structure(other)

  def check(leaf, expected):
    np.testing.assert_array_equal(leaf, expected)
    assert leaf.dtype == expected.dtype

  jax.tree.map(check, tree, other)


def children():
  """Returns the processes of games that this one has."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
      parent = (path / 'stat').read_text().rsplit(')', 1)[1].split()[1]
      is_worker = b'game_worker' in (path / 'cmdline').read_bytes()
      if is_worker and int(parent) == os.getpid():
        found.append(int(path.name))
  return found


@pytest.mark.parametrize(
  'factory',
  [make_fake, pytest.param(make_cart_pole, marks=pytest.mark.slow)],
)
def test_timesteps_are_those_of_one_process(factory):
  seeds = [0, 1, 2]
  alone = game_vectors.make_games(factory, seeds, 'test')
  with contextlib.closing(make_games(factory, seeds)) as made:
    assert made.num_games == 3
    assert made.spec == alone.spec
    kept = made.reset()
    copied = jax.tree.map(np.copy, kept)
    assert_equal(kept, alone.reset())
    rng = np.random.default_rng(0)
    ended = []
    for _ in range(50):
      action = rng.integers(0, 2, 3, np.int32)
      timestep = made.step(action)
      assert_equal(timestep, alone.step(action))
      ended += timestep.discount[timestep.step_type == 2].tolist()
    assert {0.0, 1.0} == set(ended)  # Terminated and truncated ones.
    assert_equal(made.reset(), alone.reset())
    assert_equal(made.step(action), alone.step(action))
    assert_equal(kept, copied)  # The caller's to keep.
    assert_equal(made.outcomes([2, 0]), alone.outcomes([2, 0]))
    with pytest.raises(ValueError, match=r'action .* must have the shape'):
      made.step(np.zeros(2, np.int32))
    assert len(children()) == 2
  alone.close()
  made.close()  # Again.
  assert not children()


def test_games_of_teams_have_outcomes():
  seeds = [10, 20, 30]
  alone = game_vectors.make_games(Counting, seeds, 'test')
  with contextlib.closing(make_games(Counting, seeds)) as made:
    assert made.spec == alone.spec
    assert_equal(made.reset(), alone.reset())
    action = np.array([1, 0, 0, 2, 1, 1], np.int32)
    for _ in range(3):
      assert_equal(made.step(action), alone.step(action))
    assert_equal(made.outcomes([2, 0, 1]), alone.outcomes([2, 0, 1]))
    np.testing.assert_array_equal(made.outcomes([1]), [[-1, 1]])


def test_the_end_of_a_process_is_told():
  broken = functools.partial(Broken, what=lambda: os._exit(3))
  made = make_games(broken, [2], num_processes=1)
  made.reset()
  with pytest.raises(
    process_games.EnvironmentProcessError,
    match=r"environment 'test\[0\]' .* must keep running, but ended with"
    r' status 3; see .* stepping.processes=0',
  ):
    for _ in range(3):
      made.step(np.zeros(1, np.int32))
  assert not children()


@pytest.mark.parametrize(
  ('what', 'message'),
  [
    (
      lambda: os.kill(os.getpid(), signal.SIGKILL),
      r'must keep running, but ended by SIGKILL, perhaps for lack of',
    ),
    (
      functools.partial(time.sleep, 60.0),
      r"environment 'test\[2\]' .* must answer within 1 s and has not; .*"
      r' raise stepping.timeout_s',
    ),
  ],
  ids=['kill', 'hang'],
)
@pytest.mark.slow
def test_a_failure_is_told_and_ends_all_processes(what, message):
  made = make_games(functools.partial(Broken, what=what), timeout_s=1.0)
  made.reset()
  action = np.zeros(3, np.int32)
  made.step(action)
  made.step(action)
  with pytest.raises(process_games.EnvironmentProcessError, match=message):
    made.step(action)
  assert not children()
  made.close()


@pytest.mark.slow
def test_an_error_is_told_with_its_traceback_and_ends_all_processes():
  broken = functools.partial(Broken, what=lambda: {}['key of mine'])
  made = make_games(broken, timeout_s=1.0)
  made.reset()
  action = np.zeros(3, np.int32)
  made.step(action)
  made.step(action)
  message = (
    r"environment 'test\[2\]' raised KeyError \('key of mine'\) in step, at .*"
    r' in <lambda>'
  )
  with pytest.raises(
    environment_faults.EnvironmentFault, match=message
  ) as told:
    made.step(action)
  cause = told.value.__cause__
  assert isinstance(cause, process_games.EnvironmentProcessError)
  assert "what=lambda: {}['key of mine']" in str(cause)
  assert 'Traceback' in str(cause)
  assert not children()
  made.close()


@pytest.mark.slow
def test_values_are_checked_as_in_one_process():
  observation = np.zeros(4, np.float32)

  def fail():
    return dm_env.transition(float('nan'), observation)

  messages = []
  for make in (
    make_games,
    functools.partial(game_vectors.make_games, name='test'),
  ):
    made = make(functools.partial(Broken, what=fail), seeds=[0, 1, 2])
    made.reset()
    action = np.zeros(3, np.int32)
    with pytest.raises(validation.InvalidTimestepError) as raised:
      for _ in range(3):
        made.step(action)
    messages.append(str(raised.value))
    made.close()
  assert messages[0] == messages[1]
  assert "reward of environment 'test[2]' (nan) must be" in messages[0]


def _make_other(seed):
  return fakes.FakeEnvironment(fakes.make_vector_spec(2 + seed))


def _make_compiled(seed):
  from ftwax.environments import catch

  del seed
  return catch.make()


@pytest.mark.slow
@pytest.mark.parametrize(
  ('factory', 'message'),
  [
    (_make_other, r"'test\[1\]' .* must be like the first"),
    (_make_compiled, 'stepping.processes must be 0 for environments in JAX'),
    (lambda seed: seed, 'must make an environment or a game, but made a int'),
  ],
  ids=['other specs', 'compiled', 'none'],
)
def test_what_does_not_fit_is_refused(factory, message):
  with pytest.raises(
    (ValueError, process_games.EnvironmentProcessError), match=message
  ):
    make_games(factory, seeds=[0, 1])
  assert not children()


def test_factories_must_be_picklable():
  lock = threading.Lock()
  with pytest.raises(ValueError, match=r'environment .* must be pick'):
    make_games(lambda seed: (lock, seed))


@pytest.mark.slow
def test_vectors_are_made_in_each_process():
  def make(num_environments, seed):
    return vector.VectorEnvironment(
      [make_fake(seed + row) for row in range(num_environments)]
    )

  factory = vector.VectorFactory(make)
  alone = game_vectors.make_games(factory, [3, 4, 5], 'test')
  with contextlib.closing(make_games(factory, [3, 4, 5])) as made:
    assert_equal(made.reset(), alone.reset())
    for _ in range(5):
      action = np.zeros(3, np.int32)
      assert_equal(made.step(action), alone.step(action))


_PARENT = """
import sys, time
from ftwax.environments import process_games
import test_process_games
made = process_games.ProcessGames(
  test_process_games.make_fake, [0, 1], 'test', 2, 30.0
)
made.reset()
print(*[process._process.pid for process in made._workers], flush=True)
time.sleep(60.0)
"""


@pytest.mark.slow
def test_processes_end_with_their_parent():
  environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
  with subprocess.Popen(
    [sys.executable, '-c', _PARENT],
    env=environment,
    stdout=subprocess.PIPE,
    text=True,
  ) as parent:
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
  assert len(pids) == 2
  deadline = time.monotonic() + 10.0
  while any(map(_is_running, pids)) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not any(map(_is_running, pids))


def _is_running(pid):
  """Whether there is such a process; one that nobody waited for is none."""
  with contextlib.suppress(FileNotFoundError, ProcessLookupError):
    with open(f'/proc/{pid}/stat') as file:
      return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
  return False


def test_shared_memory_is_allocated_at_once(tmp_path):
  spec = game_vectors.read_spec(make_fake, 'maze')
  with open(tmp_path / 'memory', 'w+b') as file:
    game_worker.map_memory(file.fileno(), spec, 50_000)
    found = os.fstat(file.fileno())
    assert found.st_size > 1e6 and found.st_blocks * 512 >= found.st_size


def test_too_little_shared_memory_is_named(monkeypatch):
  def fail(descriptor, offset, size):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(os, 'posix_fallocate', fail)
  with pytest.raises(OSError, match=r'/dev/shm.* bytes free.*--shm-size=1g'):
    process_games.ProcessGames(make_fake, [0, 1], 'maze', 2, 30.0)
