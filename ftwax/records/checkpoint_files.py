"""What the checkpoint of one step is on disk.

    state/            the arrays, written by Orbax
    manifest.json     paths, shapes and dtypes of the leaves; the user's
                      metadata; SHA-256 of every file in `state`
    manifest.sha256   that of the manifest itself (`sha256sum -c` reads it)

Reading checks every byte against the manifest. Nothing is pickled: what is read
back is JSON and numbers.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_FORMAT = 1
_STATE = 'state'
_MANIFEST = 'manifest.json'
_MANIFEST_DIGEST = 'manifest.sha256'

# Path, shape and dtype of a leaf, as JSON.
_Leaf = Mapping[str, Any]


class CheckpointError(RuntimeError):
  """A checkpoint cannot be saved or restored."""


class DamagedError(Exception):
  """A checkpoint is not what was saved."""


def describe(state: Any) -> list[_Leaf]:
  """Returns path, shape and dtype of each leaf.

  Args:
    state: arrays, numbers or `jax.ShapeDtypeStruct`.

  Raises:
    CheckpointError: names the first leaf that is not numeric, or says that
      there is none.
  """
  leaves: list[_Leaf] = []
  for key_path, leaf in jax.tree.leaves_with_path(state):
    path = f'state{jax.tree_util.keystr(key_path)}'
    dtype = leaf.dtype if hasattr(leaf, 'dtype') else np.asarray(leaf).dtype
    if not (jnp.issubdtype(dtype, np.number) or dtype == np.bool_):
      raise CheckpointError(
        f'{path} ({dtype}) must be an array of numbers or booleans; put strings'
        ' into the metadata, and unwrap typed keys with jax.random.key_data.'
      )
    shape = list(np.shape(leaf))
    leaves.append({'path': path, 'shape': shape, 'dtype': np.dtype(dtype).name})
  if not any(np.prod(leaf['shape']) for leaf in leaves):
    raise CheckpointError(
      'state must hold an array that is not empty, but has none; save it'
      ' together with what changes in a run.'
    )
  return leaves


def check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a copy of `metadata`, which must come back from JSON as it is.

  Raises:
    ValueError: says what does not.
  """
  try:
    copy = json.loads(json.dumps(metadata, allow_nan=False))
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'metadata must be plain JSON, but: {error}; convert arrays to lists and'
      ' write non-finite numbers as strings.'
    ) from error
  if copy != metadata:
    raise ValueError(
      f'metadata ({metadata}) must come back from JSON as it is, not as'
      f' {copy}; use lists, and strings as keys.'
    )
  return copy


def write(
  path: pathlib.Path,
  step: int,
  state: Any,
  leaves: Sequence[_Leaf],
  metadata: Mapping[str, Any],
) -> None:
  """Writes a step into a new directory.

  Args:
    path: absolute; must not exist.
    step: recorded for who looks at the files.
    state: a pytree of NumPy arrays.
    leaves: as `describe` returns them.
    metadata: plain JSON.
  """
  path.mkdir(parents=True)
  # Leaves are named by their place in the manifest, which keeps their paths
  # out of file names. Orbax takes no empty arrays; their shapes say it all.
  arrays = {
    _array_name(index): leaf
    for index, leaf in enumerate(jax.tree.leaves(state))
    if leaf.size
  }
  _orbax().PyTreeCheckpointer().save(path / _STATE, arrays)
  files = sorted(f for f in (path / _STATE).rglob('*') if f.is_file())
  manifest = {
    'format': _FORMAT,
    'step': step,
    'metadata': metadata,
    'leaves': leaves,
    'files': {str(file.relative_to(path)): _digest(file) for file in files},
  }
  (path / _MANIFEST).write_text(json.dumps(manifest, indent=1), 'utf-8')
  digest = _digest(path / _MANIFEST)
  (path / _MANIFEST_DIGEST).write_text(f'{digest}  {_MANIFEST}\n', 'utf-8')


def read(path: pathlib.Path, template: Any) -> tuple[Any, dict[str, Any]]:
  """Reads a step.

  Args:
    path: absolute.
    template: of the structure, shapes and dtypes that were saved.

  Returns:
    The state, each leaf of the kind of the template's, and the metadata.

  Raises:
    DamagedError: names the first file that is not what was saved.
    CheckpointError: names the first leaf that differs from the template's, or
      says that the format is unknown.
  """
  leaves = describe(template)
  manifest = _read_manifest(path)
  _check_leaves(path, manifest['leaves'], leaves)
  try:
    arrays = _orbax().PyTreeCheckpointer().restore(path / _STATE)
  except Exception as error:  # Orbax raises errors of many kinds.
    raise DamagedError(f'Orbax cannot read {_STATE} ({error})') from error
  names = {
    leaf['path']: _array_name(index)
    for index, leaf in enumerate(manifest['leaves'])
  }
  likes, structure = jax.tree.flatten(template)
  restored = []
  for leaf, like in zip(leaves, likes, strict=True):
    # The template's own type, not the name's: TensorFlow, where it is loaded,
    # has made the name bfloat16 another type's.
    dtype = getattr(like, 'dtype', leaf['dtype'])
    array = arrays.get(names[leaf['path']], np.zeros(leaf['shape'], dtype))
    if array.dtype != dtype:
      array = array.view(dtype)
    restored.append(_make_like(array, like))
  return jax.tree.unflatten(structure, restored), manifest['metadata']


def _orbax() -> Any:
  # Takes a second or two to import, for which who never saves need not wait.
  import orbax.checkpoint

  return orbax.checkpoint


def _array_name(index: int) -> str:
  return f'{index:05d}'


def _digest(path: pathlib.Path) -> str:
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while block := file.read(1 << 20):
      digest.update(block)
  return digest.hexdigest()


def _read_manifest(path: pathlib.Path) -> dict[str, Any]:
  """Reads a step's manifest and checks every file against it."""
  file = path / _MANIFEST_DIGEST
  try:
    expected = file.read_bytes()
    file = path / _MANIFEST
    if expected != f'{_digest(file)}  {_MANIFEST}\n'.encode():
      raise DamagedError(f'{_MANIFEST} and {_MANIFEST_DIGEST} do not agree')
    manifest = json.loads(file.read_text('utf-8'))
    if manifest['format'] != _FORMAT:
      raise CheckpointError(
        f'format of the checkpoint in {path} ({manifest["format"]}) must be'
        f' {_FORMAT}; use the version of ftwax that saved it.'
      )
    for name, digest in manifest['files'].items():
      file = path / name
      if _digest(file) != digest:
        raise DamagedError(f'{name} is not as it was saved')
  except OSError as error:
    name = file.relative_to(path)
    raise DamagedError(f'{name} cannot be read ({error})') from error
  return manifest


def _check_leaves(
  path: pathlib.Path, saved: Sequence[_Leaf], expected: Sequence[_Leaf]
) -> None:
  """Raises a CheckpointError at the first leaf that differs."""
  saved_by_path = {leaf['path']: leaf for leaf in saved}
  expected_paths = {leaf['path'] for leaf in expected}

  def raise_error(difference):
    raise CheckpointError(
      f'template must be of the structure saved in {path}, but {difference};'
      ' restore with the configuration that the run was started with.'
    )

  for leaf in expected:
    other = saved_by_path.get(leaf['path'])
    if other is None:
      raise_error(f'{leaf["path"]} is not in the checkpoint')
    elif other != leaf:
      raise_error(
        f'{leaf["path"]} is {leaf["dtype"]}{leaf["shape"]} in the template and'
        f' {other["dtype"]}{other["shape"]} in the checkpoint'
      )
  for leaf in saved:
    if leaf['path'] not in expected_paths:
      raise_error(f'{leaf["path"]} of the checkpoint is not in the template')


def _make_like(array: np.ndarray, like: Any) -> Any:
  """Turns `array` into what the template's leaf is."""
  if isinstance(like, np.ndarray):
    return array
  if isinstance(like, np.generic):
    return array[()]
  if isinstance(like, bool | int | float | complex):
    return type(like)(array.item())
  if isinstance(like, jax.Array) and like.committed:
    return jax.device_put(array, like.sharding)
  return jnp.asarray(array)
