"""The manifest of a checkpoint: its layout, leaves, metadata and digests.

    manifest.json     layout; paths, shapes and dtypes of the leaves; the
                      user's metadata; SHA-256 of every file with arrays
    manifest.sha256   SHA-256 of the manifest, readable by `sha256sum -c`

Nothing in a manifest is trusted: any deviation from the format of `write`
counts as damage.
"""

import hashlib
import json
import math
import os
import pathlib
import stat
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.records import files

# Layout version of checkpoints and of run directories. In layout 1, a single
# agent had no member axis, and arrays were named by numbers.
LAYOUT = 2

_MANIFEST = 'manifest.json'
_DIGEST = 'manifest.sha256'

# JSON does not support these numbers.
_NON_FINITE = {'NaN': math.nan, 'Infinity': math.inf, '-Infinity': -math.inf}


# Path of the whole state.
_ROOT = 'state'


class CheckpointError(RuntimeError):
  """Raised if a checkpoint cannot be saved or restored."""


class DamagedError(Exception):
  """Raised if a checkpoint differs from what was saved."""


class Leaf(NamedTuple):
  """A leaf of a saved state.

  Attributes:
    path: path in the pytree, e.g. `state.params['torso']['w']`.
    shape: shape of the array.
    dtype: name of the dtype, e.g. `float32`.
  """

  path: str
  shape: tuple[int, ...]
  dtype: str


class Manifest(NamedTuple):
  """The contents of a manifest.

  Attributes:
    step: step of the checkpoint.
    leaves: leaves in the order of the pytree.
    metadata: the user's metadata.
  """

  step: int
  leaves: tuple[Leaf, ...]
  metadata: dict[str, Any]


def describe(state: types.ArrayTree) -> tuple[Leaf, ...]:
  """Returns path, shape and dtype of each leaf.

  Args:
    state: a pytree of arrays, numbers or `jax.ShapeDtypeStruct`.

  Raises:
    CheckpointError: if a leaf is not numeric, or all leaves are empty.
  """
  leaves = []
  for key_path, leaf in jax.tree.leaves_with_path(state):
    path = _ROOT + jax.tree_util.keystr(key_path)
    dtype = leaf.dtype if hasattr(leaf, 'dtype') else np.asarray(leaf).dtype
    if not (jnp.issubdtype(dtype, np.number) or dtype == np.bool_):
      raise CheckpointError(
        f'{path} ({dtype}) must be an array of numbers or booleans; put strings'
        ' into the metadata, and unwrap typed keys with jax.random.key_data.'
      )
    leaves.append(Leaf(path, np.shape(leaf), np.dtype(dtype).name))
  if not any(math.prod(leaf.shape) for leaf in leaves):
    raise CheckpointError(
      'state must hold a non-empty array, but has none; save it together with'
      ' the training state.'
    )
  return tuple(leaves)


def check_leaves(
  path: pathlib.Path, saved: Sequence[Leaf], expected: Sequence[Leaf]
) -> None:
  """Checks that a checkpoint holds the leaves of a template, in any order.

  Raises:
    CheckpointError: if not; names the first leaf that differs.
  """
  difference = _first_difference(saved, expected)
  if difference is not None:
    raise CheckpointError(
      f'template must have the structure saved in {path}, but {difference};'
      ' restore with the configuration that the run was started with.'
    )


def find_leaves(
  path: pathlib.Path,
  saved: Sequence[Leaf],
  expected: Sequence[Leaf],
  part: str,
) -> tuple[Leaf, ...]:
  """Finds the leaves of a template in a part of a saved state.

  Args:
    path: path of the checkpoint, for messages.
    saved: all leaves that were saved.
    expected: leaves of the template, with paths relative to the part.
    part: end of the part's path.

  Returns:
    The saved leaves, in the order of `expected`.

  Raises:
    CheckpointError: if a leaf is missing, or has another shape or dtype.
  """
  found = []
  for leaf in expected:
    ends = part + leaf.path.removeprefix(_ROOT)
    matches = [one for one in saved if one.path.endswith(ends)]
    if not matches or matches[0][1:] != leaf[1:]:
      raise CheckpointError(
        f'checkpoint in {path} must hold {ends} of shape {leaf.shape} and dtype'
        f' {leaf.dtype}, and has {matches[:1] or "none"}; give the experiment'
        ' that the run was started with.'
      )
    found.append(matches[0])
  return tuple(found)


def encode_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a copy of `metadata` for JSON, with non-finite numbers as strings.

  Raises:
    ValueError: if `read` would not return `metadata` unchanged.
  """
  encoded = _encode(metadata)
  try:
    copy: dict[str, Any] = json.loads(json.dumps(encoded, allow_nan=False))
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'metadata must be plain JSON, but: {error}; convert arrays to lists.'
    ) from error
  if copy != encoded:
    raise ValueError(
      f'metadata ({metadata}) must come back from JSON unchanged, not'
      f' as {copy}; use lists, and strings as keys.'
    )
  return copy


def write(
  path: pathlib.Path,
  step: int,
  leaves: Sequence[Leaf],
  metadata: Mapping[str, Any],
) -> None:
  """Writes the manifest of a checkpoint, after its arrays.

  The manifest and the names in `path` are on disk when this returns.

  Args:
    path: path of the checkpoint.
    step: step of the checkpoint.
    leaves: from `describe`.
    metadata: from `encode_metadata`.
  """
  manifest = {
    'format': LAYOUT,
    'step': step,
    'metadata': metadata,
    'leaves': [leaf._asdict() for leaf in leaves],
    'files': {
      entry.relative_to(path).as_posix(): digest(entry)
      for entry in sorted(path.rglob('*'))
      if entry.is_file()
    },
  }
  files.write_synced(path / _MANIFEST, json.dumps(manifest, indent=1))
  line = f'{digest(path / _MANIFEST)}  {_MANIFEST}\n'
  files.write_synced(path / _DIGEST, line)
  files.sync(path)


def read(path: pathlib.Path) -> Manifest:
  """Reads the manifest of a checkpoint and checks every file against it.

  Args:
    path: path of the checkpoint.

  Raises:
    DamagedError: if something differs from what was saved.
    CheckpointError: if the checkpoint has another layout.
  """
  try:
    _check_kinds(path)
    expected = (path / _DIGEST).read_bytes()
    if expected != f'{digest(path / _MANIFEST)}  {_MANIFEST}\n'.encode():
      raise DamagedError(f'{_MANIFEST} and {_DIGEST} do not agree')
    manifest = json.loads((path / _MANIFEST).read_text('utf-8'))
  except OSError as error:
    raise DamagedError(f'{_name(path, error)} cannot be read') from error
  except (ValueError, RecursionError) as error:
    raise DamagedError(f'{_MANIFEST} is not JSON ({error})') from error
  _check_layout(path, manifest)
  try:
    made = Manifest(
      int(manifest['step']),
      tuple(
        Leaf(
          str(leaf['path']),
          tuple(int(size) for size in leaf['shape']),
          str(leaf['dtype']),
        )
        for leaf in manifest['leaves']
      ),
      dict(_decode(manifest['metadata'])),
    )
    digests = dict(manifest['files'])
  except (KeyError, TypeError, ValueError) as error:
    raise DamagedError(
      f'{_MANIFEST} is not what ftwax writes ({error!r})'
    ) from error
  _check_digests(path, digests)
  return made


def digest(path: pathlib.Path) -> str:
  """Returns the SHA-256 of a file, 64 hexadecimal digits."""
  sha256 = hashlib.sha256()
  with open(path, 'rb') as file:
    while block := file.read(1 << 20):
      sha256.update(block)
  return sha256.hexdigest()


def _first_difference(
  saved: Sequence[Leaf], expected: Sequence[Leaf]
) -> str | None:
  saved_by_path = {leaf.path: leaf for leaf in saved}
  for leaf in expected:
    other = saved_by_path.pop(leaf.path, None)
    if other is None:
      return f'{leaf.path} is not in the checkpoint'
    if other != leaf:
      return (
        f'{leaf.path} is {leaf.dtype}{list(leaf.shape)} in the template and'
        f' {other.dtype}{list(other.shape)} in the checkpoint'
      )
  for path in saved_by_path:
    return f'{path} of the checkpoint is not in the template'
  return None


def _encode(value: Any) -> Any:
  if isinstance(value, Mapping):
    return {key: _encode(entry) for key, entry in value.items()}
  if isinstance(value, list):
    return [_encode(entry) for entry in value]
  if isinstance(value, str) and value in _NON_FINITE:
    raise ValueError(
      f'metadata must not hold the string {value!r}, which stands for a number'
      ' that is not finite; write another string.'
    )
  if isinstance(value, float) and not math.isfinite(value):
    return 'NaN' if math.isnan(value) else f'{"-" * (value < 0)}Infinity'
  return value


def _decode(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _decode(entry) for key, entry in value.items()}
  if isinstance(value, list):
    return [_decode(entry) for entry in value]
  return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _check_kinds(path: pathlib.Path) -> None:
  """Raises a DamagedError if a checkpoint has a link, pipe or device.

  A link may lead out of the run's directory; opening a pipe blocks forever.
  """
  mode = path.lstat().st_mode
  if stat.S_ISLNK(mode):
    raise DamagedError('it is a link; put a copy in its place')
  if not stat.S_ISDIR(mode):
    raise DamagedError('it is not a directory')
  for root, directories, names in os.walk(path):
    for name in (*directories, *names):
      entry = pathlib.Path(root, name)
      mode = entry.lstat().st_mode
      if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = 'a link' if stat.S_ISLNK(mode) else 'no file'
        raise DamagedError(f'{entry.relative_to(path)} is {kind}')


def _check_layout(path: pathlib.Path, manifest: Any) -> None:
  layout = manifest.get('format') if isinstance(manifest, dict) else None
  if not isinstance(layout, int):
    raise DamagedError(f'{_MANIFEST} has no layout version')
  if layout != LAYOUT:
    raise CheckpointError(f'checkpoint {path} {layout_message(layout)}')


def layout_message(layout: Any) -> str:
  """Returns the part of an error message about a layout other than `LAYOUT`."""
  is_newer = isinstance(layout, int) and layout > LAYOUT
  age = 'a newer' if is_newer else 'an older'
  return (
    f'has layout {layout}, that of {age} version of ftwax, but must have'
    f' layout {LAYOUT}; start a new run, or resume this one with the version'
    ' of ftwax named in its versions.json.'
  )


def _check_digests(path: pathlib.Path, digests: Mapping[str, Any]) -> None:
  for name, expected in digests.items():
    file = pathlib.PurePosixPath(name)
    if file.is_absolute() or '..' in file.parts:
      raise DamagedError(f'{_MANIFEST} names a file outside it, {name!r}')
    try:
      actual = digest(path / file)
    except (OSError, ValueError) as error:
      raise DamagedError(f'{name} cannot be read ({error})') from error
    if actual != expected:
      raise DamagedError(f'{name} has changed since it was saved')


def _name(path: pathlib.Path, error: OSError) -> str:
  """Returns the file name of an error and what is wrong with the file."""
  name = os.path.relpath(error.filename or path, path)
  return f'{name} ({error.strerror})'
