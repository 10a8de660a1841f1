"""Calls to nodes that may be away, and limits of what may fail."""

import pytest

from ftwax.runtime import limits
from ftwax.runtime.distributed import processes, settings


class TestLimits:
  def test_restarts_are_judged_by_their_rate(self):
    now = [0.0]
    limiter = limits.RestartLimiter(3, 60.0, clock=lambda: now[0])
    for now[0] in range(0, 1000, 20):
      limiter.count('actor/1', 'killed')
    assert limiter.num_restarts == 50
    now[0] += 1.0
    with pytest.raises(
      limits.RestartsExceededError,
      match=r'actor/1 must not fail more than 3 times in 60 s, but did: boo',
    ):
      limiter.count('actor/1', 'boo')
    assert limiter.num_restarts == 50

  def test_the_same_error_in_a_row_is_not_waited_out(self):
    limiter = limits.RestartLimiter(10, 60.0)
    for error in ('a', 'a', '', 'a', 'a'):
      limiter.count('learner', 'crash', error)
    with pytest.raises(
      limits.RestartsExceededError, match='not fail 3 times in a row in the sam'
    ):
      limiter.count('learner', 'crash', 'a')

  def test_settings_are_checked(self):
    with pytest.raises(
      ValueError, match=r'max_restarts \(-1\) must not be negative; choose 10'
    ):
      settings.Settings(max_restarts=-1)
    with pytest.raises(ValueError, match=r'num_devices \(0\) must be at least'):
      settings.Settings(num_devices=0)
    with pytest.raises(ValueError, match=r'num_learners \(0\) must be at leas'):
      settings.Settings(num_learners=0)
    with pytest.raises(ValueError, match=r'resources .* need a Ray clust'):
      settings.Settings(resources={'actor': {'CPU': 2}})


class _Flaky:
  """Fails some times, then answers."""

  def __init__(self, num_failures, message='unavailable'):
    self.left = num_failures
    self.message = message

  def f(self, x):
    self.left -= 1
    if self.left >= 0:
      raise RuntimeError(self.message)
    return x


class TestRemote:
  def test_it_calls_until_it_gets_an_answer(self):
    assert processes.Remote(_Flaky(2), 'counter').call('f', 5) == 5
    assert processes.Remote(_Flaky(1), 'counter').try_call('f', 5) is None

  def test_it_gives_up(self):
    remote = processes.Remote(_Flaky(10**9), 'counter', patience_s=0.1)
    with pytest.raises(
      processes.UnreachableError, match=r'counter must answer f within 0\.1 s'
    ):
      remote.call('f', 5)

  def test_what_the_node_itself_raised_is_not_tried_again(self):
    flaky = _Flaky(9, 'Python exception was raised on the server: no good')
    remote = processes.Remote(flaky, 'counter')
    with pytest.raises(processes.FatalError, match='no good'):
      remote.call('f', 5)
    assert flaky.left == 8


def test_a_replay_server_that_is_not_there_is_told():
  with pytest.raises(
    processes.UnreachableError,
    match=r'replay \(localhost:1\) must answer within 1 s, and did not.*raise',
  ):
    processes.connect_to_replay('localhost:1', 1.0)


class TestReplies:
  def test_a_call_that_comes_twice_is_carried_out_once(self):
    remotes = [processes.Remote(None, 'counter') for _ in range(2)]
    replies, made = processes.Replies(), []

    def answer(number):
      return replies.answer(number, lambda: made.append(number) or len(made))

    first, other = (remote.make_number() for remote in remotes)
    second = remotes[0].make_number()
    assert [answer(number) for number in (first, first, other)] == [1, 1, 2]
    assert [answer(number) for number in (second, other, first)] == [3, 2, 3]
    assert made == [first, other, second]
