"""Experiment trackers, tested by what they keep on this machine."""

import json

import pytest

from ftwax.records import loggers, trackers

HYPERPARAMETER = 'hyperparameters/learning_rate'
ROW = {
  'ratings': [1000.0, 1010.0],
  'games': [3, 4],
  HYPERPARAMETER: [0.1, 0.2],
  'internal_rewards': [[1.0, -1.0], [0.5, 0.0]],
  'payoff_scores': [[0.0, 1.0], [2.0, 0.0]],
  'actor_steps': 40,
}


class _Tracker:
  """Keeps what it is given."""

  made = []

  def __init__(self, run_dir, name, config):
    del run_dir
    self.name, self.config, self.rows, self.is_closed = name, config, [], False
    _Tracker.made.append(self)

  def log(self, label, values, step):
    self.rows.append((label, dict(values), step))

  def close(self):
    assert not self.is_closed
    self.is_closed = True


@pytest.fixture
def run_dir(tmp_path):
  run_dir = tmp_path / "anna's" / 'my_game' / 'run_1'
  run_dir.mkdir(parents=True)
  config = {'seed': 7, 'builder': {'config': {'batch_size': 32}}}
  (run_dir / 'config.json').write_text(json.dumps(config))
  return run_dir


def _log(run_dir, tracker):
  """Writes two logs of a population as a run does."""
  factory = loggers.make_logger_factory(
    run_dir, terminal=False, tensorboard=False, trackers=[tracker]
  )
  train = factory('train', 'actor_steps')
  population = factory('population', 'actor_steps')
  train.write({'episode_return': 2.5, 'actor_steps': 20, 'text': 'a'})
  population.write(ROW)
  train.close()
  population.close()


def test_members_are_runs_of_their_own(run_dir, monkeypatch):
  _Tracker.made.clear()
  monkeypatch.setitem(trackers._MAKERS, 'fake', _Tracker)
  _log(run_dir, 'fake')
  whole, *members = _Tracker.made
  assert all(tracker.is_closed for tracker in _Tracker.made)
  assert whole.name == 'run_1'
  assert whole.config == {'seed': 7, 'builder.config.batch_size': 32}
  assert whole.rows == [
    ('train', {'episode_return': 2.5, 'actor_steps': 20.0}, 20),
    ('population', {'actor_steps': 40.0}, 40),
  ]
  assert [member.name for member in members] == [
    'run_1 member 0',
    'run_1 member 1',
  ]
  assert members[1].rows == [
    (
      'population',
      {
        'ratings': 1010.0,
        'games': 4.0,
        HYPERPARAMETER: 0.2,
        'internal_rewards/0': 0.5,
        'internal_rewards/1': 0.0,
      },
      40,
    )
  ]


def test_trackers_that_are_not_there(run_dir):
  with pytest.raises(ValueError, match=r"tracker \('excel'\) must be one of"):
    loggers.make_logger_factory(run_dir, trackers=['excel'])


def test_weights_and_biases(run_dir, monkeypatch):
  pytest.importorskip('wandb', reason='the extra loggers is not there')
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_SILENT', 'true')
  _log(run_dir, 'wandb')
  runs = list((run_dir / 'wandb').glob('offline-run-*'))
  assert {path.name.rpartition('-')[2] for path in runs} >= {'0', '1'}
  assert len(runs) == 3
  for path in runs:
    (file,) = path.glob('*.wandb')
    content = file.read_bytes()
    assert b'builder.config.batch_size' in content
    if 'member' in path.name:
      assert HYPERPARAMETER.encode() in content
    else:
      assert b'train/episode_return' in content
