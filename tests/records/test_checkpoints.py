import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors

from ftwax.records import array_files, checkpoints


class _State(NamedTuple):
  params: Any
  opt_state: Any
  key: Any
  steps: Any


def _make_state(seed):
  key = jax.random.PRNGKey(seed)
  params = {
    'torso/~/conv': {'w': jax.random.normal(key, (3, 4)), 'b': jnp.zeros((4,))},
    'head': {'w': jax.random.normal(key, (4,), jnp.bfloat16)},
  }
  opt_state = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adam(1e-3)
  ).init(params)
  return _State(params, opt_state, key, jnp.int32(seed))


def _assert_same(actual, expected):
  """Checks structure, kinds, dtypes, shapes and bits."""
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for a, b in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    assert type(a) is type(b)
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert a.tobytes() == b.tobytes()


def _save(directory, steps, **kwargs):
  with checkpoints.Checkpointer(directory, **kwargs) as checkpointer:
    for step in steps:
      checkpointer.save(step, _make_state(step), {'step': step})


def _restore(directory):
  with checkpoints.Checkpointer(directory) as checkpointer:
    return checkpointer.restore(_make_state(0))


def test_restores_the_newest_bit_for_bit(tmp_path):
  metadata = {'elo': [1000.0, 0.1], 'name': 'ä', 'nested': {'a': None}}
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(3, _make_state(3))
    checkpointer.save(12, _make_state(12), metadata)
    state, restored_metadata = checkpointer.restore(_make_state(0))
  _assert_same(state, _make_state(12))
  assert restored_metadata == metadata
  _assert_same(_restore(tmp_path)[0], _make_state(12))


def test_leaves_come_back_as_the_template_has_them(tmp_path):
  nan_with_payload = np.array([0x7FC01234, 0xFF800000], np.uint32)
  state = {
    'numpy': np.arange(6, dtype=np.int64).reshape((2, 3)),
    'scalar': np.float64(0.1),
    'bool': np.array([True, False]),
    'bits': nan_with_payload.view(np.float32),
    'empty': np.zeros((0, 3), np.float32),
    'empty_jax': jnp.zeros((2, 0), jnp.bfloat16),
    'int': 2**40,
    'float': 0.1,
    'flag': True,
    'jax': jnp.arange(3, dtype=jnp.uint8),
  }
  with checkpoints.Checkpointer(
    tmp_path, must_be_finite=lambda state: state['jax']
  ) as checkpointer:
    checkpointer.save(1, state)
    restored, _ = checkpointer.restore(state)
  _assert_same(restored, state)


def test_shapes_are_template_enough(tmp_path):
  _save(tmp_path, [1])
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    template = jax.eval_shape(_make_state, 0)
    state, _ = checkpointer.restore(template)
  _assert_same(state, _make_state(1))


def test_arrays_go_where_the_template_was_put(tmp_path):
  device = jax.devices()[-1]
  state = {'a': jax.device_put(jnp.ones((2,)), device), 'b': jnp.ones((2,))}
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, state)
    restored, _ = checkpointer.restore(state)
  assert restored['a'].devices() == {device}
  assert restored['a'].committed and not restored['b'].committed


@pytest.fixture
def may_write(monkeypatch):
  """An event that saves in the background wait for."""
  event = threading.Event()
  write = array_files.write

  def wait_and_write(*args):
    assert event.wait(10.0)
    write(*args)

  monkeypatch.setattr(array_files, 'write', wait_and_write)
  return event


def test_save_runs_in_the_background(tmp_path, may_write):
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, _make_state(1))
    assert checkpointer.steps() == []
    may_write.set()
    checkpointer.wait()
    assert checkpointer.steps() == [1]


def test_save_copies_before_it_returns(tmp_path, may_write):
  state = {'numpy': np.ones((1000,)), 'jax': jnp.ones((1000,))}
  double = jax.jit(lambda x: x * 2, donate_argnums=0)
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, state)
    state['numpy'][:] = 2.0
    state['jax'] = double(state['jax']).block_until_ready()
    may_write.set()
    restored, _ = checkpointer.restore(state)
  for array in restored.values():
    np.testing.assert_array_equal(array, np.ones((1000,)))


def test_keeps_the_newest(tmp_path):
  _save(tmp_path, [1, 2, 3, 4, 10], max_to_keep=2)
  assert checkpoints.Checkpointer(tmp_path).steps() == [4, 10]
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ['0000000004', '0000000010']


def test_an_equal_step_is_replaced(tmp_path):
  with checkpoints.Checkpointer(tmp_path, max_to_keep=2) as checkpointer:
    for seed in (1, 2, 3, 4):
      checkpointer.save(max(seed, 2), _make_state(seed), {'seed': seed})
    checkpointer.save(4, _make_state(5), {'seed': 5})
    state, metadata = checkpointer.restore(_make_state(0))
    assert checkpointer.steps() == [3, 4]
  assert metadata == {'seed': 5}
  _assert_same(state, _make_state(5))


def test_refuses_a_step_older_than_the_newest(tmp_path):
  _save(tmp_path, [5])
  with pytest.raises(
    checkpoints.CheckpointError,
    match=r'step \(4\) must not be older than the newest checkpoint \(5\)',
  ):
    _save(tmp_path, [4])
  assert checkpoints.Checkpointer(tmp_path).steps() == [5]


def test_refuses_what_is_not_finite(tmp_path):
  state = _make_state(0)
  state.params['head']['w'] = state.params['head']['w'].at[:2].set(jnp.nan)
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(
      checkpoints.NonFiniteError,
      match=r'head/w must be finite to be saved at step 7, but 2 of its 4'
      r' numbers are not',
    ),
  ):
    checkpointer.save(7, state)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('leaf', 'dtype'), [('a', '<U1'), (object(), 'object')]
)
def test_refuses_what_is_no_number(tmp_path, leaf, dtype):
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(
      checkpoints.CheckpointError,
      match=rf'name \({dtype}\) must be an array of numbers',
    ),
  ):
    checkpointer.save(1, {'a': 1, 'name': leaf})


def test_refuses_typed_keys(tmp_path):
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(checkpoints.CheckpointError, match='unwrap typed keys with'),
  ):
    checkpointer.save(1, {'key': jax.random.key(0)})


def test_refuses_two_arrays_of_one_path(tmp_path):
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(
      checkpoints.CheckpointError, match='a/b must be the path of one array'
    ),
  ):
    checkpointer.save(1, {'a': {'b': 1}, 'a/b': 2})


@pytest.mark.parametrize(
  ('metadata', 'match'),
  [
    ({'a': np.ones((2,))}, 'metadata must be plain JSON, but: Object of type'),
    ({'a': (float('nan'),)}, 'must come back from JSON unchanged'),
    ({'a': (1, 2)}, 'must come back from JSON unchanged, .* use lists'),
    ({1: 2}, 'must come back from JSON unchanged'),
  ],
)
def test_refuses_metadata_that_is_no_json(tmp_path, metadata, match):
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(ValueError, match=match),
  ):
    checkpointer.save(1, _make_state(0), metadata)
  assert not list(tmp_path.iterdir())


def _change_params(params):
  return lambda state: state._replace(params=params(state.params))


@pytest.mark.parametrize(
  ('change', 'match'),
  [
    (
      _change_params(lambda p: p | {'new': jnp.ones((2,))}),
      'params/new is not in the checkpoint',
    ),
    (
      _change_params(lambda p: {'head': p['head']}),
      'params/torso/~/conv/b of the checkpoint is not in the',
    ),
    (
      _change_params(lambda p: p | {'head': {'w': jnp.ones((5,))}}),
      r'params/head/w is float32\[5\] in the template and bfloat16\[4\] in the'
      r' checkpoint',
    ),
    (
      lambda state: state._replace(steps=jnp.float32(0)),
      r'steps is float32\[\] in the template and int32\[\] in the',
    ),
  ],
)
def test_names_the_first_leaf_that_differs(tmp_path, change, match):
  _save(tmp_path, [1, 2])
  with (
    checkpoints.Checkpointer(tmp_path) as checkpointer,
    pytest.raises(checkpoints.CheckpointError, match=match),
  ):
    checkpointer.restore(change(_make_state(0)))


def test_fields_may_change_their_order(tmp_path):
  class Reordered(NamedTuple):
    steps: Any
    key: Any
    opt_state: Any
    params: Any

  _save(tmp_path, [1])
  expected = _make_state(1)
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    template = Reordered(*reversed(_make_state(0)))
    state, _ = checkpointer.restore(template)
  _assert_same(state, Reordered(*reversed(expected)))


def test_nothing_to_restore(tmp_path):
  for directory in (tmp_path, tmp_path / 'absent'):
    with pytest.raises(
      checkpoints.CheckpointError,
      match=r'must hold a checkpoint, but has none; give the directory of',
    ):
      _restore(directory)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('layout', 'age', 'reader'),
  [
    (4, 'older', 'the version of ftwax named in its versions.json'),
    (1_000, 'newer', r'that version: pip install "ftwax==0.1000.\*"'),
  ],
)
def test_another_layout_ends_in_one_message(
  tmp_path, monkeypatch, layout, age, reader
):
  with monkeypatch.context() as context:
    context.setattr(array_files, 'LAYOUT', layout)
    _save(tmp_path, [1, 2])
  with pytest.raises(
    checkpoints.CheckpointError,
    match=rf'0000000002 has layout {layout}, that of an? {age} version of ftwax'
    rf', but must have layout {array_files.LAYOUT}; start a new run, or resume'
    ' this one with ' + reader,
  ):
    _restore(tmp_path)


def test_metadata_may_hold_numbers_that_are_not_finite(tmp_path):
  metadata = {'returns': [np.inf, -np.inf, 1e300], 'nested': {'a': np.inf}}
  metadata['text'] = 'NaN'
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, _make_state(1), {**metadata, 'nan': np.nan})
    _, restored = checkpointer.restore(_make_state(0))
  assert np.isnan(restored.pop('nan'))
  assert restored == metadata
  text = next(tmp_path.glob('*/manifest.json')).read_text()
  json.loads(text, parse_constant=pytest.fail)  # A manifest is strict JSON.


def test_safetensors_alone_reads_the_arrays_by_their_path(tmp_path):
  _save(tmp_path, [1])
  path = tmp_path / '0000000001' / 'state.safetensors'
  expected = _make_state(1)
  with safetensors.safe_open(path, 'flax') as file:
    assert set(file.keys()) >= {'key', 'params/torso/~/conv/w', 'steps'}
    assert len(file.keys()) == len(jax.tree.leaves(expected))
    np.testing.assert_array_equal(
      file.get_tensor('params/torso/~/conv/w'),
      expected.params['torso/~/conv']['w'],
    )


def test_part_of_a_state(tmp_path):
  state = {'a': {'part': {'x': 1, 'y': 2}, 'z': 3}, 'part': 4}
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, state)
    assert checkpointer.restore({'y': 0}, part='part')[0] == {'y': 2}
    assert checkpointer.restore({'x': 0}, part='a/part')[0] == {'x': 1}
    for part, match in (
      ('part', 'a/part/z is not in the checkpoint'),
      ('art', 'art/z is not in'),
    ):
      with pytest.raises(checkpoints.CheckpointError, match=match):
        checkpointer.restore({'z': 0}, part=part)


def test_a_save_is_on_the_disk_before_and_after_it_is_renamed(
  tmp_path, monkeypatch
):
  events = []
  fsync, rename = os.fsync, pathlib.Path.rename

  def record_fsync(descriptor):
    events.append(pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}')))
    fsync(descriptor)

  def record_rename(self, target):
    events.append('rename')
    return rename(self, target)

  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, _make_state(1))
    checkpointer.wait()
    monkeypatch.setattr(os, 'fsync', record_fsync)
    monkeypatch.setattr(pathlib.Path, 'rename', record_rename)
    checkpointer.save(2, _make_state(2))
  written = tmp_path / 'tmp-2'
  assert {
    written,
    written / 'state.safetensors',
    written / 'manifest.json',
    written / 'manifest.sha256',
  } <= set(events[: events.index('rename')])
  assert events[events.index('rename') + 1] == tmp_path


def test_paths_that_are_no_utf8(tmp_path):
  directory = tmp_path / os.fsdecode(b'\xfc')
  _save(directory, [1])
  _assert_same(_restore(directory)[0], _make_state(1))


def test_a_failed_save_is_raised_later_and_harms_nothing(tmp_path, monkeypatch):
  _save(tmp_path, [1])
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    with monkeypatch.context() as context:

      def fail(content):
        del content
        raise OSError('disk full')

      context.setattr(array_files, 'digest', fail)
      checkpointer.save(2, _make_state(2))
      with pytest.raises(OSError, match='disk full'):
        checkpointer.wait()
    assert checkpointer.steps() == [1]
    checkpointer.save(3, _make_state(3))
    state, _ = checkpointer.restore(_make_state(0))
  _assert_same(state, _make_state(3))
  assert len(list(tmp_path.iterdir())) == 2


def test_relative_directory(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  _save(pathlib.Path('runs'), [1])
  monkeypatch.chdir('/')
  assert _restore(tmp_path / 'runs')[1] == {'step': 1}


def test_a_moved_directory_can_be_restored(tmp_path):
  _save(tmp_path / 'a', [1])
  (tmp_path / 'a').rename(tmp_path / 'b')
  _assert_same(_restore(tmp_path / 'b')[0], _make_state(1))


@pytest.mark.parametrize(
  ('kwargs', 'match'),
  [
    ({'save_every_seconds': 0}, r'save_every_seconds \(0\) must be positive'),
    ({'max_to_keep': 0}, r'max_to_keep \(0\) must be at least 1'),
  ],
)
def test_config_is_checked(kwargs, match):
  with pytest.raises(ValueError, match=match):
    checkpoints.CheckpointingConfig(**kwargs)


def test_checkpointer_is_checked(tmp_path):
  with pytest.raises(ValueError, match=r'max_to_keep \(0\) must be at least 1'):
    checkpoints.Checkpointer(tmp_path, max_to_keep=0)


@pytest.mark.slow
def test_bfloat16_comes_back_also_beside_tensorflow(tmp_path):
  """TensorFlow gives the name bfloat16 to a type of its own."""
  code = (
    'import sys\n'
    'try:\n'
    '  import tensorflow\n'
    'except ImportError:\n'
    '  pass\n'  # On a Python without it there is nothing to be beside.
    'import jax.numpy as jnp\n'
    'from ftwax.records import checkpoints\n'
    'state = {"x": jnp.arange(3, dtype=jnp.bfloat16),'
    ' "empty": jnp.zeros((0,), jnp.bfloat16)}\n'
    'with checkpoints.Checkpointer(sys.argv[1]) as checkpointer:\n'
    '  checkpointer.save(1, state)\n'
    '  restored, _ = checkpointer.restore(state)\n'
    'assert restored["x"].dtype == restored["empty"].dtype == jnp.bfloat16\n'
    'print(restored["x"].tolist())\n'
  )
  output = subprocess.check_output(
    [sys.executable, '-c', code, str(tmp_path / 'checkpoints')], text=True
  )
  assert output.strip().endswith('[0.0, 1.0, 2.0]')


def test_compresses_frames_alone(tmp_path):
  def size_of(array):
    with checkpoints.Checkpointer(tmp_path / array.dtype.name) as checkpointer:
      checkpointer.save(1, {'a': array})
      restored, _ = checkpointer.restore({'a': array})
    np.testing.assert_array_equal(restored['a'], array)
    files = (tmp_path / array.dtype.name).rglob('*')
    return sum(path.stat().st_size for path in files if path.is_file())

  assert size_of(np.zeros((1_000_000,), np.uint8)) < 100_000
  assert size_of(np.zeros((250_000,), np.float32)) > 1_000_000
