"""Copies between learners come to what one generation comes to."""

import jax
import jax.numpy as jnp
import numpy as np
import population_fakes
import pytest

from ftwax.population import copies as copies_lib
from ftwax.population import evolution, lineage
from ftwax.population import selection as selection_lib

PARENTS = (2, 1, 2, 1)  # Of four members, two with each learner.

# Members 0, 1 and 3 saw nobody win. Of these, 1 copies no other member.
DECIDED = (0, 0, 10, 0)


def _assert_trees_equal(actual, expected):
  jax.tree.map(np.testing.assert_array_equal, actual, expected)


def _select(key, population, config):
  del key, population, config
  return selection_lib.Selection(
    jnp.array(PARENTS, jnp.int32), jnp.full((4,), 0.9)
  )


@pytest.fixture(scope='module')
def drawn():
  """A population, the generation drawn for it, and the one after it."""
  population, config = population_fakes.make_population(
    4,
    burn_in_games=0,
    crossover_probability=0.5,
    perturb_probability=1.0,
    min_decided_fraction=0.1,
  )
  population = population._replace(
    ratings=100.0 * jnp.arange(4.0),
    games=jnp.arange(4, dtype=jnp.int32),
    games_since_exploitation=jnp.full((4,), 10, jnp.int32),
    decided_games=jnp.array(DECIDED, jnp.int32),
  )
  args = (
    jax.random.PRNGKey(3), population, population_fakes.PRIORS, config, _select
  )  # fmt: skip
  evolved, _ = evolution.evolve(*args)
  generation, _ = evolution.propose(*args)
  return population, generation, evolved


def _rows(tree, rows):
  return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)


def test_learners_make_together_what_one_generation_makes(drawn, tmp_path):
  population, generation, evolved = drawn
  path = tmp_path / 'lineage.jsonl'
  known = population._replace(
    members=copies_lib.members_of_traits(evolution.traits(population.members))
  )
  lineage.append(path, [lineage.birth_row(known)])
  after = []
  for members in (range(2), range(2, 4)):
    own = _rows(population.members, members)
    copies = copies_lib.take(generation, np.array(members), 1)
    assert copies.rows == ([0, 1] if members.start == 0 else [1])
    heritages = {
      row: _rows(
        evolution.heritage(population.members), int(copies.parent[row])
      )
      for row in copies.rows
      if copies.parent[row] not in members
    }
    after.append(copies_lib.receive(own, copies, heritages))
    done = copies_lib.as_generation(copies, known)
    known = evolution.commit(known, done)
    lineage.append(path, lineage.rows(done, 'test'))
  members = jax.tree.map(lambda *leaves: np.concatenate(leaves), *after)
  _assert_trees_equal(members, evolved.members)
  _assert_trees_equal(
    evolution.traits(known.members), evolution.traits(members)
  )
  assert known.generation == 2
  # Each learner's copies are a generation, and their lineage replays.
  replayed = lineage.replay(population, lineage.read(path))
  _assert_trees_equal(replayed.members, members)
  np.testing.assert_array_equal(replayed.ratings, known.ratings)
  for field in ('games_since_exploitation', 'decided_games'):
    expected = getattr(evolved, field)
    np.testing.assert_array_equal(getattr(known, field), expected)
    np.testing.assert_array_equal(getattr(replayed, field), expected)
  rows = lineage.read(path)[1:]
  assert {(row['member'], row['reason']) for row in rows} == {
    (0, 'test'), (1, 'undecided'), (3, 'test')
  }  # fmt: skip


def test_copies_that_cannot_be_made_leave_members_as_they_are(drawn):
  population, generation, _ = drawn
  own = _rows(population.members, range(2, 4))
  copies = copies_lib.take(generation, np.array([2, 3]), 5)
  kept = copies_lib.keep(copies, np.array([True, False]), evolution.traits(own))
  assert copies.rows == [1]
  assert kept.number == 5
  assert kept.rows == []
  _assert_trees_equal(copies_lib.receive(own, kept, {}), own)
  done = copies_lib.as_generation(kept, population)
  after = evolution.commit(population, done)
  _assert_trees_equal(after._replace(generation=jnp.int32(0)), population)
  assert not lineage.rows(done, 'test')
