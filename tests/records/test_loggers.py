import io
import json
import struct
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from ftwax.records import (
  log_values,
  loggers,
  tensorboard_logger,
)


class _Recorder:
  """Remembers what is written to it."""

  def __init__(self):
    self.written = []
    self.closed = False

  def write(self, values):
    self.written.append(dict(values))

  def close(self):
    self.closed = True


def test_to_plain_gives_python_numbers():
  plain = log_values.to_plain(
    {
      'jax': jnp.float32(0.5),
      'half': jnp.bfloat16(1.5),
      'count': np.int64(3),
      'flag': np.bool_(True),
      'vector': jnp.arange(3),
      'one': np.ones((1,)),
      'text': 'a',
      'nothing': None,
    }
  )
  assert plain == {
    'jax': 0.5,
    'half': 1.5,
    'count': 3,
    'flag': True,
    'vector': [0, 1, 2],
    'one': [1.0],
    'text': 'a',
    'nothing': None,
  }
  types = [type(value) for value in plain.values()]
  assert types == [float, float, int, bool, list, list, str, type(None)]


def test_to_plain_names_what_is_no_number():
  with pytest.raises(TypeError, match=r"logged value 'loss' \(.*\) must be a"):
    log_values.to_plain({'loss': {'a': 1}})


def test_jsonl_appends_on_resume(tmp_path):
  path = tmp_path / 'logs' / 'train.jsonl'
  for steps in (1, 2):
    logger = loggers.JSONLLogger(path)
    logger.write({'steps': jnp.int32(steps), 'values': np.ones((2,))})
    logger.close()
  lines = path.read_text().splitlines()
  assert [json.loads(line) for line in lines] == [
    {'steps': 1, 'values': [1.0, 1.0]},
    {'steps': 2, 'values': [1.0, 1.0]},
  ]


def test_jsonl_writes_null_for_what_is_not_finite(tmp_path):
  logger = loggers.JSONLLogger(tmp_path / 'a.jsonl')
  logger.write({'a': np.nan, 'b': -np.inf, 'c': [1.0, jnp.inf], 'd': 2.0})
  logger.close()
  text = (tmp_path / 'a.jsonl').read_text()
  assert text == '{"a": null, "b": null, "c": [1.0, null], "d": 2.0}\n'


def test_jsonl_is_on_disk_before_it_is_closed(tmp_path):
  logger = loggers.JSONLLogger(tmp_path / 'a.jsonl')
  logger.write({'a': 1})
  assert loggers.read_jsonl(tmp_path / 'a.jsonl') == [{'a': 1}]
  logger.close()


def test_jsonl_cuts_a_torn_line_off(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('{"a": 1}\n{"a": 2')
  assert loggers.read_jsonl(path) == [{'a': 1}]
  logger = loggers.JSONLLogger(path)
  logger.write({'a': 3})
  logger.close()
  assert loggers.read_jsonl(path) == [{'a': 1}, {'a': 3}]


def test_read_jsonl_names_the_line_that_is_broken(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('{"a": 1}\nfoo\n{"a": 2}\n')
  with pytest.raises(
    ValueError, match=r"line 2 of .*a.jsonl \('foo'\) must be"
  ):
    loggers.read_jsonl(path)


def _tensorboard_events(directory):
  """Reads events of all files, by the layout of TFRecord files."""
  from tensorboardX.proto import event_pb2

  events = []
  for path in sorted(directory.iterdir()):
    content = path.read_bytes()
    while content:
      (length,) = struct.unpack('Q', content[:8])
      events.append(event_pb2.Event.FromString(content[12 : 12 + length]))
      content = content[16 + length :]
  return [event for event in events if event.HasField('summary')]


def test_tensorboard_writes_scalars_and_entries_of_vectors(tmp_path):
  logger = tensorboard_logger.TensorBoardLogger(tmp_path, 'train', 'steps')
  logger.write(
    {'steps': jnp.int32(7), 'loss': 0.5, 'elo': np.ones((2,)), 'text': 'a'}
  )
  # Read before closing: writes are flushed.
  (event,) = _tensorboard_events(tmp_path)
  logger.close()
  values = {value.tag: value.simple_value for value in event.summary.value}
  assert event.step == 7
  assert values == {
    'train/steps': 7,
    'train/loss': 0.5,
    'train/elo/0': 1,
    'train/elo/1': 1,
  }


def test_pictures_go_to_tensorboard_alone(tmp_path, capsys):
  factory = loggers.make_logger_factory(tmp_path)
  logger = factory('pictures')
  picture = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
  logger.write({'frame': picture, 'steps': 3})
  logger.close()
  (event,) = _tensorboard_events(tmp_path / 'tensorboard' / 'pictures')
  found, steps = event.summary.value
  assert (found.tag, steps.tag) == ('pictures/frame', 'pictures/steps')
  assert (found.image.height, found.image.width) == (5, 2)
  decoded = Image.open(io.BytesIO(found.image.encoded_image_string))
  np.testing.assert_array_equal(np.asarray(decoded), picture)
  rows = loggers.read_jsonl(loggers.log_path(tmp_path, 'pictures'))
  assert rows == [{'steps': 3}]
  assert capsys.readouterr().out == '[pictures] steps 3\n'


def test_tensorboard_counts_writes_without_steps(tmp_path):
  logger = tensorboard_logger.TensorBoardLogger(tmp_path, 'train', 'steps')
  for _ in range(2):
    logger.write({'loss': 0.5})
  logger.close()
  assert [event.step for event in _tensorboard_events(tmp_path)] == [0, 1]


def test_tensorboard_does_not_overwrite_on_resume(tmp_path):
  for _ in range(2):
    logger = tensorboard_logger.TensorBoardLogger(tmp_path, 'train')
    logger.write({'loss': 0.5})
    logger.close()
  assert len(_tensorboard_events(tmp_path)) == 2


def test_terminal_prints_lines(capsys):
  logger = loggers.TerminalLogger('train')
  logger.write({'steps': 123456, 'loss': np.float32(0.125), 'big': 54321.0})
  logger.close()
  line = '[train] steps 123456 | loss 0.125 | big 54,321\n'
  assert capsys.readouterr().out == line


def test_time_filter_drops_but_keeps_the_last():
  now = [0.0]
  recorder = _Recorder()
  logger = loggers.TimeFilter(recorder, 10.0, clock=lambda: now[0])
  for now[0] in (0.0, 5.0, 10.0, 12.0, 19.0):
    logger.write({'t': now[0]})
  assert [values['t'] for values in recorder.written] == [0.0, 10.0]
  logger.close()
  assert [values['t'] for values in recorder.written] == [0.0, 10.0, 19.0]
  assert recorder.closed


def test_time_filter_writes_nothing_twice():
  recorder = _Recorder()
  logger = loggers.TimeFilter(recorder, 0.0)
  logger.write({'t': 0})
  logger.close()
  assert recorder.written == [{'t': 0}]


def test_time_filter_refuses_negative_seconds():
  with pytest.raises(ValueError, match=r'min_seconds \(-1\) must not be neg'):
    loggers.TimeFilter(_Recorder(), -1)


def _episodes(num_episodes):
  generator = np.random.default_rng(0)
  return [
    {
      'episode_return': float(generator.normal()),
      'event_returns': generator.normal(size=(3,)).tolist(),
      'num_episodes': int(generator.integers(1, 5)),
      'actor_steps': 10 * index,
      'seconds': 0.01 * index,
      'name': f'episode {index}',
    }
    for index in range(num_episodes)
  ]


def _weighted_mean(rows, name):
  weights = [row.get('num_episodes', 1) for row in rows]
  return np.average([row[name] for row in rows], axis=0, weights=weights)


def test_episode_filter_merges_but_loses_no_episode():
  now = [0.0]
  recorder = _Recorder()
  logger = loggers.EpisodeFilter(
    recorder, 1.0, num_unmerged=5, clock=lambda: now[0]
  )
  rows = _episodes(1000)
  for row in rows:
    now[0] = row['seconds']
    logger.write(row)
  logger.close()
  assert recorder.closed
  assert recorder.written[:5] == rows[:5]
  assert len(recorder.written) == 5 + 10 + 1
  for written in (recorder.written, recorder.written[:9]):
    episodes = [r for r in rows if r['seconds'] <= written[-1]['seconds']]
    total = sum(row['num_episodes'] for row in episodes)
    assert sum(row['num_episodes'] for row in written) == total
    for name in ('episode_return', 'event_returns'):
      np.testing.assert_allclose(
        _weighted_mean(written, name), _weighted_mean(episodes, name)
      )
    for name in ('actor_steps', 'seconds', 'name'):
      assert written[-1][name] == episodes[-1][name]


def test_episode_filter_counts_rows_without_a_number_of_episodes():
  recorder = _Recorder()
  logger = loggers.EpisodeFilter(recorder, 10.0, 0, clock=lambda: 0.0)
  for value in (1.0, 2.0, 3.0):
    logger.write({'episode_return': value, 'episode_length': 4, 'actor': 1})
  logger.close()
  assert recorder.written == [
    {'episode_return': 1.0, 'episode_length': 4, 'actor': 1},
    {'episode_return': 2.5, 'episode_length': 4.0, 'actor': 1,
     'num_episodes': 2},
  ]  # fmt: skip


def test_training_logs_stay_small(tmp_path):
  factory = loggers.make_logger_factory(
    tmp_path, terminal=False, tensorboard=False
  )
  loggers_by_label = {
    label: factory(label) for label in ('train', 'evaluation')
  }
  for row in _episodes(5000):
    for logger in loggers_by_label.values():
      logger.write(row)
  for logger in loggers_by_label.values():
    logger.close()
  num_rows = {
    label: len(loggers.read_jsonl(loggers.log_path(tmp_path, label)))
    for label in loggers_by_label
  }
  assert num_rows['evaluation'] == 5000
  assert 1000 < num_rows['train'] < 1100


def test_dispatcher_writes_plain_values_to_all():
  recorders = [_Recorder(), _Recorder()]
  logger = loggers.Dispatcher(recorders)
  logger.write({'a': jnp.float32(2.0)})
  logger.close()
  for recorder in recorders:
    assert recorder.written == [{'a': 2.0}]
    assert type(recorder.written[0]['a']) is float
    assert recorder.closed


def test_dispatcher_closes_all_when_one_fails():
  class Failing(_Recorder):
    def close(self):
      raise OSError('disk full')

  recorders = [_Recorder(), Failing(), _Recorder()]
  with pytest.raises(OSError, match='disk full'):
    loggers.Dispatcher(recorders).close()
  assert recorders[0].closed and recorders[2].closed


def test_factory_gives_each_logger_its_files(tmp_path, capsys):
  factory = loggers.make_logger_factory(tmp_path)
  for instance in (None, 3):
    logger = factory('train', 'steps', instance)
    logger.write({'steps': 1})
    logger.close()
  files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob('*.jsonl')}
  assert files == {'logs/train.jsonl', 'logs/train-3.jsonl'}
  for instance in (None, 3):
    path = loggers.log_path(tmp_path, 'train', instance)
    assert loggers.read_jsonl(path) == [{'steps': 1}]
  for name in ('train', 'train-3'):
    assert len(_tensorboard_events(tmp_path / 'tensorboard' / name)) == 1
  assert capsys.readouterr().out == '[train] steps 1\n'


def test_factory_can_write_jsonl_alone(tmp_path, capsys):
  factory = loggers.make_logger_factory(
    tmp_path, terminal=False, tensorboard=False
  )
  logger = factory('evaluation')
  logger.write({'steps': 1})
  logger.close()
  files = [p for p in tmp_path.rglob('*') if p.is_file()]
  assert files == [tmp_path / 'logs' / 'evaluation.jsonl']
  assert capsys.readouterr().out == ''


def test_factory_refuses_labels_that_name_no_file(tmp_path):
  factory = loggers.make_logger_factory(tmp_path)
  with pytest.raises(
    ValueError, match=r"label \('a/b'\) must consist of letters"
  ):
    factory('a/b')
  assert not list(tmp_path.iterdir())


def test_import_loads_no_tensorboard_and_no_tensorflow():
  heavy = ('tensorboardX', 'tensorflow', 'acme', 'rich', 'matplotlib')
  code = (
    'import sys\n'
    'from ftwax.records import checkpoints, loggers, progress, run_directory\n'
    f'print([name for name in {heavy!r} if name in sys.modules])'
  )
  output = subprocess.check_output([sys.executable, '-c', code], text=True)
  assert output == '[]\n'


def test_tensorboard_does_not_import_torch(tmp_path):
  package = tmp_path / 'path' / 'torch'
  package.mkdir(parents=True)
  (package / '__init__.py').write_text('raise RuntimeError("loads 560 MB")')
  # Afterwards the user's own import finds it.
  code = (
    'import sys\n'
    f'sys.path.insert(0, {str(package.parent)!r})\n'
    'from ftwax.records import tensorboard_logger\n'
    'logger = tensorboard_logger.TensorBoardLogger(sys.argv[1], "train")\n'
    'logger.write({"loss": 0.5})\n'
    'logger.close()\n'
    'try:\n'
    '  import torch\n'
    'except RuntimeError as error:\n'
    '  print(error)'
  )
  directory = tmp_path / 'events'
  command = [sys.executable, '-c', code, directory]
  assert subprocess.check_output(command, text=True) == 'loads 560 MB\n'
  (event,) = _tensorboard_events(directory)
  assert event.summary.value[0].tag == 'train/loss'


@pytest.mark.parametrize('repeats', [False, True])
def test_what_a_resumed_run_logs_again_replaces_what_it_had_logged(repeats):
  rows = [(1, 'old'), (3, 'old'), (5, 'old'), (3, 'new'), (4, 'new')]
  found = loggers.drop_replaced(
    [{'steps': steps, 'from': name} for steps, name in rows],
    lambda row: row['steps'],
    repeats,
  )
  # With repeats, an equal count may be another episode of the same step.
  expected = [(1, 'old'), *[(3, 'old')] * repeats, (3, 'new'), (4, 'new')]
  assert [tuple(row.values()) for row in found] == expected
