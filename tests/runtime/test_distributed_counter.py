"""Steps that are shared out, counted and logged."""

import itertools

import distributed_helpers
import numpy as np
import pytest

from ftwax.records import loggers
from ftwax.runtime.distributed import counter, grants, table


class TestBudget:
  @pytest.mark.parametrize('max_steps', [1, 2, 7, 100, 101])
  def test_it_is_met_exactly_whatever_the_order(self, max_steps):
    rng = np.random.default_rng(max_steps)
    budget = grants.Budget(max_steps)
    held, done = [0, 0, 0], [False] * 3
    for _ in range(10_000):
      actor = int(rng.integers(3))
      num_steps = int(rng.integers(held[actor] + 1))
      budget.take(actor, num_steps)
      grant = budget.ask(actor, 4, 12)
      assert grant.num_steps in range(13)
      assert grant.is_last or grant.num_steps == 0 or grant.num_steps >= 4
      held[actor] = grant.num_steps
      done[actor] = grant.is_last and not grant.num_steps
      assert budget.steps + sum(held) <= max_steps
      if all(done):
        break
    assert budget.steps == max_steps
    assert budget.done

  def test_steps_of_an_actor_that_died_are_given_to_others(self):
    budget = grants.Budget(10)
    assert budget.ask(0, 4, 10) == grants.Grant(10)
    assert budget.ask(1, 4, 10) == grants.Grant(0)
    budget.take(0, 3)
    budget.release(0)
    assert budget.ask(1, 4, 10) == grants.Grant(7)

  def test_the_last_steps_go_to_one_who_asks_for_more(self):
    budget = grants.Budget(10, steps=8)
    assert budget.ask(0, 4, 4) == grants.Grant(2, is_last=True)
    assert budget.ask(1, 4, 4) == grants.Grant(0)
    budget.take(0, 2)
    assert budget.ask(1, 4, 4) == grants.Grant(0, is_last=True)


def _make_episodes(actor, returns):
  row = {'episode_return': np.mean(returns), 'actor': actor} if returns else {}
  return {'returns': returns, 'row': row}


class TestCounter:
  @pytest.fixture
  def node(self, tmp_path):
    made = counter.Counter(
      distributed_helpers.make_experiment(), str(tmp_path), 2, 50
    )
    yield made
    made._close()

  @pytest.fixture(autouse=True)
  def _count_numbers(self):
    self._numbers = itertools.count(1)

  def _number(self):
    return 'caller', next(self._numbers)

  def _report_actor(self, node, index, num_steps, returns, *args):
    episodes = _make_episodes(index, returns)
    return node.report_actor(self._number(), index, num_steps, episodes, *args)

  def _base(self, **counts):
    counts = {
      'actor_steps': 0,
      'episodes': 0,
      'learner_steps': 0,
      'seconds': 0.0,
      **counts,
    }
    return {'counts': counts, 'returns': [1.0, 3.0]}

  def test_nothing_is_granted_before_the_learner_tells_where_to_begin(
    self, node
  ):
    assert node.register_actor(0, 'caller') is None
    assert self._report_actor(node, 0, 0, [], (2, 10)) == (0, False)
    node.report_learner(
      4, self._base(actor_steps=40, episodes=5), self._number(), []
    )
    assert node.register_actor(0, 'caller') == 40
    assert self._report_actor(node, 0, 0, [], (2, 10)) == (10, False)
    counts = node.status()['counts']
    assert (counts['actor_steps'], counts['episodes']) == (40, 5)
    assert node.status()['mean_return'] == 2.0

  def test_an_actor_that_was_cut_off_is_not_counted(self, node):
    node.report_learner(0, self._base(), self._number(), [])
    node.register_actor(0, 'caller')
    assert self._report_actor(node, 0, 0, [], (2, 10)) == (10, False)
    node.register_actor(0, 'another')  # On another host.
    assert self._report_actor(node, 0, 10, [1.0], (2, 10)) is None
    assert node.status()['counts']['actor_steps'] == 0

  def test_a_run_ends_without_an_actor_that_has_no_host(self, node):
    assert not node.release_actor(0)  # No learner has reported yet.
    node.report_learner(0, self._base(), self._number(), [])
    node.register_actor(0, 'caller')
    node.register_actor(1, 'caller')
    held = self._report_actor(node, 0, 0, [], (2, 100))
    assert held == (100, False)
    assert self._report_actor(node, 1, 0, [], (2, 100)) == (0, False)
    assert node.release_actor(0)
    assert self._report_actor(node, 0, 100, [], (2, 100)) is None
    assert self._report_actor(node, 1, 0, [], (2, 100)) == (100, False)
    node.finish('actor/1')
    node.finish('learner')
    assert node.report_replay(0, {})
    node.register_actor(0, 'caller')  # It came back.
    assert not node.report_replay(0, {})

  def test_a_learner_that_was_restored_does_not_put_the_counter_back(
    self, node
  ):
    node.report_learner(0, self._base(), self._number(), [])
    self._report_actor(node, 0, 30, [], (2, 10))
    status = node.report_learner(
      1, self._base(actor_steps=10), self._number(), []
    )
    assert status['counts']['actor_steps'] == 30
    assert status['counts']['learner_steps'] == 1

  def test_episodes_are_counted_and_logged(self, node, tmp_path):
    node.report_learner(
      0, self._base(), self._number(), [('learner', {'loss': 2.0})]
    )
    self._report_actor(node, 1, 8, [5.0, 5.0], (2, 10))
    logged = loggers.read_jsonl(loggers.log_path(tmp_path, 'train'))
    assert [row['episodes'] for row in logged] == [2]
    assert logged[0]['actor'] == 1
    learner = loggers.read_jsonl(loggers.log_path(tmp_path, 'learner'))
    assert [row['loss'] for row in learner] == [2.0]
    np.testing.assert_allclose(node.status()['mean_return'], 14 / 4)

  def test_what_is_reported_twice_counts_once(self, node, tmp_path):
    number = self._number()
    for _ in range(2):
      status = node.report_learner(
        1, self._base(), number, [('learner', {'loss': 2.0})]
      )
    assert status['counts']['learner_steps'] == 1
    number = self._number()
    replies = [
      node.report_actor(number, 1, 8, _make_episodes(1, [5.0]), (2, 10))
      for _ in range(2)
    ]
    assert replies == [(10, False)] * 2
    number = self._number()
    for _ in range(2):
      node.report_evaluation(number, {'episode_return': 1.0})
    for label in ('learner', 'train', 'evaluation'):
      assert len(loggers.read_jsonl(loggers.log_path(tmp_path, label))) == 1
    counts = node.status()['counts']
    assert (counts['actor_steps'], counts['episodes']) == (8, 1)

  def test_evaluations_are_due_at_their_steps_and_at_the_end(self, node):
    node.report_learner(0, self._base(), self._number(), [])
    assert node.poll_evaluator() == counter.WAIT
    self._report_actor(node, 0, 50, [], (2, 10))
    assert node.poll_evaluator() == counter.EVALUATE
    node.report_evaluation(self._number(), {'episode_return': 1.0})
    assert node.poll_evaluator() == counter.WAIT
    self._report_actor(node, 0, 50, [], (2, 10))
    assert node.poll_evaluator() == counter.EVALUATE
    node.report_evaluation(self._number(), {'episode_return': 1.0})
    assert node.poll_evaluator() == counter.LEAVE

  def test_the_learner_hears_of_evaluations_and_may_end_the_run(self, node):
    node.report_learner(0, self._base(), self._number(), [])
    node.register_actor(0, 'caller')
    assert self._report_actor(node, 0, 0, [], (2, 10)) == (10, False)
    node.report_evaluation(self._number(), {'episode_return': 1.0})

    def report(known, ends=False):
      number = self._number()
      return node.report_learner(1, self._base(), number, [], 0, known, ends)

    ((row, counts),) = report(0)['evaluations']
    assert row == {'episode_return': 1.0} and counts['actor_steps'] == 0
    assert report(1)['evaluations'] == []
    assert not report(1, ends=True)['done']  # An actor holds ten steps.
    assert self._report_actor(node, 0, 10, [], (2, 10)) == (0, True)
    assert report(1, ends=True)['done']
    assert node.status()['counts']['actor_steps'] == 10

  def test_nodes_leave_in_turns(self, node):
    node.report_learner(0, self._base(), self._number(), [])
    assert not node.report_replay(0, {'queue': [1, 8]})
    assert not node.report_learner(0, self._base(), self._number(), [])['leave']
    node.finish('evaluator')
    assert node.report_learner(0, self._base(), self._number(), [])['leave']
    for name in ('learner', 'actor/0'):
      node.finish(name)
    assert not node.report_replay(0, {'queue': [1, 8]})
    node.finish('actor/1')
    assert node.report_replay(0, {'queue': [1, 8]})
    node.report_learner(
      0, self._base(), self._number(), []
    )  # It was started anew.
    assert not node.report_replay(0, {'queue': [1, 8]})

  def test_the_table_tells_of_each_node(self, node):
    node.report_learner(7, self._base(actor_steps=40), self._number(), [])
    self._report_actor(node, 1, 10, [], (2, 10), 3)
    node.report_replay(0, {'queue': [5, 8]})
    text = table.format_status(
      node.status(), 100, (12.0, 3.5), {'learner': 2, 'actor/1': 0}
    )
    assert '50 of 100 steps | 12 steps/s | 3.5 updates/s | 7 updates' in text
    assert 'return 2' in text
    assert 'queue 5/8' in text
    assert 'restarts 2' in text
    assert 'failed environments 3' in text

  def test_nodes_of_several_learners_are_told_apart(self, tmp_path):
    node = counter.Counter(
      distributed_helpers.make_experiment(), str(tmp_path), 2, None, 2
    )
    node.report_replay(0, {'queue': [1, 8]})
    node.report_replay(1, {'queue': [2, 8]})
    assert node.status()['replay'] == {'queue': [3, 16]}
    for name in ('learner/0', 'actor/0', 'actor/1'):
      node.finish(name)
    assert not node.report_replay(1, {'queue': [2, 8]})
    node.finish('learner/1')
    assert node.report_replay(1, {'queue': [2, 8]})
    assert set(node.status()['ages']) == {'replay/0', 'replay/1'}
    node._close()
