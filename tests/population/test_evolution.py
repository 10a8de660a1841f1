import functools
import json

import jax
import jax.numpy as jnp
import lineage_replay
import numpy as np
import population_fakes
import pytest

from ftwax.population import evolution, exploring
from ftwax.population import lineage as lineage_lib
from ftwax.population import selection as selection_lib
from ftwax.records import files, loggers

PRIORS = population_fakes.PRIORS
BOUNDS = {
  'learning_rate': (1e-5, 5e-3),
  'gradient_scale': (0.1, 1.0),
  'slow_period': (5, 20),
}


STILL, PERTURBED = exploring.Perturb(0.0), exploring.Perturb(1.0)


@functools.cache
def _compiled(config, **rules):
  return jax.jit(
    functools.partial(
      evolution.evolve, priors=PRIORS, config=config.replace(**rules)
    )
  )


def _evolve(key, population, config, **rules):
  return _compiled(config, **rules)(key, population)


def _in_order(**options):
  """A population whose members beat those before them."""
  population, config = population_fakes.make_population(
    num_members=4, burn_in_games=0, **options
  )
  return population._replace(
    ratings=jnp.array([1000.0, 1200.0, 1400.0, 1600.0]),
    games_since_exploitation=jnp.array([5, 6, 7, 8]),
    games=jnp.array([5, 6, 7, 8]),
    payoff=jax.tree.map(jnp.ones_like, population.payoff),
  ), config


def _assert_trees_equal(actual, expected):
  jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_copies_take_everything_but_key_and_steps(key):
  population, config = _in_order()
  population = population._replace(
    members=population.members._replace(steps=jnp.arange(4)),
    returns=jnp.arange(40.0).reshape(4, 10),
    num_returns=jnp.arange(4),
  )
  after, generation = _evolve(key, population, config, explore=STILL)
  parent = np.asarray(generation.parent)
  copied = parent != np.arange(4)
  assert copied[0]
  assert not copied[3]
  assert (parent >= np.arange(4)).all()
  for part in ('params', 'opt_state', 'hyperparameters', 'internal_rewards'):
    _assert_trees_equal(
      getattr(after.members, part),
      jax.tree.map(
        lambda leaf: leaf[parent], getattr(population.members, part)
      ),
    )
  for part in ('key', 'steps', 'skipped'):
    _assert_trees_equal(
      getattr(after.members, part), getattr(population.members, part)
    )
  for part in ('ratings', 'returns', 'num_returns'):
    _assert_trees_equal(getattr(after, part), getattr(population, part)[parent])
  np.testing.assert_array_equal(
    after.games_since_exploitation, np.where(copied, 0, [5, 6, 7, 8])
  )
  np.testing.assert_array_equal(after.games, population.games)
  np.testing.assert_array_equal(after.payoff.games, np.outer(~copied, ~copied))
  assert after.generation == generation.number == 1


def test_rows_are_read_before_any_is_written():
  population, config = _in_order()

  def in_a_ring(key, population, rating_deviation):
    del key, population, rating_deviation
    return selection_lib.Selection(jnp.array([1, 2, 3, 0]), jnp.zeros((4,)))

  after, _ = _evolve(
    jax.random.PRNGKey(0), population, config, select=in_a_ring
  )
  np.testing.assert_array_equal(
    after.members.params['w'],
    np.roll(population.members.params['w'], -1, axis=0),
  )


def test_only_copies_explore(key):
  population, config = _in_order()
  after, generation = _evolve(key, population, config, explore=PERTURBED)
  copied = np.asarray(generation.parent) != np.arange(4)
  before = population.members.hyperparameters.learning_rate
  rate = np.asarray(after.members.hyperparameters.learning_rate)
  np.testing.assert_array_equal(rate[~copied], before[~copied])
  parent = np.asarray(generation.parent)[copied]
  ratio = rate[copied] / np.asarray(before)[parent]
  at_bound = np.isin(rate[copied], np.float32([1e-5, 5e-3]))
  assert (at_bound | np.isclose(ratio, 0.8) | np.isclose(ratio, 1.2)).all()
  period = np.asarray(after.members.hyperparameters.slow_period)
  assert period.dtype == np.int32
  weights = np.asarray(after.members.internal_rewards)
  ratio = (
    weights[copied] / np.asarray(population.members.internal_rewards)[parent]
  )
  at_bound = np.abs(weights[copied]) == 1.0
  assert (at_bound | np.isclose(ratio, 0.8) | np.isclose(ratio, 1.2)).all()
  _assert_trees_equal(generation.explored, evolution.traits(after.members))


def test_crossover_keeps_some_of_the_own_traits_but_no_parameters(key):
  population, config = population_fakes.make_population(
    64, burn_in_games=0, crossover_probability=0.25
  )

  def copy_first(key, population, rating_deviation):
    del key, population, rating_deviation
    return selection_lib.Selection(
      jnp.zeros((64,), jnp.int32), jnp.zeros((64,))
    )

  after, generation = _evolve(
    key, population, config, explore=STILL, select=copy_first
  )
  before = evolution.traits(population.members)
  for own, inherited, mixed in zip(
    *map(jax.tree.leaves, (before, generation.inherited, generation.explored)),
    strict=True,
  ):
    own, inherited, mixed = map(np.asarray, (own, inherited, mixed))
    is_own, is_inherited = mixed == own, mixed == inherited
    assert (is_own | is_inherited).all()
    np.testing.assert_array_equal(inherited, np.broadcast_to(own[0], own.shape))
    if (own != own[0]).any():
      assert 0.05 < np.mean(is_own & ~is_inherited) < 0.45
      assert 0.55 < np.mean(is_inherited[1:]) < 0.95
  # Each value is drawn by itself, not whole members or whole events.
  weights = generation.explored.internal_rewards == before.internal_rewards
  mixed = np.asarray(weights)[1:]
  assert (mixed.any(axis=1) & ~mixed.all(axis=1)).mean() > 0.4
  np.testing.assert_array_equal(
    after.members.params['w'],
    np.broadcast_to(
      population.members.params['w'][0],
      (64, *after.members.params['w'].shape[1:]),
    ),
  )


def test_only_copies_are_crossed(key):
  population, config = _in_order(crossover_probability=1.0)
  after, generation = _evolve(key, population, config, explore=STILL)
  copied = np.asarray(generation.parent) != np.arange(4)
  assert copied[0]
  assert not copied[3]
  _assert_trees_equal(
    evolution.traits(after.members), evolution.traits(population.members)
  )
  np.testing.assert_array_equal(
    after.members.params['w'],
    np.asarray(population.members.params['w'])[generation.parent],
  )


def test_resample_draws_from_the_priors():
  population, config = population_fakes.make_population(
    num_members=64, burn_in_games=0
  )
  population = population._replace(
    ratings=jnp.where(jnp.arange(64) == 0, 3000.0, 0.0)
  )

  def copy_first(key, population, rating_deviation):
    del key, population, rating_deviation
    return selection_lib.Selection(
      jnp.zeros((64,), jnp.int32), jnp.zeros((64,))
    )

  after, generation = _evolve(
    jax.random.PRNGKey(1),
    population,
    config,
    select=copy_first,
    explore=exploring.Resample(),
  )
  scale = np.asarray(after.members.hyperparameters.gradient_scale)[1:]
  kept = scale == np.asarray(generation.inherited.hyperparameters[1])[0]
  assert 0.6 < kept.mean() < 0.9
  assert scale[~kept].std() > 0.1
  weights = np.asarray(after.members.internal_rewards)[1:]
  kept = weights == np.asarray(population.members.internal_rewards)[0]
  assert 0.6 < kept.mean() < 0.9
  assert (weights[~kept] < 0.0).any()


def test_an_explore_rule_of_ones_own_is_clipped(key):
  population, config = _in_order()

  def double(key, inherited, priors):
    del key, priors
    return jax.tree.map(lambda leaf: 1000 * leaf, inherited)

  after, generation = _evolve(key, population, config, explore=double)
  copied = np.asarray(generation.parent) != np.arange(4)
  traits = evolution.traits(after.members)
  for name, (_, high) in BOUNDS.items():
    value = np.asarray(getattr(traits.hyperparameters, name))
    np.testing.assert_array_equal(value[copied], np.float32(high))
  assert np.all(np.abs(np.asarray(traits.internal_rewards)) <= 1.0)


def test_without_exploitation_nothing_changes(key):
  population, config = population_fakes.make_population(
    1, exploits=False, burn_in_games=0
  )
  after, generation = _evolve(key, population, config)
  _assert_trees_equal(after._replace(generation=jnp.int32(0)), population)
  assert generation.number == 1


@pytest.mark.ci
def test_a_population_of_populations_is_a_vmap(key):
  population, config = _in_order()
  keys = jax.random.split(key, 3)
  evolve = _compiled(config, explore=PERTURBED)
  evolve = jax.jit(jax.vmap(evolve, in_axes=(0, None)))
  afters, _ = evolve(keys, population)
  alone, _ = _evolve(keys[2], population, config, explore=PERTURBED)
  _assert_trees_equal(jax.tree.map(lambda leaf: leaf[2], afters), alone)


# Evolutions of 10,000 generations in which results are random.


def _random_evolution(num_generations, num_members=5):
  population, config = population_fakes.make_population(
    num_members, burn_in_games=30
  )

  def step(population, key):
    games_key, rating_key, evolve_key = jax.random.split(key, 3)
    games = jax.random.randint(games_key, (num_members,), 0, 5)
    population = population._replace(
      ratings=100.0 * jax.random.normal(rating_key, (num_members,)),
      games=population.games + games,
      games_since_exploitation=population.games_since_exploitation + games,
    )
    ready = population.games_since_exploitation >= config.burn_in_games
    population, generation = evolution.evolve(
      evolve_key, population, PRIORS, config
    )
    return population, (generation, ready)

  keys = jax.random.split(jax.random.PRNGKey(7), num_generations)
  final, (generations, ready) = jax.jit(
    lambda population: jax.lax.scan(step, population, keys)
  )(population)
  return population, final, jax.tree.map(np.asarray, generations), ready


@pytest.fixture(scope='module')
def random_evolution():
  return _random_evolution(10_000)


@pytest.mark.ci
def test_bounds_are_never_left(random_evolution):
  explored = random_evolution[2].explored
  for name, (low, high) in BOUNDS.items():
    values = getattr(explored.hyperparameters, name)
    assert values.shape == (10_000, 5)
    assert values.min() >= np.float32(low), name
    assert values.max() <= np.float32(high), name
    assert len(np.unique(values)) > 10
  weights = explored.internal_rewards
  assert np.abs(weights).max() <= 1.0
  assert np.isinf(explored.hyperparameters.max_gradient_norm).all()


def test_nobody_copies_itself_or_during_its_burn_in(random_evolution):
  _, _, generations, ready = random_evolution
  copied = generations.parent != np.arange(5)
  assert copied.sum() > 1000
  assert not (copied & ~np.asarray(ready)).any()
  assert (generations.evidence[copied] > 0.7).all()
  # Whoever copied is told by the lineage, and never as its own parent.
  for number in np.flatnonzero(copied.any(axis=1))[:200]:
    generation = jax.tree.map(lambda leaf, n=number: leaf[n], generations)
    for row in lineage_lib.rows(generation, 'win_probability'):
      assert row['member'] != row['parent']


@pytest.mark.ci
def test_the_lineage_replays_the_evolution_on_bits(tmp_path, random_evolution):
  population, final, generations, _ = random_evolution
  path = tmp_path / 'lineage.jsonl'
  rows = [lineage_lib.birth_row(population)]
  copied = (generations.parent != np.arange(5)).any(axis=1)
  for number in np.flatnonzero(copied):
    generation = jax.tree.map(lambda leaf, n=number: leaf[n], generations)
    rows += lineage_lib.rows(generation, 'win_probability')
  files.append_rows(path, rows)
  replayed = lineage_replay.replay(population, loggers.read_jsonl(path))
  _assert_trees_equal(replayed.members, final.members)
  for part in ('opt_state', 'params', 'hyperparameters', 'internal_rewards'):
    for actual, expected in zip(
      jax.tree.leaves(getattr(replayed.members, part)),
      jax.tree.leaves(getattr(final.members, part)),
      strict=True,
    ):
      assert actual.dtype == expected.dtype
      assert np.asarray(actual).tobytes() == np.asarray(expected).tobytes()


def _generations(num_generations, explore=STILL, **options):
  """Yields populations and generations of an evolution, one by one."""
  population, config = population_fakes.make_population(
    4, burn_in_games=0, **options
  )
  evolve = jax.jit(
    functools.partial(
      evolution.evolve, priors=PRIORS, config=config.replace(explore=explore)
    )
  )
  for key in jax.random.split(jax.random.PRNGKey(0), num_generations):
    ratings = 200.0 * jax.random.normal(key, (4,))
    before = population._replace(ratings=ratings)
    population, generation = evolve(key, before)
    yield before, generation, population


def test_rows_tell_who_from_whom_why_and_what():
  before, generation, after = next(_generations(1, PERTURBED))
  rows = lineage_lib.rows(generation, 'win_probability')
  assert rows
  for row in json.loads(json.dumps(rows)):
    member, parent = row['member'], row['parent']
    assert row['generation'] == 1
    assert row['reason'] == 'win_probability'
    assert row['evidence'] > 0.7
    old, new = row['changed']['hyperparameters/gradient_scale']
    values = before.members.hyperparameters.gradient_scale
    assert np.float32(old) == values[parent]
    values = after.members.hyperparameters.gradient_scale
    assert np.float32(new) == values[member]
    assert row['hyperparameters']['gradient_scale'] == new
    assert row['hyperparameters']['max_gradient_norm'] == 'inf'
    assert 'hyperparameters/max_gradient_norm' not in row['changed']
    assert (
      len(row['internal_rewards']['weights']) == population_fakes.NUM_EVENTS
    )


@pytest.mark.ci
@pytest.mark.parametrize('crossover_probability', [0.0, 0.5])
def test_replay_between_training(tmp_path, crossover_probability):
  path = tmp_path / 'lineage.jsonl'
  for before, generation, after in _generations(
    5, exploring.Perturb(), crossover_probability=crossover_probability
  ):
    rows = lineage_lib.rows(generation, 'test')
    files.append_rows(path, rows)
    # Parameters are what training made of them; one generation is replayed.
    replayed = lineage_replay.replay(before, rows)
    _assert_trees_equal(replayed._replace(generation=after.generation), after)
  assert len(loggers.read_jsonl(path)) > 5


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path):
  path = tmp_path / 'lineage.jsonl'
  files.append_rows(path, [{'generation': 1}, {'generation': 2}])
  with path.open('a') as file:
    file.write('{"generation": 3, "mem')
  assert [row['generation'] for row in loggers.read_jsonl(path)] == [1, 2]
  files.append_rows(path, [{'generation': 3}])
  assert [row['generation'] for row in loggers.read_jsonl(path)] == [1, 2, 3]
  files.append_rows(path, [])
  assert path.read_text().count('\n') == 3


def test_a_broken_line_is_named(tmp_path):
  path = tmp_path / 'lineage.jsonl'
  path.write_text('{"generation": 1}\nnonsense\n{"generation": 2}\n')
  with pytest.raises(ValueError, match=r'line 2 of .*nonsense.*must be a JSON'):
    loggers.read_jsonl(path)


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
  path = tmp_path / 'lineage.jsonl'
  files.append_rows(path, [{'generation': g} for g in (0, 1, 1, 2, 3)])
  files.cut_rows(path, lambda row: row['generation'] > 1)
  assert [row['generation'] for row in loggers.read_jsonl(path)] == [0, 1, 1]
  files.cut_rows(path, lambda row: row['generation'] > -1)
  assert loggers.read_jsonl(path) == []
  assert [p.name for p in tmp_path.iterdir()] == ['lineage.jsonl']
