"""Runs in which members play against snapshots of themselves."""

import shutil

import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax import types
from ftwax.population import population_config
from ftwax.records import checkpoints, loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare
from ftwax.runtime.distributed import runner, settings

pytestmark = pytest.mark.slow


class _Watch(experiment_lib.Observer):
  """Keeps members, and snapshots, after each generation."""

  def __init__(self):
    self.seen = []

  def observe_generation(self, population):
    kept = types.actor_variables(population.members), population.past
    self.seen.append(jax.tree.map(np.array, kept))


def _make_experiment(watch, **options):
  return population_helpers.make_experiment(
    num_environments=16,
    max_num_actor_steps=2_000,
    observers=[watch],
    population=population_config.PopulationConfig(
      4,
      burn_in_games=0,
      num_past=3,
      past_period=2,
    ),
    **options,
  )


@pytest.mark.parametrize('runtime', ['device', 'local'])
def test_a_run_with_past_selves_goes_on_bit_for_bit(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  watch = _Watch()
  often = checkpoints.CheckpointingConfig(1e-9, max_to_keep=1000)
  whole = run(_make_experiment(watch, checkpointing=often))
  # In rounds 2 and 4, counted from 0, of members as the round began.
  members = [members for members, _ in watch.seen]
  past = watch.seen[4][1]
  assert int(past.num_taken) == 2
  for slot, round_ in enumerate((2, 4)):
    jax.tree.map(
      lambda snapshot, member, slot=slot: np.testing.assert_array_equal(
        snapshot[slot], member[slot]
      ),
      past.variables,
      members[round_ - 1],
    )
  assert past.payoff.games.sum() > 0
  rows = loggers.read_jsonl(loggers.log_path(whole.run_dir, 'population'))
  assert len(rows[-1]['opponent_ratings']) == 3
  saved = sorted((whole.run_dir / 'checkpoints').iterdir())
  for later in saved[len(saved) // 2 :]:
    shutil.rmtree(later)
  resumed = run(_make_experiment(_Watch(), checkpointing=often), resume=True)
  run_helpers.assert_same(whole.state, resumed.state)
  again = loggers.read_jsonl(loggers.log_path(whole.run_dir, 'population'))
  assert again[-1]['opponent_ratings'] == rows[-1]['opponent_ratings']


def test_distributed_runs_refuse_past_selves():
  parts = prepare.prepare(_make_experiment(_Watch()))
  with pytest.raises(ValueError, match=r'num_past \(3\) must be 0 in a dist'):
    runner.check(parts, settings.Settings())
