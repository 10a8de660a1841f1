"""Runs of several learners of one member, of which one dies."""

import functools
import os
import pathlib
import signal
import threading
import time

import psutil
import pytest

from ftwax.agents import impala
from ftwax.environments import bsuite_adapter
from ftwax.records import checkpoints, loggers
from ftwax.runtime import distributed, experiment
from ftwax.runtime.distributed import settings

_NUM_STEPS = 2500


def _make_experiment():
  config = impala.IMPALAConfig(
    hidden_size=16, sequence_length=10, batch_size=4, max_queue_size=8
  )
  return experiment.ExperimentConfig(
    agent=config,
    environment=functools.partial(bsuite_adapter.make, 'catch/0'),
    max_num_actor_steps=_NUM_STEPS,
    num_environments=2,
    checkpointing=checkpoints.CheckpointingConfig(save_every_seconds=0.5),
    name='catch',
  )


def _find_node(name):
  """Returns the process of a node of this process's run."""
  for child in psutil.Process().children():
    try:
      if pathlib.Path(os.readlink(f'/proc/{child.pid}/fd/1')).stem == name:
        return child
    except OSError:
      continue
  return None


class _Killer(threading.Thread):
  """Kills a node once there are checkpoints of updates."""

  def __init__(self, name, directory):
    super().__init__(daemon=True)
    self._name = name
    self._directory = directory
    self.learner_steps = 0  # Of the newest checkpoint then.

  def run(self):
    deadline = time.monotonic() + 120.0
    while not self.learner_steps and time.monotonic() < deadline:
      time.sleep(0.1)
      path = loggers.log_path(self._directory, 'learner')
      rows = loggers.read_jsonl(path) if path.exists() else []
      if len(rows) > 2:
        self.learner_steps = rows[0]['learner_steps']
    _find_node(self._name).send_signal(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['learner-1', 'learner-0'])
def test_a_learner_that_is_lost_ends_in_a_restart_of_all(tmp_path, name):
  directory = tmp_path / 'run'
  killer = _Killer(name, directory)
  killer.start()
  result = distributed.run_experiment(
    _make_experiment(),
    run_dir=directory,
    settings=settings.Settings(num_learners=2, stall_timeout_s=60.0),
  )
  killer.join()
  assert killer.learner_steps > 0
  assert result.counts.actor_steps == _NUM_STEPS
  assert result.counts.learner_steps == int(result.state.steps[0])
  rows = loggers.read_jsonl(loggers.log_path(directory, 'learner'))
  assert min(row['learner_steps'] for row in rows[3:]) >= killer.learner_steps
  for node in ('learner-0', 'learner-1'):
    output = (directory / 'output' / f'{node}.txt').read_text()
    assert output.count('Binding: variables') == 2
