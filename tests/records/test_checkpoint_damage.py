import gzip
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from ftwax.records import checkpoints


def _make_state(step):
  generator = np.random.default_rng(step)
  return {
    'params': generator.normal(size=(3, 4)).astype(np.float32),
    'key': generator.integers(2**32, size=(2,), dtype=np.uint32),
  }


def _assert_same(actual, expected):
  assert actual.keys() == expected.keys()
  for name, array in expected.items():
    np.testing.assert_array_equal(actual[name], array)


def _save(directory, steps):
  with checkpoints.Checkpointer(directory) as checkpointer:
    for step in steps:
      checkpointer.save(step, _make_state(step), {'step': step})


def _restore(directory):
  with checkpoints.Checkpointer(directory) as checkpointer:
    return checkpointer.restore(_make_state(0))


def _flip_byte(path, generator):
  content = bytearray(path.read_bytes())
  content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
  path.write_bytes(content)


def _truncate(path, generator):
  os.truncate(path, generator.randrange(path.stat().st_size))


def _remove(path, generator):
  del generator
  path.unlink()


@pytest.mark.parametrize('damage', [_flip_byte, _truncate, _remove])
def test_damage_to_any_file_falls_back(tmp_path, damage):
  _save(tmp_path, [1, 2])
  generator = random.Random(0)
  files = [p for p in (tmp_path / '0000000002').rglob('*') if p.is_file()]
  assert len(files) == 3
  for path in files:
    content = path.read_bytes()
    damage(path, generator)
    name = '|'.join([path.name, 'manifest.json and manifest.sha256 do not'])
    with pytest.warns(
      checkpoints.DamagedCheckpointWarning,
      match=rf'checkpoint of step 2 in .*0000000002 is damaged: .*({name})',
    ):
      state, metadata = _restore(tmp_path)
    _assert_same(state, _make_state(1))
    assert metadata == {'step': 1}
    path.write_bytes(content)
  assert _restore(tmp_path)[1] == {'step': 2}


def test_all_steps_damaged(tmp_path):
  _save(tmp_path, [1, 2])
  for path in tmp_path.glob('*/manifest.json'):
    path.unlink()
  with (
    pytest.warns(checkpoints.DamagedCheckpointWarning, match=r'step [12] in'),
    pytest.raises(
      checkpoints.CheckpointError,
      match=r'must hold a whole checkpoint, but all 2 are damaged; restore the',
    ),
  ):
    _restore(tmp_path)


def _rewrite_manifest(change):
  """Returns a function that changes a manifest and its digest with it."""

  def rewrite(path):
    manifest = path / 'manifest.json'
    text = change(json.loads(manifest.read_text()))
    text = text if isinstance(text, str) else json.dumps(text)
    manifest.write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (path / 'manifest.sha256').write_text(f'{digest}  manifest.json\n')

  return rewrite


def _without(key):
  return _rewrite_manifest(
    lambda manifest: {k: v for k, v in manifest.items() if k != key}
  )


def _with(**changes):
  return _rewrite_manifest(lambda manifest: manifest | changes)


def _replace_arrays(content, suffix=''):
  """Returns a function that replaces the arrays, and the digests with them."""

  def replace(path):
    name = f'state.safetensors{suffix}'
    (path / name).write_bytes(content)
    _with(files={name: hashlib.sha256(content).hexdigest()})(path)

  return replace


def _safetensors(dtype, size):
  """Returns a file with a byte that claims to be `size` numbers."""
  array = {'dtype': dtype, 'shape': [size], 'data_offsets': [0, 1]}
  header = json.dumps({'key': array}).encode()
  return len(header).to_bytes(8, 'little') + header + b'0'


def _replace_by_file(path):
  path.rename(path.with_name('elsewhere'))
  path.write_text('no directory')


def _replace_by_link(path):
  elsewhere = path.with_name('elsewhere')
  path.rename(elsewhere)
  path.symlink_to(elsewhere)


def _link_a_file(path):
  file = path / 'state.safetensors'
  file.rename(path.parent / 'elsewhere')
  file.symlink_to(path.parent / 'elsewhere')


def _put_a_pipe(path):
  (path / 'manifest.json').unlink()
  os.mkfifo(path / 'manifest.json')


_CRAFTED = {
  'no metadata': (_without('metadata'), "KeyError.'metadata'"),
  'no files': (_without('files'), "KeyError.'files'"),
  'no layout': (_without('format'), 'manifest.json has no layout version'),
  'no JSON': (_rewrite_manifest(lambda _: '{'), 'manifest.json is not JSON'),
  'too deep': (_rewrite_manifest(lambda _: '[' * 10**5), 'is not JSON'),
  'a list': (_rewrite_manifest(lambda _: []), 'has no layout version'),
  'metadata of a number': (_with(metadata=3), 'not what ftwax writes'),
  'metadata of a list': (_with(metadata='[3]'), 'not what ftwax writes'),
  'metadata too deep': (_with(metadata='[' * 10**5), 'not what ftwax writes'),
  'no arrays': (_with(files={}), 'not what ftwax writes'),
  'a pair': (_with(files=[[None, None]]), 'not what ftwax writes'),
  'two files': (_with(files={'a': '', 'b': ''}), 'not what ftwax writes'),
  'a file outside': (_with(files={'../a.safetensors': ''}), 'no file of arr'),
  'an absolute file': (_with(files={'/etc/passwd': ''}), 'no file of arrays'),
  'another file': (_with(files={'manifest.json': ''}), 'no file of arrays'),
  'an impossible name': (_with(files={'\0': ''}), 'no file of arrays'),
  'no file': (_with(files={'a.safetensors': ''}), 'a.safetensors cannot be r'),
  'no digest': (_with(files={'state.safetensors': 3}), 'has changed since'),
  'a file of other things': (_replace_arrays(b'else'), 'is no file of arrays'),
  'arrays of another kind': (
    _replace_arrays(_safetensors('F8_E5M2', 1)),
    "is no file of arrays, or .*KeyError: 'F8_E5M2'",
  ),
  'too few numbers': (
    _replace_arrays(_safetensors('F32', 2)),
    'is no file of arrays, or .*another place',
  ),
  'no gzip': (_replace_arrays(b'else', '.gz'), 'is no file of arrays'),
  'half of a gzip': (
    _replace_arrays(gzip.compress(b'else')[:-1], '.gz'),
    'is no file of arrays',
  ),
  'a file for a step': (
    _replace_by_file,
    'is a link or in one',
  ),
  'a link for a step': (_replace_by_link, 'is a link or in one'),
  'a link for a file': (_link_a_file, 'state.safetensors is a link'),
  'a pipe': (_put_a_pipe, 'manifest.json is not a file'),
}


@pytest.mark.parametrize('damage', _CRAFTED)
def test_what_is_no_checkpoint_is_passed_over(tmp_path, damage):
  _save(tmp_path, [1, 2])
  craft, message = _CRAFTED[damage]
  craft(tmp_path / '0000000002')
  with pytest.warns(
    checkpoints.DamagedCheckpointWarning,
    match=rf'checkpoint of step 2 in .*0000000002 is damaged: .*{message}',
  ):
    state, metadata = _restore(tmp_path)
  _assert_same(state, _make_state(1))
  assert metadata == {'step': 1}
  _save(tmp_path, [2, 3])  # Nor does it stop the run.
  assert _restore(tmp_path)[1] == {'step': 3}


@pytest.mark.parametrize('metadata', [{}, {'counts': 3}, {'counts': {'b': 1}}])
def test_metadata_of_another_kind_are_damage(tmp_path, metadata):
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, _make_state(1), {'counts': {'a': 1}})
    checkpointer.save(2, _make_state(2), metadata)
    with pytest.warns(
      checkpoints.DamagedCheckpointWarning, match='is not that of a run'
    ):
      state, restored = checkpointer.restore(
        _make_state(0), lambda metadata: dict(**metadata['counts'])['a']
      )
  _assert_same(state, _make_state(1))
  assert restored == {'counts': {'a': 1}}


def test_files_in_the_place_of_what_a_kill_leaves(tmp_path):
  outside = tmp_path / 'outside'
  outside.mkdir()
  (outside / 'file').write_text('kept')
  directory = tmp_path / 'checkpoints'
  _save(directory, [1])
  (directory / 'tmp-2').write_text('no directory')
  (directory / 'tmp-3').symlink_to(outside)
  (directory / '0000000009').write_text('no directory')
  (directory / '0000000008').symlink_to(outside)
  assert checkpoints.Checkpointer(directory).steps() == [1]
  _save(directory, [2])
  assert checkpoints.Checkpointer(directory).steps() == [1, 2]
  assert not list(directory.glob('tmp-*'))
  assert (outside / 'file').read_text() == 'kept'


def test_a_directory_of_checkpoints_must_be_the_run_s_own(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(checkpoints.CheckpointError, match=r'but is a file; rem'):
    checkpoints.Checkpointer(tmp_path / 'file')
  for name in ('mine', 'other'):
    _save(tmp_path / name / 'checkpoints', [1])
  link = tmp_path / 'run' / 'checkpoints'
  link.parent.mkdir()
  link.symlink_to(pathlib.Path('..') / 'other' / 'checkpoints')
  with pytest.raises(
    checkpoints.CheckpointError, match=r'must not be a link out of .*run, where'
  ):
    checkpoints.Checkpointer(link)
  # A run as a whole may stand behind a link, and a link may stay inside.
  (tmp_path / 'linked').symlink_to(tmp_path / 'mine')
  assert checkpoints.Checkpointer(tmp_path / 'linked/checkpoints').steps()
  (tmp_path / 'mine' / 'again').symlink_to('checkpoints')
  assert checkpoints.Checkpointer(tmp_path / 'mine' / 'again').steps()


def test_a_run_goes_on_over_a_damaged_step(tmp_path):
  _save(tmp_path, [1, 2, 3])
  (tmp_path / '0000000003' / 'manifest.json').write_text('{}')
  with checkpoints.Checkpointer(tmp_path, max_to_keep=2) as checkpointer:
    with pytest.warns(checkpoints.DamagedCheckpointWarning, match='step 3 in'):
      _, metadata = checkpointer.restore(_make_state(0))
    assert metadata == {'step': 2}
    checkpointer.save(2, _make_state(4), {'step': 4})
    _, metadata = checkpointer.restore(_make_state(0))
    assert metadata == {'step': 4}
    checkpointer.save(3, _make_state(5), {'step': 5})
  assert checkpoints.Checkpointer(tmp_path).steps() == [2, 3]
  assert _restore(tmp_path)[1] == {'step': 5}


# Saves 1, 2, 3, ... and says when each is done. Some megabytes that do not
# compress make a save last long enough to be hit.
_SAVE_FOR_EVER = """
import sys
import numpy as np
from ftwax.records import checkpoints

def make_state(step):
  generator = np.random.default_rng(step)
  return {str(i): generator.integers(256, size=(400_000,), dtype=np.uint8)
          for i in range(10)}

with checkpoints.Checkpointer(sys.argv[1], max_to_keep=2) as checkpointer:
  step = 0
  if checkpointer.steps():
    state, metadata = checkpointer.restore(make_state(0))
    step = metadata['step']
    for name, array in make_state(step).items():
      np.testing.assert_array_equal(state[name], array)
  print(step, flush=True)
  while True:
    step += 1
    checkpointer.save(step, make_state(step), {'step': step})
    if step % 2:
      checkpointer.wait()
      print(step, flush=True)
"""


def _save_until_killed(directory, seconds):
  """Returns the step restored and the last one said to be saved."""
  with subprocess.Popen(
    [sys.executable, '-W', 'error', '-c', _SAVE_FOR_EVER, str(directory)],
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {'OMP_NUM_THREADS': '1'},
  ) as process:
    restored = process.stdout.readline()
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    rest = process.stdout.read().splitlines()
  return int(restored), int(rest[-1] if rest else first)


@pytest.mark.slow
def test_kill_in_mid_save_loses_no_whole_step(tmp_path):
  generator = random.Random(0)
  last = 0
  start = time.monotonic()
  for _ in range(4):
    seconds = generator.uniform(0.0, 0.4)
    restored, last_now = _save_until_killed(tmp_path, seconds)
    # At least what was said to be done; what was not waited for may be newer.
    assert restored >= last
    assert last_now > restored
    last = last_now
    if time.monotonic() - start > 20.0:
      break
  template = {str(i): np.zeros((400_000,), np.uint8) for i in range(10)}
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    _, metadata = checkpointer.restore(template)
  assert metadata['step'] >= last


def test_a_kill_leaves_what_is_deleted_by_the_next_save(tmp_path):
  _save(tmp_path, [1])
  leftover = tmp_path / 'tmp-2' / 'nested'
  leftover.mkdir(parents=True)
  (leftover / 'file').write_text('half')
  assert _restore(tmp_path)[1] == {'step': 1}
  assert leftover.exists()  # Who only reads deletes nothing.
  with checkpoints.Checkpointer(tmp_path) as checkpointer:
    checkpointer.remove_leftovers()  # As a run does that is resumed.
  assert not leftover.exists()
  leftover.mkdir(parents=True)
  _save(tmp_path, [2])
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ['0000000001', '0000000002']
