"""An actor's environments and its loop."""

import functools
import os
import threading

import distributed_helpers
import fakes
import numpy as np
import pytest

from ftwax.population import seating as seating_lib
from ftwax.runtime.distributed import (
  actor_loop,
  counter,
  environments,
  processes,
  settings,
)

SPEC = fakes.make_vector_spec()


def _make_environment(entropy=(0, 1), num_environments=2, **options):
  experiment = distributed_helpers.make_experiment(
    num_environments=num_environments, **options
  )
  seating = seating_lib.make_seating((0,), 1, num_environments)
  made = environments.make_environment(experiment, seating, entropy, 'x')
  made.arena.seat(np.zeros((num_environments, 1)))
  return made


class TestEnvironments:
  def test_the_last_steps_are_taken_in_some_of_the_environments(self):
    made = _make_environment(num_environments=3)
    made.reset()
    action = np.zeros(3, np.int32)
    made.limit = 3
    made.step(action)
    made.limit = 2
    with pytest.raises(environments.BudgetMet):
      made.step(action)

  def test_what_an_environment_raises_is_told_apart(self):
    def fail(seed):
      raise KeyError(seed)

    with pytest.raises(environments.EnvironmentFailure, match='KeyError'):
      _make_environment(environment=fail)

  def test_seeds_follow_from_the_entropy(self):
    seeds = []

    def make(seed):
      seeds.append(seed)
      return distributed_helpers.make_fake(seed)

    for entropy in [(0, 1), (0, 2), (0, 1)]:
      _make_environment(entropy, environment=make)
    assert seeds[:2] == seeds[4:]
    assert not set(seeds[:2]) & set(seeds[2:4])
    assert all(0 <= seed < 2**31 for seed in seeds)


class _StillActor:
  """Chooses the first action everywhere."""

  def reset(self):
    pass

  def __init__(self, num_environments):
    self._action = np.zeros(num_environments, np.int32)
    self.num_steps = 0

  def update(self):
    pass

  def observe_first(self, timestep):
    del timestep

  def select_action(self, observation):
    del observation
    return self._action

  def observe(self, action, timestep):
    del action
    self.num_steps += int((timestep.step_type != 0).sum())


class _LosesReplies:
  """Carries reports out, but every third reply does not come."""

  def __init__(self, counter_node):
    self._counter = counter_node
    self._num_calls = 0

  def report_actor(self, *args):
    reply = self._counter.report_actor(*args)
    self._num_calls += 1
    if self._num_calls % 3 == 0:
      raise RuntimeError('deadline exceeded')
    return reply


class _Learner:
  """Seats one member and takes results."""

  def draw_seats(self):
    return np.zeros((3, 1), np.int32)

  def report_results(self, number, results, ends_round):
    del number, results, ends_round
    return True


class _Failing(fakes.FakeEnvironment):
  """Raises in its 30th step."""

  num_steps = 0

  def step(self, action):
    self.num_steps += 1
    if self.num_steps == 30:
      raise OSError('the game crashed')
    return super().step(action)


class _Dying(_Failing):
  """Ends its process in its 30th step, but not that of the test."""

  def __init__(self, runner, *args, **options):
    super().__init__(*args, **options)
    self._runner = runner

  def step(self, action):
    try:
      return super().step(action)
    except OSError:
      if os.getpid() != self._runner:
        os._exit(3)
      raise


class TestActorLoop:
  @pytest.fixture
  def make_loop(self, tmp_path):
    nodes = []

    def make(max_restarts=1000, restart_period_s=0.0, **options):
      config = distributed_helpers.make_experiment(
        num_environments=3, **options
      )
      node = counter.Counter(config, str(tmp_path), 1, None)
      nodes.append(node)
      base = {'actor_steps': 0, 'episodes': 0, 'learner_steps': 0}
      node.report_learner(
        0,
        {'counts': {**base, 'seconds': 0.0}, 'returns': []},
        ('caller', 1),
        [],
      )
      loop = actor_loop.ActorLoop(
        config,
        0,
        settings.Settings(
          max_restarts=max_restarts, restart_period_s=restart_period_s
        ),
        processes.Remote(node, 'counter'),
        processes.Remote(_Learner(), 'learner'),
        seating_lib.make_seating((0,), 1, 3),
        threading.Event(),
      )
      assert loop.register() == 0
      return loop, node

    yield make
    for node in nodes:
      node._close()

  @pytest.mark.parametrize('max_steps', [1, 100, 403])
  def test_the_budget_is_met_exactly(self, make_loop, max_steps):
    loop, node = make_loop(max_num_actor_steps=max_steps)
    actor = _StillActor(3)
    loop.run(actor)
    assert node.status()['counts']['actor_steps'] == max_steps
    # But for the last few, which are taken and not learned from.
    assert max_steps - 3 < actor.num_steps <= max_steps

  def test_a_reply_that_is_lost_costs_no_step(self, make_loop):
    loop, node = make_loop(max_num_actor_steps=403)
    loses = processes.Remote(_LosesReplies(node), 'counter')
    loses.caller = loop._counter.caller  # By which the actor is registered.
    loop._counter = loses
    loop.run(_StillActor(3))
    counts = node.status()['counts']
    assert counts['actor_steps'] == 403
    assert counts['episodes'] == 3 * 33  # Of 4 steps each.

  def test_environments_that_raise_are_made_anew(self, make_loop, capsys):
    loop, node = make_loop(
      max_num_actor_steps=403,
      environment=functools.partial(_Failing, SPEC, 4, False),
    )
    loop.run(_StillActor(3))
    status = node.status()
    assert status['counts']['actor_steps'] == 403
    assert status['failures']['actor/0'] >= 4
    assert 'OSError (the game crashed)' in capsys.readouterr().out

  @pytest.mark.slow
  def test_environment_processes_that_die_are_replaced(self, make_loop, capsys):
    loop, node = make_loop(
      max_num_actor_steps=100,
      environment_processes=1,
      environment=functools.partial(_Dying, os.getpid(), SPEC, 4, False),
    )
    loop.run(_StillActor(3))
    assert node.status()['counts']['actor_steps'] == 100
    assert node.status()['failures']['actor/0'] >= 1
    out = capsys.readouterr().out
    assert "EnvironmentProcessError: environment 'test/0[0..2]' (proc" in out

  def test_environments_that_raise_too_often_end_the_run(self, make_loop):
    loop, _ = make_loop(
      max_restarts=2,
      restart_period_s=60.0,
      max_num_actor_steps=403,
      environment=functools.partial(_Failing, SPEC, 4, False),
    )
    with pytest.raises(
      processes.FatalError,
      match=r'environments of actor/0 must not fail more than 2 times.*crashed',
    ):
      loop.run(_StillActor(3))


def test_an_environment_that_hangs_ends_its_process(monkeypatch, capfd):

  ended = threading.Event()

  def end(status):
    assert status == 1
    ended.set()

  class Hanging(fakes.FakeEnvironment):
    def step(self, action):
      assert ended.wait(30.0)
      return super().step(action)

  monkeypatch.setattr(environments.os, '_exit', end)
  monkeypatch.setattr(environments, '_WATCH_S', 0.01)
  made = _make_environment(
    num_environments=1,
    environment=functools.partial(Hanging, SPEC, 4, False),
  )
  environments.Watchdog('actor/3', 0.1, made).start()
  made.reset()
  made.step(np.zeros(1, np.int32))
  assert (
    'environments of actor/3 must step within 0.1 s' in capfd.readouterr().err
  )
