import jax
import jax.numpy as jnp
import numpy as np
import population_fakes
import pytest

from ftwax import types
from ftwax.population import evolution, lineage, schedules, selection


def _in_a_shuffle(key, population, config):
  """Each member copies any, also one that copies another itself."""
  del population
  num_members = config.num_members
  parent = jax.random.randint(key, (num_members,), 0, num_members)
  return selection.Selection(parent, jnp.zeros(num_members))


@pytest.fixture(scope='module')
def evolved():
  """The rows of a lineage, and each member's traits at each generation."""
  population, config = population_fakes.make_population(
    4, perturb_probability=0.5
  )
  evolve = jax.jit(
    lambda key, population: evolution.evolve(
      key, population, population_fakes.PRIORS, config, select=_in_a_shuffle
    )
  )
  traits = [evolution.traits(population.members)]
  rows = [lineage.birth_row(population)]
  # The ancestor of each member at each time, from the past on.
  ancestors = [np.arange(4)]
  for number in range(6):
    population, generation = evolve(jax.random.PRNGKey(number), population)
    traits.append(evolution.traits(population.members))
    rows += lineage.rows(generation, 'shuffle')
    parent = np.asarray(generation.parent)
    ancestors = [*(line[parent] for line in ancestors), np.arange(4)]
  return rows, traits, ancestors


@pytest.mark.parametrize('member', range(4))
def test_a_replay_has_the_values_of_the_ancestors_at_each_step(evolved, member):
  rows, traits, ancestors = evolved
  starts = {number: 3 * number for number in range(1, 7)}
  schedule = schedules.of_member(rows, starts, member)
  core = schedules.follow(
    types.LearnerCore(
      population_fakes.learner_init,
      lambda state, batch: (state._replace(steps=state.steps + 1), {}),
    ),
    schedule,
  )

  @jax.jit
  def run(key):
    return jax.lax.scan(
      lambda state, _: (core.update(state, None)[0], evolution.traits(state)),
      core.init(key),
      length=20,
    )[1]

  actual = run(jax.random.PRNGKey(9))
  for step in range(20):
    generation = min(step // 3, 6)
    ancestor = ancestors[generation][member]
    jax.tree.map(
      lambda leaf, column, step=step, ancestor=ancestor: (
        np.testing.assert_array_equal(column[step], leaf[ancestor], strict=True)
      ),
      traits[generation],
      actual,
    )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'updates': (1, 2)}, r'updates \(\(1, 2\)\) must increase from 0'),
    ({'updates': (0, 0)}, r'updates \(\(0, 0\)\) must increase from 0'),
    ({'updates': (0,)}, r'rate \(2 entries\) must have one for each of the 1'),
    ({'internal_rewards': ()}, r'rewards \(0 entries\) must have one'),
  ],
)
def test_bad_schedules(changes, message):
  fields = {
    'updates': (0, 5),
    'hyperparameters': {'rate': (0.1, 0.2)},
    'internal_rewards': ((1.0,), (2.0,)),
  }
  schedule = schedules.Schedule(**fields)
  schedules.check(schedule, ['rate'], 1)
  with pytest.raises(ValueError, match=message):
    schedule.replace(**changes)
  with pytest.raises(ValueError, match=r"\['rate'\].*must have the agent's"):
    schedules.check(schedule, ['cost'], 1)
  with pytest.raises(ValueError, match=r'1 events\) must have a weight.*2'):
    schedules.check(schedule, ['rate'], 2)
