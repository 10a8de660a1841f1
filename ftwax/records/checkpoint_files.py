"""The files of one checkpoint.

    state/            the arrays, written by Orbax under their path in the
                      pytree
    manifest.json, manifest.sha256
                      see `ftwax.records.manifests`

Nothing is pickled: only JSON and arrays are read back. Orbax alone can read the
arrays as a dict by path:

    orbax.checkpoint.PyTreeCheckpointer().restore(path / 'state')
"""

import contextlib
import math
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.records import files, manifests

_STATE = 'state'


def write(
  path: pathlib.Path,
  step: int,
  state: types.ArrayTree,
  leaves: Sequence[manifests.Leaf],
  metadata: Mapping[str, Any],
) -> None:
  """Writes a checkpoint and waits until all of it is on disk.

  Args:
    path: absolute path; must not exist.
    step: step of the checkpoint.
    state: a pytree of NumPy arrays.
    leaves: from `manifests.describe`.
    metadata: from `manifests.encode_metadata`.
  """
  path.mkdir(parents=True)
  # Orbax rejects empty arrays; the manifest describes them completely.
  arrays = {
    leaf.path: array
    for leaf, array in zip(leaves, jax.tree.leaves(state), strict=True)
    if array.size
  }
  checkpointer = _make_checkpointer(_is_compressible(arrays.values()))
  with _utf8_path(path) as utf8_path:
    checkpointer.save(utf8_path / _STATE, arrays)
  # TensorStore syncs its files to disk, but Orbax does not sync its own.
  for entry in (path / _STATE).iterdir():
    files.sync(entry)
  files.sync(path / _STATE)
  manifests.write(path, step, leaves, metadata)


def read(
  path: pathlib.Path, template: types.ArrayTree, part: str | None = None
) -> tuple[Any, dict[str, Any]]:
  """Reads a checkpoint.

  Args:
    path: absolute path of the checkpoint.
    template: a state with the structure, shapes and dtypes that were saved.
    part: end of the path of the subtree that the template describes, which may
      lack fields; None for the whole state.

  Returns:
    The state, each leaf of the same kind as the template's, and the metadata.

  Raises:
    DamagedError: if something differs from what was saved.
    CheckpointError: if the checkpoint has another structure or layout.
  """
  expected = manifests.describe(template)
  manifest = manifests.read(path)
  if part is None:
    manifests.check_leaves(path, manifest.leaves, expected)
  else:
    expected = manifests.find_leaves(path, manifest.leaves, expected, part)
  try:
    with _utf8_path(path) as utf8_path:
      arrays = dict(_make_checkpointer().restore(utf8_path / _STATE))
  except Exception as error:  # Orbax raises errors of many kinds.
    raise manifests.DamagedError(
      f'Orbax cannot read {_STATE} ({error})'
    ) from error
  likes, structure = jax.tree.flatten(template)
  restored = [
    _make_like(_array(arrays, leaf, like), like)
    for leaf, like in zip(expected, likes, strict=True)
  ]
  return jax.tree.unflatten(structure, restored), manifest.metadata


def _make_checkpointer(use_compression: bool = True) -> Any:
  """Makes Orbax's checkpointer, which does not wait for other processes."""
  # Imported here since it takes a second or two.
  import orbax.checkpoint as orbax

  process = jax.process_index()
  options = orbax.options.MultiprocessingOptions(process, {process})
  return orbax.Checkpointer(
    orbax.PyTreeCheckpointHandler(
      use_compression=use_compression, multiprocessing_options=options
    ),
    multiprocessing_options=options,
  )


def _is_compressible(arrays: Iterable[types.NumpyArray]) -> bool:
  """Returns whether compression is worth its time.

  Frames in a replay buffer shrink by an order of magnitude, learned parameters
  by a tenth, and a save without compression takes two thirds of the time.
  """
  num_bytes = {True: 0, False: 0}
  for array in arrays:
    num_bytes[jnp.issubdtype(array.dtype, np.inexact)] += array.nbytes
  return num_bytes[False] > num_bytes[True]


@contextlib.contextmanager
def _utf8_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a path that TensorStore, which only supports UTF-8, can open.

  Python represents other bytes in a path by surrogates; if the locale is ASCII,
  these include all accented letters. A symbolic link replaces such paths.
  """
  try:
    str(path).encode('utf-8')
  except UnicodeEncodeError:
    with tempfile.TemporaryDirectory() as directory:
      link = pathlib.Path(directory) / 'checkpoint'
      link.symlink_to(path, target_is_directory=True)
      yield link
  else:
    yield path


def _array(
  arrays: Mapping[str, Any], leaf: manifests.Leaf, like: Any
) -> types.NumpyArray:
  """Returns the saved array of a leaf.

  Raises:
    DamagedError: if it does not match the manifest.
  """
  # The dtype of the template, not that of the name: if TensorFlow is loaded,
  # the name bfloat16 refers to another dtype.
  dtype = np.dtype(getattr(like, 'dtype', leaf.dtype))
  if not math.prod(leaf.shape):
    return np.zeros(leaf.shape, dtype)
  array = arrays.get(leaf.path)
  if (
    not isinstance(array, np.ndarray)
    or array.shape != leaf.shape
    or array.dtype.itemsize != dtype.itemsize
  ):
    raise manifests.DamagedError(f'{leaf.path} does not match the manifest')
  return array if array.dtype == dtype else array.view(dtype)


def _make_like(array: types.NumpyArray, like: Any) -> Any:
  """Converts `array` to the kind of the template's leaf."""
  if isinstance(like, np.ndarray):
    return array
  if isinstance(like, np.generic):
    return array[()]
  if isinstance(like, bool | int | float | complex):
    return type(like)(array.item())
  if isinstance(like, jax.Array) and like.committed:
    return jax.device_put(array, like.sharding)
  return jnp.asarray(array)
