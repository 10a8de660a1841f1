"""A whole run of A3C: actors that wait for nobody, batches of one."""

import functools

import fakes
import numpy as np
import pytest

from ftwax.agents import a3c
from ftwax.records import loggers
from ftwax.runtime import distributed, experiment

_NUM_STEPS = 403
_NUM_ACTORS = 2
_NUM_ENVIRONMENTS = 2
_SEQUENCE_LENGTH = 5


@pytest.mark.slow
def test_each_trajectory_makes_an_update_whoever_wrote_it(tmp_path):
  config = a3c.A3CConfig(
    hidden_size=8, sequence_length=_SEQUENCE_LENGTH, max_queue_size=4
  )
  result = distributed.run_experiment(
    experiment.ExperimentConfig(
      agent=config,
      environment=functools.partial(
        fakes.FakeEnvironment, fakes.make_vector_spec(), 4, False
      ),
      max_num_actor_steps=_NUM_STEPS,
      num_environments=_NUM_ENVIRONMENTS,
      name='a3c',
    ),
    settings=distributed.Settings(num_actors=_NUM_ACTORS),
    run_dir=tmp_path / 'run',
  )
  counts = result.counts
  assert counts.actor_steps == _NUM_STEPS
  # The step from an episode to the next is a transition too. Those that wait
  # when the run ends make no update, nor do those that are not complete.
  written = (counts.actor_steps + counts.episodes) // _SEQUENCE_LENGTH
  waiting = config.max_queue_size + _NUM_ACTORS * _NUM_ENVIRONMENTS
  assert written - waiting <= counts.learner_steps <= written
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  assert {row['actor'] for row in rows} == set(range(_NUM_ACTORS))
  assert int(result.state.steps[0]) == counts.learner_steps
  assert int(result.state.skipped[0]) == 0
  learner = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert np.isfinite([row['loss'] for row in learner]).all()
