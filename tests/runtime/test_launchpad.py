"""Real runs as Launchpad programs with Reverb, on Python 3.10."""

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from concurrent import futures

import distributed_helpers
import jax
import launchpad as lp
import numpy as np
import pytest
from absl import flags

from ftwax import hyperparameters
from ftwax.acme import loopback, namespaces
from ftwax.agents import r2d2
from ftwax.networks import cores
from ftwax.population import population_config
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.replay import replay_options
from ftwax.runtime import distributed
from ftwax.runtime.distributed import launchpad_program

# Launchpad forgets its processes before it has waited for them.
_launches = pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnraisableExceptionWarning'
)


def test_a_program_has_the_nodes_of_the_run(tmp_path):
  made = launchpad_program.make_program(
    distributed_helpers.make_experiment(),
    eval_every=50,
    run_dir=tmp_path,
    settings=distributed.Settings(num_actors=3),
  )
  counts = {label: len(nodes) for label, nodes in made.groups.items()}
  assert counts == {
    'replay': 1,
    'learner': 1,
    'actor': 3,
    'evaluator': 1,
    'coordinator': 1,
  }
  with pytest.raises(ValueError, match='must not occur twice in a program'):
    launchpad_program.make_program(
      distributed_helpers.make_experiment(), run_dir=tmp_path, program=made
    )


def test_the_directory_of_a_program_is_made_or_refused_at_once(tmp_path):
  experiment = distributed_helpers.make_experiment()
  run_dir = tmp_path / 'new' / 'run'
  launchpad_program.make_program(experiment, run_dir=run_dir)
  assert (run_dir / run_directory.CONFIG_FILE).exists()
  with pytest.raises(
    run_directory.RunDirectoryError, match='must be new or empty.*resume=True'
  ):
    launchpad_program.make_program(experiment, run_dir=run_dir)
  launchpad_program.make_program(experiment, run_dir=run_dir, resume=True)
  with pytest.raises(run_directory.ConfigMismatchError, match='seed: 0 in'):
    launchpad_program.make_program(
      experiment.replace(seed=1), run_dir=run_dir, resume=True
    )
  for wrong in (run_dir / run_directory.CONFIG_FILE, '/proc/no/run'):
    with pytest.raises(run_directory.RunDirectoryError, match='must be'):
      launchpad_program.make_program(experiment, run_dir=wrong)


def test_a_cluster_needs_ray():
  with pytest.raises(ValueError, match="must be 'local' with Launchpad"):
    launchpad_program.make_program(
      distributed_helpers.make_experiment(),
      settings=distributed.Settings(cluster='auto'),
    )


def test_nodes_run_in_a_namespace_of_their_own():
  code = 'import os; print(os.readlink("/proc/self/ns/net"))'
  serves = 'import socket; socket.create_server(("127.0.0.1", 0)); print("up")'
  with namespaces.make_interpreter() as python:
    said = [
      subprocess.run([python, '-c', text], capture_output=True, text=True)
      for text in (code, code, serves)
    ]
  first, second, up = (one.stdout.strip() for one in said)
  assert first == second != os.readlink('/proc/self/ns/net')
  assert up == 'up', said[2].stderr
  assert not os.path.exists(python)


def test_without_a_namespace_expose_is_demanded(monkeypatch):
  monkeypatch.setenv('PATH', '')
  with pytest.raises(
    loopback.ExposedError, match=r'no network namespace .* choose --expose'
  ):
    with namespaces.make_interpreter():
      pass


@_launches
@pytest.mark.slow
def test_launchpad_runs_to_the_end_and_resumes(tmp_path):
  make = distributed_helpers.make_experiment
  result = distributed.run_experiment(make(), 50, 4, run_dir=tmp_path / 'run')
  assert result.counts.actor_steps == 100
  assert result.counts.learner_steps >= 3
  assert list(result.state.steps) == [result.counts.learner_steps]
  path = loggers.log_path(result.run_dir, 'evaluation')
  assert len(loggers.read_jsonl(path)) == 2
  resumed = distributed.run_experiment(
    make(max_num_actor_steps=150), run_dir=result.run_dir, resume=True
  )
  assert resumed.counts.actor_steps == 150
  assert checkpoints.saved_steps(result.run_dir / 'checkpoints')[-1] == 150


@_launches
@pytest.mark.slow
def test_members_learn_by_priority_from_several_actors(tmp_path):
  config = r2d2.R2D2Config(
    core=cores.LSTM(8),
    sequence_length=5,
    batch_size=4,
    learning_rate=hyperparameters.LogUniform(1e-4, 1e-3),
    replay=replay_options.Prioritized(
      capacity=40, min_size=8, samples_per_insert=2.0
    ),
  )
  result = distributed.run_experiment(
    distributed_helpers.make_experiment(
      agent=config,
      max_num_actor_steps=400,
      population=population_config.PopulationConfig(2, exploits=False),
    ),
    run_dir=tmp_path / 'run',
    settings=distributed.Settings(num_actors=2),
  )
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert rows[-1]['replay_size'] >= 8
  assert len(rows[-1]['loss']) == 2 and all(np.isfinite(rows[-1]['loss']))
  # Two samples of each trajectory, and four of an update.
  num_trajectories = result.counts.actor_steps / 2 / 5
  assert result.counts.learner_steps >= num_trajectories / 2 - 2
  assert list(result.state.steps) == [result.counts.learner_steps] * 2


def _follow(path, coordinator, learner):
  """A node of the user's own, which asks the nodes of the run."""
  (params,) = learner.get_variables()
  counts = coordinator.counts()
  shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
  pathlib.Path(path).write_text(json.dumps([counts, shapes]))


@_launches
@pytest.mark.slow
def test_a_user_launches_the_program(tmp_path, monkeypatch):
  # Nodes import what the experiment names.
  monkeypatch.setenv('PYTHONPATH', os.pathsep.join(filter(None, sys.path)))
  experiment = distributed_helpers.make_experiment()
  run_dir = tmp_path / 'run'
  made = launchpad_program.make_program(experiment, run_dir=run_dir)
  told = tmp_path / 'told.json'
  handles = launchpad_program.get_handles(made)
  with made.group('follower'):
    made.add_node(
      lp.PyNode(
        _follow, str(told), *handles['coordinator'], *handles['learner']
      )
    )
  flags.FLAGS.mark_as_parsed()
  lp.launch(made, launch_type='local_mp', terminal='current_terminal').wait()
  assert checkpoints.saved_steps(run_dir / 'checkpoints')[-1] == 100
  counts, shapes = json.loads(told.read_text())
  assert 0 <= counts['actor_steps'] <= 100
  assert shapes and all(shape[0] == 1 for shape in shapes)  # One member.


def test_a_node_is_made_once_however_many_ask():
  num_made = []

  class Node:
    def __init__(self):
      time.sleep(0.2)
      num_made.append(1)

    def ask(self):
      return len(num_made)

  server = launchpad_program.Server(Node)
  with futures.ThreadPoolExecutor(8) as threads:
    answers = threads.map(
      lambda _: server.call('ask', pickle.dumps(())), range(8)
    )
    assert [pickle.loads(answer) for answer in answers] == [1] * 8


_ENDLESS = """
import sys
import distributed_helpers
from ftwax.runtime import distributed
from ftwax.runtime.distributed import launchpad_program
if __name__ == '__main__':
  experiment = distributed_helpers.make_experiment(max_num_actor_steps=10**9)
  distributed.run_experiment(experiment, run_dir=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize('name', ['SIGTERM', 'SIGUSR1', 'SIGUSR2', 'SIGXCPU'])
def test_what_a_cluster_sends_saves_and_ends(name, tmp_path):
  """Slurm sends `--signal` to all processes of a job, of nodes, too."""
  run_dir, helpers = tmp_path / 'run', pathlib.Path(__file__).parents[1]
  paths = os.pathsep.join(map(str, (helpers, helpers / 'runtime')))
  with subprocess.Popen(
    [sys.executable, '-c', _ENDLESS, run_dir],
    env={**os.environ, 'PYTHONPATH': paths},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    start_new_session=True,
  ) as process:
    log = loggers.log_path(run_dir, 'learner')
    deadline = time.monotonic() + 180.0
    while not (log.exists() and log.stat().st_size):
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.5)
    if name == 'SIGTERM':
      process.terminate()
    else:
      os.killpg(process.pid, signal.Signals[name])
    output, _ = process.communicate(timeout=120)
  assert 'Interrupted. Saved at' in output, output
  # As of a KeyboardInterrupt; the command line ends with 130.
  assert process.returncode == -signal.SIGINT
  assert checkpoints.saved_steps(run_dir / 'checkpoints')
