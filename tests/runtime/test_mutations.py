"""Mutations in the lineage are those that learners apply."""

import itertools

import in_process
import jax
import jax.numpy as jnp
import numpy as np
import optax
import population_helpers
import pytest

import ftwax
from ftwax.environments import catch
from ftwax.population import exploring, selection
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare, runs
from ftwax.runtime.distributed import runner

pytestmark = pytest.mark.slow


def _make_environment(seed):
  del seed
  # An episode ends in each round, after which members may copy.
  return catch.make(rows=3, columns=3)


def _step_sizes(before, after):
  """Returns the learning rates [4] of one update, from Adam's own state."""

  def step_size(before, after):
    (adam,) = [
      part
      for part in jax.tree.leaves(
        after.opt_state,
        is_leaf=lambda part: isinstance(part, optax.ScaleByAdamState),
      )
      if isinstance(part, optax.ScaleByAdamState)
    ]
    mean = 1 - 0.9**adam.count
    square = 1 - 0.999**adam.count
    direction = jax.tree.map(
      lambda mu, nu: mu / mean / (jnp.sqrt(nu / square) + 1e-5),
      adam.mu,
      adam.nu,
    )
    moved = jax.tree.map(jnp.subtract, before.params, after.params)
    return optax.tree.norm(moved) / optax.tree.norm(direction)

  return np.asarray(jax.vmap(step_size)(before, after))


class _Members(experiment_lib.Observer):
  """Keeps the members after each generation, by its number."""

  def __init__(self):
    self.states = {}

  def observe_generation(self, population):
    members = jax.tree.map(np.array, population.members)
    self.states[int(population.generation)] = members


def _make_experiment(max_num_actor_steps, **options):
  return population_helpers.make_experiment(
    _make_environment,
    population_helpers.CONFIG.replace(optimizer='adam'),
    max_num_actor_steps=max_num_actor_steps,
    steps_per_round=population_helpers.CONFIG.sequence_length,
    num_environments=16,
    population=ftwax.PopulationConfig(
      4,
      select=selection.Truncation(0.5),
      explore=exploring.Perturb(1.0),
      burn_in_games=4,
    ),
    **options,
  )


@pytest.mark.parametrize('runtime', ['device', 'local'])
def test_members_learn_at_the_announced_rates_also_after_a_resume(
  tmp_path, runtime
):
  def run(max_num_actor_steps, resume=False):
    members = _Members()
    experiment = _make_experiment(max_num_actor_steps, observers=[members])
    ftwax.run(
      experiment, runtime=runtime, run_dir=tmp_path / 'run', resume=resume
    )
    return members.states

  first = run(800)
  resumed = run(1_200, resume=True)
  # The resumed run may repeat generations since the checkpoint.
  states = {**first, **resumed}
  assert list(states) == list(range(1, len(states) + 1))
  birth, *rows = history.read_lineage(tmp_path / 'run')
  announced = list(birth['hyperparameters']['learning_rate'])
  num_checked, is_checked_after_resume = 0, False
  mutants = set()
  for number, next_number in itertools.pairwise(states):
    before, after = states[number], states[next_number]
    changed = {
      row['member']: row for row in rows if row['generation'] == number
    }
    for member, row in changed.items():
      announced[member] = row['hyperparameters']['learning_rate']
      mutants.add(member)
    np.testing.assert_array_equal(
      before.hyperparameters.learning_rate, np.float32(announced)
    )
    copies_next = {
      row['member'] for row in rows if row['generation'] == next_number
    }
    if (after.steps - before.steps == 1).all():
      rates = _step_sizes(before, after)
      # Those that copy next have others' parameters in `after`.
      for member in mutants - copies_next:
        np.testing.assert_allclose(rates[member], announced[member], rtol=1e-3)
        num_checked += 1
        is_checked_after_resume |= next_number == min(resumed)
  assert num_checked > 10
  assert is_checked_after_resume


class _Watched(in_process.InProcess):
  """Compares each update of learners with what the lineage announces."""

  def __init__(self, directory):
    super().__init__()
    self._lineage = directory / history.LINEAGE_FILE
    self.num_checked = self.num_mutants = 0

  def call(self, name, method, *args, num_returns=1):
    if method != 'learn':
      return super().call(name, method, *args, num_returns=num_returns)
    before = self.get(super().call(name, 'state')[0])
    result = super().call(name, method, *args, num_returns=num_returns)
    after = self.get(super().call(name, 'state')[0])
    if (after.steps - before.steps == 1).all():
      birth, *rows = loggers.read_jsonl(self._lineage)
      announced = list(birth['hyperparameters']['learning_rate'])
      for row in rows:
        announced[row['member']] = row['hyperparameters']['learning_rate']
      rates = _step_sizes(before, after)
      np.testing.assert_allclose(rates, announced, rtol=1e-3)
      self.num_checked += 1
      self.num_mutants += len(rows)
    return result


def test_learners_of_distributed_runs_do_so_too(tmp_path):
  for steps in (800, 1_200):
    experiment = _make_experiment(steps)
    engine = _Watched(tmp_path)
    runner.run_with(
      lambda engine=engine: engine,
      prepare.prepare(experiment),
      runs.open_run_directory(experiment, tmp_path, steps > 800),
      num_eval_episodes=4,
      resume=steps > 800,
    )
    assert engine.num_checked and engine.num_mutants
