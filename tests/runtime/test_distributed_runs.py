"""Whole distributed runs: all nodes as threads, and as processes."""

import contextlib
import functools
import json
import os
import signal
import sys
import tempfile
import threading
import time

import cloudpickle
import distributed_helpers
import jax
import launchpad as lp
import numpy as np
import psutil
import pytest
from absl import flags
from absl.testing import absltest

from ftwax.environments import vector
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.runtime import callbacks, distributed, loading, runs
from ftwax.runtime.distributed import settings


@pytest.fixture
def launch():
  """Launches a program as threads; signal handlers are put back."""
  signals = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGALRM)
  before = {signum: signal.getsignal(signum) for signum in signals}
  test_case = absltest.TestCase()
  if not flags.FLAGS.is_parsed():
    flags.FLAGS(['test'])  # Or Launchpad parses those of pytest.
  yield functools.partial(lp.launch, launch_type='test_mt', test_case=test_case)
  test_case.doCleanups()
  for signum, handler in before.items():
    signal.signal(signum, handler)


def _read_rows(directory, label):
  return loggers.read_jsonl(loggers.log_path(directory, label))


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:setDaemon:DeprecationWarning')
def test_a_program_of_threads_ends_at_its_last_step(launch, tmp_path):
  # 403 is no multiple of 2 environments, nor of what an actor asks for.
  config = distributed_helpers.make_experiment(max_num_actor_steps=403)
  directory = run_directory.create_at(tmp_path / 'run', config)
  program = distributed.make_distributed_experiment(
    config, eval_every=200, num_eval_episodes=2, run_dir=directory
  )
  launch(program).wait()
  train = _read_rows(directory, 'train')
  assert {row['actor'] for row in train} <= {0, 1}
  assert all(row['episode_length'] == 4 for row in train)
  assert train[-1]['actor_steps'] <= 403
  evaluation = _read_rows(directory, 'evaluation')
  assert len(evaluation) == 2
  assert all(row['num_episodes'] == 2 for row in evaluation)
  learner = _read_rows(directory, 'learner')
  assert learner[-1]['learner_steps'] >= 10
  with checkpoints.Checkpointer(directory / 'checkpoints') as saved:
    assert saved.steps() == [403]


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:setDaemon:DeprecationWarning')
def test_observers_end_a_run_and_keep_its_best(launch, tmp_path):
  config = distributed_helpers.make_experiment(
    max_num_actor_steps=1_000_000,
    observers=[callbacks.EarlyStopping(patience=1), callbacks.BestCheckpoint()],
  )
  directory = run_directory.create_at(tmp_path / 'run', config)
  program = distributed.make_distributed_experiment(
    config, eval_every=200, num_eval_episodes=2, run_dir=directory
  )
  launch(program).wait()
  rows = _read_rows(directory, 'evaluation')
  returns = [row['episode_return'] for row in rows]
  # One was no better than those before; there may be more of the time until
  # the actors heard of it.
  assert any(later <= max(returns[:i]) for i, later in enumerate(returns) if i)
  with checkpoints.Checkpointer(directory / 'checkpoints') as saved:
    assert saved.steps()[-1] < 1_000_000
  best = json.loads((directory / 'best' / 'score.json').read_text())
  assert best['episode_return'] == max(returns)
  assert loading.load(directory, step='best').act is not None


def _children():
  return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def leaving_nothing(tmp_path, monkeypatch):
  """A context that checks for processes, thus ports, and temporary files."""
  temporary = tmp_path / 'temporary'
  temporary.mkdir()

  @contextlib.contextmanager
  def check():
    children = _children()
    with monkeypatch.context() as patch:
      # Launchpad writes there, and so do runs of other tests meanwhile.
      patch.setattr(tempfile, 'tempdir', str(temporary))
      yield
    assert _children() <= children
    assert not list(temporary.iterdir())

  return check


def test_a_run_of_processes_ends_and_leaves_its_records(
  leaving_nothing, tmp_path, capfd
):
  with leaving_nothing():
    result = distributed.run_experiment(
      distributed_helpers.make_experiment(max_num_actor_steps=403),
      run_dir=tmp_path / 'run',
    )
  assert result.counts.actor_steps == 403
  assert result.counts.learner_steps == int(result.state.steps[0]) >= 10
  assert result.counts.episodes == sum(
    row['num_episodes'] for row in _read_rows(result.run_dir, 'train')
  )
  assert {path.name for path in result.run_dir.iterdir()} >= {
    'checkpoints',
    'config.json',
    'logs',
    'output',
    'replay',
  }
  last_line = capfd.readouterr().out.splitlines()[-1]
  assert last_line.startswith('403 of 403 steps | took 0:')
  assert f'{result.counts.episodes:,} episodes' in last_line


def _make_vector(num_environments, seed):
  return vector.VectorEnvironment(
    [
      distributed_helpers.make_fake(seed=seed + row)
      for row in range(num_environments)
    ]
  )


@pytest.mark.slow
@pytest.mark.usefixtures('pickled_by_value')
@pytest.mark.parametrize(
  'options',
  [
    {'environment_processes': 2},
    {'environment': vector.VectorFactory(_make_vector)},
  ],
  ids=['processes', 'vector'],
)
def test_environments_that_step_together(leaving_nothing, tmp_path, options):
  with leaving_nothing():
    result = distributed.run_experiment(
      distributed_helpers.make_experiment(max_num_actor_steps=403, **options),
      eval_every=200,
      num_eval_episodes=2,
      run_dir=tmp_path / 'run',
      settings=settings.Settings(num_actors=1),
    )
  assert result.counts.actor_steps == 403
  assert result.counts.learner_steps >= 10
  train = _read_rows(result.run_dir, 'train')
  assert all(row['episode_length'] == 4 for row in train)
  assert _read_rows(result.run_dir, 'evaluation')


@pytest.fixture
def pickled_by_value():
  """Lets nodes have functions of modules that they cannot import."""
  modules = (sys.modules[__name__], distributed_helpers)
  for module in modules:
    cloudpickle.register_pickle_by_value(module)
  yield
  for module in modules:
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow
@pytest.mark.usefixtures('pickled_by_value')
def test_a_bad_environment_ends_the_run_and_is_told(leaving_nothing, tmp_path):
  config = distributed_helpers.make_experiment(
    max_num_actor_steps=10**9,
    environment=functools.partial(_fail_in_nodes, os.getpid()),
  )
  with (
    leaving_nothing(),
    pytest.raises(
      distributed.NodeFailedError, match=r'(?s)actor/0 failed.*no such game'
    ),
  ):
    distributed.run_experiment(
      config,
      run_dir=tmp_path / 'run',
      settings=settings.Settings(
        num_actors=1, max_restarts=0, stop_timeout_s=5.0
      ),
    )


def _fail_in_nodes(pid, seed):
  if os.getpid() != pid:
    raise ValueError('no such game')
  return distributed_helpers.make_fake(seed)


def _interrupt_when_it_acts(directory):
  """Sends SIGTERM to this process once episodes are logged, or after 80 s."""
  path = loggers.log_path(directory, 'train')

  def run():
    deadline = time.monotonic() + 80.0
    while time.monotonic() < deadline:
      rows = loggers.read_jsonl(path) if path.exists() else []
      if rows and rows[-1]['actor_steps'] >= 200:
        break
      time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)

  thread = threading.Thread(target=run)
  thread.start()
  return thread


@pytest.mark.parametrize(
  'num_learners', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_run_that_is_told_to_end_saves_and_can_go_on(
  leaving_nothing, tmp_path, capsys, num_learners
):
  directory = tmp_path / 'run'
  thread = _interrupt_when_it_acts(directory)
  with leaving_nothing(), pytest.raises(KeyboardInterrupt):
    distributed.run_experiment(
      distributed_helpers.make_experiment(max_num_actor_steps=10**9),
      run_dir=directory,
      settings=settings.Settings(
        num_actors=num_learners, num_learners=num_learners
      ),
    )
  thread.join()
  assert '--resume --run_dir=' in capsys.readouterr().out
  with checkpoints.Checkpointer(directory / 'checkpoints') as saved:
    steps = saved.steps()[-1]
  assert steps >= 200
  # The local runtime, too, goes on from what this one saved.
  result = runs.run_experiment(
    distributed_helpers.make_experiment(max_num_actor_steps=steps + 40),
    run_dir=directory,
    resume=True,
  )
  assert steps + 40 <= result.counts.actor_steps < steps + 42
  assert result.counts.learner_steps == int(result.state.steps[0]) > 0


@pytest.mark.parametrize(
  'num_learners', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_actors_without_parameters_and_a_learner_on_two_devices(
  tmp_path, num_learners
):
  result = distributed.run_experiment(
    distributed_helpers.make_experiment(max_num_actor_steps=403),
    eval_every=200,
    num_eval_episodes=2,
    run_dir=tmp_path / 'run',
    settings=settings.Settings(
      inference_server=True, num_devices=2, num_learners=num_learners
    ),
  )
  assert result.counts.actor_steps == 403
  assert result.counts.learner_steps >= 10
  train = _read_rows(result.run_dir, 'train')
  assert {row['actor'] for row in train} == {0, 1}
  assert len(_read_rows(result.run_dir, 'evaluation')) == 2
  assert (result.run_dir / 'output' / 'inference.txt').exists()


@pytest.mark.slow
def test_local_batches_are_spread_over_devices(tmp_path):
  config = distributed_helpers.make_experiment(max_num_actor_steps=400)

  def run(name, devices):
    return runs.run_experiment(
      config, run_dir=tmp_path / name, devices=devices
    ).state

  one, four = run('one', None), run('four', jax.devices()[:4])
  assert len(four.steps.sharding.device_set) == 4
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
    four,
    one,
  )
  with pytest.raises(
    ValueError, match=r'batch_size \(4\) must divide by .*\(3\).*choose 6'
  ):
    run('three', jax.devices()[:3])
