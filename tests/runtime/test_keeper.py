"""The keeper of a population, and learners that exchange members, unlaunched.

Four members are shared out among two learners. Each call is what another node
would make by courier.
"""

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest

from ftwax import types
from ftwax.population import copies as copies_lib
from ftwax.population import evolution, lineage, population_config
from ftwax.population import selection as selection_lib
from ftwax.records import checkpoints
from ftwax.runtime import evaluation, parts, run_records
from ftwax.runtime.distributed import (
  exchange,
  keeper,
  processes,
  results_format,
  settings,
)

# Whom the members copy as soon as they may: 0 and 3 the other learner's.
PARENTS = (2, 1, 2, 1)


def _select(key, population, config):
  del key
  is_ready = population.games_since_exploitation >= config.burn_in_games
  parent = jnp.where(is_ready, jnp.array(PARENTS), jnp.arange(4))
  return selection_lib.Selection(
    parent.astype(jnp.int32), jnp.full((4,), 0.5, jnp.float32)
  )


@pytest.fixture(scope='module')
def experiment():
  made = population_helpers.make_experiment(
    num_environments=2,
    population=population_config.PopulationConfig(
      4, burn_in_games=1, perturb_probability=1.0
    ),
    select=_select,
  )
  return made.replace(game_spec=made.read_game_spec())


class _Learner:
  """Members that an update changes."""

  def __init__(self, experiment, index):
    spec = experiment.read_game_spec().environment
    core = experiment.agent.make_learner_core(
      experiment.agent.make_network(spec), spec
    )
    keys = jax.random.split(jax.random.PRNGKey(index), 2)
    self.state = jax.jit(jax.vmap(core.init))(keys)
    self.member = np.array([2 * index, 2 * index + 1], np.int32)
    self.copies = copies_lib.no_copies(
      evolution.traits(self.state), self.member
    )
    self.offers = exchange.Offers()

  def offer(self, member):
    return self.offers.offer(self.state, member - self.member[0])

  def read_offer(self, number, offset):
    return self.offers.read(number, offset)

  def copy(self, ready):
    self.state = copies_lib.receive(self.state, *ready)
    self.copies = ready.copies


class _Population:
  """A keeper and its learners, all in one thread."""

  def __init__(self, experiment, directory, learners):
    self.stack = contextlib.ExitStack()
    self.path = directory / 'lineage.jsonl'
    self.keeper = keeper.Keeper(
      experiment, str(directory), settings.Settings(num_learners=2), None
    )
    self.keeper._make(self.stack)
    self.learners = learners
    peers = [processes.Remote(learner, 'learner') for learner in learners]
    self.exchanges = []
    for index, learner in enumerate(learners):
      made = exchange.Exchange(
        processes.Remote(self.keeper, 'keeper'),
        peers,
        index,
        threading.Event(),
      )
      made._learner, made._last = learner, learner.copies
      self.exchanges.append(made)

  def turn(self):
    for one in self.exchanges:
      one._turn()
    self.keeper._save()

  def play(self, number):
    """Ends a round in which 2 and 3 have beaten 0 and 1."""
    seats = np.array([2, 3, 0, 1], np.int32)
    result = evaluation.GameResult(
      0, seats, np.array([1.0, -1.0], np.float32), np.ones((4, 1)), 7
    )
    packed = results_format.pack([result])
    assert self.keeper.report_results(('actor', number), packed, True)
    self.keeper._end_round()

  def rows(self):
    return lineage.read(self.path)[1:]

  def copy(self, index):
    """Makes the copies of a learner that has fetched them."""
    ready = self.exchanges[index].take()
    self.learners[index].copy(ready)
    self.exchanges[index].settle()


@pytest.fixture
def make(experiment, tmp_path):
  made = []

  def make(learners=None):
    if learners is None:
      learners = [_Learner(experiment, index) for index in range(2)]
    made.append(_Population(experiment, tmp_path, learners))
    return made[-1]

  yield make
  for one in made:
    one.stack.close()


def _leaves(tree):
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def _row(tree, row):
  return _leaves(jax.tree.map(lambda leaf: leaf[row], tree))


def test_copies_are_counted_when_they_have_been_made(make):
  population = make()
  kept, learners = population.keeper, population.learners
  assert kept.draw_seats() is None
  assert not kept.report_results(('actor', 0), [], False)
  population.exchanges[0]._turn()
  assert kept.draw_seats() is None  # The other has not joined.
  population.turn()
  population.turn()
  assert sorted(np.ravel(kept.draw_seats())) == [0, 0, 1, 1, 2, 2, 3, 3]
  assert population.rows() == []
  population.play(1)
  before = [learner.state for learner in learners]
  ratings = kept._part().population.ratings
  population.turn()
  # Both have fetched; nothing is copied yet, nothing is counted.
  assert population.rows() == []
  for index in range(2):
    population.copy(index)
  assert population.rows() == []
  population.turn()
  rows = population.rows()
  assert [(row['member'], row['parent']) for row in rows] == [(0, 2), (3, 1)]
  assert [row['generation'] for row in rows] == [1, 2]
  for own, other, row, parent in ((0, 1, 0, 0), (1, 0, 1, 1)):
    after = learners[own].state
    assert _row(evolution.heritage(after), row) == _row(
      evolution.heritage(before[other]), parent
    )
    assert _row(after, 1 - row) == _row(before[own], 1 - row)
  part = kept._part()
  np.testing.assert_array_equal(
    part.population.ratings, ratings[jnp.array([2, 1, 2, 1])]
  )
  np.testing.assert_array_equal(part.numbers, [1, 1])
  traits = [evolution.traits(learner.state) for learner in learners]
  assert _leaves(evolution.traits(part.population.members)) == _leaves(
    jax.tree.map(lambda *leaves: np.concatenate(leaves), *traits)
  )
  # A learner settles until it is saved, and is not counted again.
  assert population.exchanges[0]._unsettled
  population.turn()
  assert not population.exchanges[0]._unsettled
  assert population.rows() == rows


def test_no_copies_are_given_before_what_they_rest_on_is_saved(
  make, monkeypatch
):
  population = make()
  population.turn()
  population.turn()
  population.play(1)
  kept, answers = population.keeper, []
  kept._num_changes += 1
  assert kept.ask(1) == []  # A sign of life of the parents.

  def wait():
    answers.append(kept.ask(0))

  with monkeypatch.context() as patch:
    patch.setattr(kept._checkpointer, 'wait', wait)
    kept._save()
  assert answers and not any(answers)
  assert kept.ask(0)


def test_copies_are_unsettled_before_others_may_be_asked_for():
  seen = []

  class Watched(exchange.Exchange):
    def __setattr__(self, name, value):
      super().__setattr__(name, value)
      if name == '_ready' and value is None:
        seen.append(self.__dict__.get('_unsettled'))

  watched = Watched(None, [], 0, threading.Event())
  watched._ready = exchange.Ready(None, {})
  watched.settle()
  assert seen[-1] is True


@pytest.mark.slow
def test_copies_that_cannot_be_made_have_never_been(make, monkeypatch, capsys):
  population = make()
  for _ in range(2):
    population.turn()
  population.play(1)
  monkeypatch.setattr(_Learner, 'offer', lambda self, member: None)
  population.turn()
  assert (
    'member 0 does not copy member 2: its learner' in capsys.readouterr().out
  )
  assert population.exchanges[0].take() is None
  population.turn()
  assert population.rows() == []
  # Those who are away for long are not copied at all.
  monkeypatch.undo()
  monkeypatch.setattr(keeper, '_AWAY_S', 0.0)
  population.play(2)
  population.turn()
  assert population.exchanges[0].take() is None
  assert capsys.readouterr().out == ''
  # Nobody is late: the next round has another draft.
  monkeypatch.undo()
  population.play(3)
  population.turn()
  assert population.exchanges[0].take().copies.rows == [0]
  # Who is busy is left out of the draft.
  population.play(4)
  assert population.keeper._has_taken == {0, 1}


@pytest.mark.slow
def test_parents_that_have_changed_are_not_copied(make, capsys):
  population = make()
  for _ in range(2):
    population.turn()
  population.play(1)
  one = population.learners[1].state
  population.learners[1].state = one._replace(
    internal_rewards=one.internal_rewards + 1.0
  )
  population.exchanges[0]._turn()
  assert (
    'it has copied another member in the meantime' in capsys.readouterr().out
  )
  assert population.exchanges[0].take() is None


@pytest.mark.slow
def test_a_keeper_comes_back_with_all_that_it_counted(make):
  population = make()
  for _ in range(2):
    population.turn()
  population.play(1)
  population.turn()
  population.copy(0)
  population.exchanges[0]._turn()
  population.keeper._save()
  part = population.keeper._part()
  population.stack.close()
  # The other learner has copied meanwhile, which its checkpoint knows.
  population.copy(1)
  again = make(population.learners)
  assert _leaves(again.keeper._part()) == _leaves(part)
  again.turn()
  assert [row['generation'] for row in again.rows()] == [1, 2]
  np.testing.assert_array_equal(again.keeper._numbers, [1, 1])


@pytest.mark.slow
def test_a_learner_that_lost_a_copy_takes_its_traits(make, capsys):
  population = make()
  for _ in range(2):
    population.turn()
  lost = population.learners[0].state
  population.play(1)
  population.turn()
  population.copy(0)
  population.turn()
  learner = population.learners[0]
  traits = _leaves(evolution.traits(learner.state))
  learner.state = lost
  learner.copies = learner.copies._replace(number=np.array(0, np.int32))
  again = population.exchanges[0]
  again._last = learner.copies
  again._join()
  assert 'take their traits from the keeper' in capsys.readouterr().out
  population.copy(0)
  assert _leaves(evolution.traits(learner.state)) == traits
  again._turn()
  again._turn()
  assert len(population.rows()) == 1


def test_members_are_sent_in_chunks(experiment, monkeypatch):
  monkeypatch.setattr(exchange, '_CHUNK_BYTES', 100)
  learner = _Learner(experiment, 0)
  peer = processes.Remote(learner, 'learner')
  traits = jax.tree.map(lambda leaf: leaf[1], evolution.traits(learner.state))
  fetched = exchange.fetch(peer, 1, traits, learner.state)
  heritage = evolution.heritage(learner.state)
  for leaf, expected in zip(
    jax.tree.leaves(fetched), jax.tree.leaves(heritage), strict=True
  ):
    assert leaf.dtype == expected.dtype
    np.testing.assert_array_equal(leaf, expected[1])
  assert not learner.offers._offers  # All was read.
  for _ in range(10):
    number, size, *_ = learner.offer(0)
  assert len(learner.offers._offers) == 8
  assert len(learner.read_offer(number, 0)) == 100 < size
  assert learner.read_offer(number - 8, 0) is None
  monkeypatch.setattr(_Learner, 'read_offer', lambda *args: None)
  with pytest.raises(exchange.CopyError, match='stopped answering'):
    exchange.fetch(peer, 1, traits, learner.state)


def _save(folder, part, steps):
  counts = run_records.Counts(actor_steps=steps)._asdict()
  with checkpoints.Checkpointer(
    folder, must_be_finite=lambda part: part.training.params
  ) as checkpointer:
    run_records.save(checkpointer, part, counts, [])


def test_parts_are_put_together(make, experiment, tmp_path):
  population = make()
  for _ in range(2):
    population.turn()
  population.play(1)
  population.turn()
  population.copy(0)  # The keeper does not know.
  for index, learner in enumerate(population.learners):
    part = parts.LearnerPart(learner.state, learner.copies)
    _save(parts.learner_folder(tmp_path, index), part, 10 + index)
  population.stack.close()
  parts.collect(experiment, tmp_path)
  assert not (tmp_path / 'parts').exists()
  template = parts.make_template(experiment, experiment.read_game_spec())
  whole, metadata = parts.restore(
    tmp_path / 'checkpoints', template, run_records.POPULATION
  )
  assert metadata['counts']['actor_steps'] == 11
  assert isinstance(whole.members, types.TrainingState)
  states = [learner.state for learner in population.learners]
  assert _leaves(whole.members) == _leaves(
    jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
  )
  assert [row['member'] for row in population.rows()] == [0]
  assert whole.generation == 1
  parts.collect(experiment, tmp_path)  # There is nothing left to do.


def test_parts_of_a_run_that_never_began_are_dropped(experiment, tmp_path):
  learner = _Learner(experiment, 0)
  _save(
    parts.learner_folder(tmp_path, 0),
    parts.LearnerPart(learner.state, learner.copies),
    0,
  )
  parts.collect(experiment, tmp_path)
  assert not list(tmp_path.iterdir())
