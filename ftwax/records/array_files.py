"""Pytrees of arrays on disk: checkpoints, exports and shared agents.

A directory holds one tree, next to any other files:

    <name>.safetensors   the arrays; gzipped, and named `.safetensors.gz`, if
                         most of them are integers, such as frames of a replay
    manifest.json        layout, the user's metadata, and the SHA-256 of the
                         file above
    manifest.sha256      SHA-256 of the manifest, readable by `sha256sum -c`

An array is named by its path in the tree, e.g. `params/torso/linear/w`. Nothing
is pickled, and other programs read safetensors, too. Nothing in a directory is
trusted: any deviation from what `write` writes counts as damage.
"""

import contextlib
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from ftwax import errors, types
from ftwax.records import files, migrations

# A pytree; what is read has the structure of the template.
Tree = TypeVar('Tree')

# Layout of these files and of run directories, which is also the second number
# of the library's version; see `migrations`. In layout 1, a single agent had no
# member axis; in layout 2, Orbax wrote the arrays; in layout 3, configurations
# named parts by their paths in Python; in layout 5, the state of an optimizer
# had the structure of the parameters.
LAYOUT = 7

MANIFEST_FILE = 'manifest.json'
DIGEST_FILE = 'manifest.sha256'

# Names of dtypes by their name in safetensors.
_DTYPES = {
  'BOOL': 'bool',
  'BF16': 'bfloat16',
  'F16': 'float16',
  'F32': 'float32',
  'F64': 'float64',
  'C64': 'complex64',
  **{f'I{bits}': f'int{bits}' for bits in (8, 16, 32, 64)},
  **{f'U{bits}': f'uint{bits}' for bits in (8, 16, 32, 64)},
}


class CheckpointError(errors.UserError):
  """Raised if arrays cannot be saved or restored."""


class DamagedError(Exception):
  """Raised if files differ from what was saved."""


class Leaf(NamedTuple):
  """The kind of an array.

  Attributes:
    dtype: name of the dtype, e.g. `float32`.
    shape: shape of the array.
  """

  dtype: str
  shape: tuple[int, ...]

  @property
  def num_bytes(self) -> int:
    """Size of its data."""
    return math.prod(self.shape) * np.dtype(self.dtype).itemsize

  def __str__(self) -> str:
    return f'{self.dtype}{list(self.shape)}'


def describe(tree: types.ArrayTree) -> dict[str, Leaf]:
  """Returns the kind of each leaf by its path, in the order of the tree.

  Args:
    tree: a pytree of arrays, numbers or `jax.ShapeDtypeStruct`.

  Raises:
    CheckpointError: if a leaf is not numeric, or two have the same path.
  """
  leaves = {}
  for key_path, leaf in jax.tree.leaves_with_path(tree):
    name = jax.tree_util.keystr(key_path, simple=True, separator='/') or 'state'
    dtype = leaf.dtype if hasattr(leaf, 'dtype') else np.asarray(leaf).dtype
    if dtype.name not in _DTYPES.values():
      raise CheckpointError(
        f'{name} ({dtype}) must be an array of numbers or booleans; put strings'
        ' into the metadata, and unwrap typed keys with jax.random.key_data.'
      )
    if name in leaves:
      raise CheckpointError(
        f'{name} must be the path of one array, but is that of two; rename one'
        ' of them, so that slashes in names do not repeat a path.'
      )
    leaves[name] = Leaf(dtype.name, np.shape(leaf))
  return leaves


def encode_metadata(metadata: Mapping[str, Any]) -> str:
  """Returns `metadata` as text for a manifest.

  The text is JSON with Python's names for numbers that are not finite.

  Raises:
    ValueError: if `read` would not return `metadata` unchanged.
  """
  try:
    text = json.dumps(metadata)
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'metadata must be plain JSON, but: {error}; convert arrays to lists.'
    ) from error
  copy = files.parse_text(text)
  # Compared by their text, too, since NaN differs from itself.
  if copy != metadata and (repr(copy) != repr(metadata)):
    raise ValueError(
      f'metadata ({metadata}) must come back from JSON unchanged, not'
      f' as {copy}; use lists, and strings as keys.'
    )
  return text


def write(
  directory: pathlib.Path,
  name: str,
  tree: types.ArrayTree,
  metadata: str = '{}',
  compress: bool | None = None,
) -> None:
  """Writes a tree and waits until all of it is on disk.

  Args:
    directory: an existing directory.
    name: name of the file of arrays, without its suffix.
    tree: a pytree of arrays and numbers.
    metadata: from `encode_metadata`.
    compress: whether to; None: if most of it is integers.
  """
  # safetensors stores the buffer of an array as it is, whatever its strides.
  arrays = {
    path: np.asarray(leaf, order='C')
    for path, leaf in zip(describe(tree), jax.tree.leaves(tree), strict=True)
  }
  content, suffix = safetensors.numpy.save(arrays), '.safetensors'
  if _is_compressible(arrays) if compress is None else compress:
    content, suffix = gzip.compress(content, 1, mtime=0), f'{suffix}.gz'
  files.write_synced(directory / f'{name}{suffix}', content)
  manifest = {
    'format': LAYOUT,
    'metadata': metadata,
    'files': {f'{name}{suffix}': digest(content)},
  }
  text = json.dumps(manifest, indent=1).encode()
  files.write_synced(directory / MANIFEST_FILE, text)
  files.write_synced(directory / DIGEST_FILE, _digest_line(text))
  files.sync(directory)


def read(
  directory: pathlib.Path,
  template: Tree,
  part: str | None = None,
  find_missing: Callable[[str], Any] | None = None,
) -> tuple[Tree, dict[str, Any]]:
  """Reads a tree.

  Args:
    directory: directory of the files.
    template: a tree with the structure, shapes and dtypes that were saved, of
      arrays or `jax.ShapeDtypeStruct`. Each leaf is restored as the same kind
      as the template's: a JAX array (with the template's sharding if it is
      committed to devices; never weakly typed), a NumPy array or a Python
      number.
    part: end of the path of the subtree that the template describes, such as
      `population/members`, which may hold more; None for the whole tree.
    find_missing: returns the array at a path of the template that was not
      saved, or None if it must have been.

  Returns:
    The tree and the metadata.

  Raises:
    DamagedError: if something differs from what was saved.
    CheckpointError: if another structure was saved, or with a layout that this
      version cannot read.
  """
  expected = describe(template)
  name, digest_of_file, metadata, layout = _read_manifest(directory)
  arrays: dict[str, Any] = {}
  with _opened(directory / name, digest_of_file) as (stream, leaves):
    saved = {
      migrations.rename_array(path, layout): leaf
      for path, leaf in leaves.items()
    }
    start = '' if part is None else _find_part(saved, part)
    if find_missing is not None:
      missing = [path for path in expected if start + path not in saved]
      arrays.update((path, find_missing(path)) for path in missing)
    needed = {
      path: leaf for path, leaf in expected.items() if arrays.get(path) is None
    }
    difference = _first_difference(saved, needed, start, part is None)
    if difference is not None:
      raise CheckpointError(
        f'template must have the structure saved in {directory}, but'
        f' {difference}; give the experiment that the run was started with.'
      )
    for path, leaf in saved.items():
      if path.removeprefix(start) in needed and path.startswith(start):
        data = bytearray(stream.read(leaf.num_bytes))
        if len(data) < leaf.num_bytes:
          raise EOFError('it ends early')
        arrays[path.removeprefix(start)] = data
      else:
        stream.seek(leaf.num_bytes, os.SEEK_CUR)
  likes, structure = jax.tree.flatten(template)
  values = [
    _make_like(arrays[path], leaf, like)
    for (path, leaf), like in zip(expected.items(), likes, strict=True)
  ]
  tree: Tree = jax.tree.unflatten(structure, values)
  return tree, metadata


def digest(content: bytes) -> str:
  """Returns the SHA-256 of a file's content, 64 hexadecimal digits."""
  return hashlib.sha256(content).hexdigest()


def layout_message(
  layout: Any, versions: Mapping[str, Any] | None = None
) -> str:
  """Returns the part of an error message about a layout other than `LAYOUT`.

  Args:
    layout: the other layout.
    versions: versions recorded with the run; None if they are not at hand.
  """
  is_newer = isinstance(layout, int) and layout > LAYOUT
  age = 'a newer' if is_newer else 'an older'
  reader = 'the version of ftwax named in its versions.json'
  if isinstance(layout, int) and layout >= migrations.OLDEST:
    reader = f'that version: pip install "ftwax==0.{layout}.*"'
  elif versions and isinstance(versions, Mapping):  # It may be damaged.
    commit = versions.get('commit')
    reader = f'ftwax {versions.get("ftwax")}{f" at {commit}" if commit else ""}'
  return (
    f'has layout {layout}, that of {age} version of ftwax, but must have'
    f' layout {LAYOUT}; start a new run, or resume this one with {reader}.'
  )


def can_read(layout: Any) -> bool:
  """Returns whether this version reads what has a layout."""
  return isinstance(layout, int) and migrations.OLDEST <= layout <= LAYOUT


def _is_compressible(arrays: Mapping[str, types.NumpyArray]) -> bool:
  """Returns whether compression is worth its time.

  Frames in a replay buffer shrink by an order of magnitude, learned parameters
  by a tenth.
  """
  num_bytes = {True: 0, False: 0}
  for array in arrays.values():
    num_bytes[jnp.issubdtype(array.dtype, np.inexact)] += array.nbytes
  return num_bytes[False] > num_bytes[True]


def _digest_line(manifest: bytes) -> bytes:
  return f'{digest(manifest)}  {MANIFEST_FILE}\n'.encode()


def _read_manifest(
  directory: pathlib.Path,
) -> tuple[str, str, dict[str, Any], int]:
  """Returns name and digest of the file of arrays, metadata and layout."""
  text = _read_file(directory, MANIFEST_FILE)
  if _read_file(directory, DIGEST_FILE) != _digest_line(text):
    raise DamagedError(f'{MANIFEST_FILE} and {DIGEST_FILE} do not agree')
  try:
    manifest = files.parse_text(text)
  except (ValueError, RecursionError) as error:
    raise DamagedError(f'{MANIFEST_FILE} is not JSON ({error})') from error
  layout = manifest.get('format') if isinstance(manifest, dict) else None
  if not isinstance(layout, int):
    raise DamagedError(f'{MANIFEST_FILE} has no layout version')
  if not can_read(layout):
    raise CheckpointError(f'checkpoint {directory} {layout_message(layout)}')
  try:
    ((name, expected),) = {**manifest['files']}.items()
    metadata = {**files.parse_text(manifest['metadata'])}
  except (KeyError, TypeError, ValueError, RecursionError) as error:
    raise DamagedError(
      f'{MANIFEST_FILE} is not what ftwax writes ({error!r})'
    ) from error
  if not re.fullmatch(r'\w+\.safetensors(\.gz)?', name):
    raise DamagedError(f'{MANIFEST_FILE} names {name!r}, no file of arrays')
  return name, expected, metadata, layout


@contextlib.contextmanager
def _opened(
  path: pathlib.Path, expected: str
) -> Iterator[tuple[IO[bytes], dict[str, Leaf]]]:
  """Opens a file of arrays, whose SHA-256 is known, at its first array.

  Nothing is read whole: a file may say that it is larger than any memory.

  Yields:
    The file, decompressed, and the kinds of the arrays in it, in their order.
  """
  try:
    with files.opened(path) as file:
      is_compressed = path.suffix == '.gz'
      leaves, start, end = _read_header(_decompressed(file, is_compressed))
      size = os.fstat(file.fileno()).st_size
      if not is_compressed and size != end:
        raise ValueError(f'it has {size} bytes, not {end}')
      file.seek(0)
      if _digest_of(file) != expected:
        raise DamagedError(f'{path.name} has changed since it was saved')
      file.seek(0)
      stream = _decompressed(file, is_compressed)
      stream.seek(start)
      yield stream, leaves
      if stream.tell() != end or stream.read(1):
        raise ValueError('its arrays have another size')
  except (
    gzip.BadGzipFile, AttributeError, EOFError, LookupError, OverflowError,
    RecursionError, TypeError, ValueError, zlib.error,
  ) as error:  # fmt: skip
    raise DamagedError(
      f'{path.name} is no file of arrays, or has changed since it was saved'
      f' ({type(error).__name__}: {error})'
    ) from error
  except OSError as error:
    raise DamagedError(f'{path.name} cannot be read ({error})') from error


def _decompressed(file: IO[bytes], is_compressed: bool) -> Any:
  return gzip.GzipFile(fileobj=file) if is_compressed else file


def _read_header(stream: IO[bytes]) -> tuple[dict[str, Leaf], int, int]:
  """Returns the kinds of all arrays, and where the first starts and all end."""
  size = int.from_bytes(stream.read(8), 'little')
  if size > files.MAX_BYTES:
    raise ValueError(f'its header has {size} bytes')
  plain = {**files.parse_text(stream.read(size))}
  plain.pop('__metadata__', None)
  leaves, end = {}, 0
  for name in sorted(plain, key=lambda name: list(plain[name]['data_offsets'])):
    entry = plain[name]
    leaf = Leaf(_DTYPES[entry['dtype']], tuple(map(int, entry['shape'])))
    begin, end = end, end + leaf.num_bytes
    if not 0 <= begin <= end or entry['data_offsets'] != [begin, end]:
      raise ValueError(f'{name} has another place')
    leaves[name] = leaf
  return leaves, 8 + size, 8 + size + end


def _digest_of(file: IO[bytes]) -> str:
  """Returns the SHA-256 of a file, read by parts."""
  sha256 = hashlib.sha256()
  while part := file.read(2**20):
    sha256.update(part)
  return sha256.hexdigest()


def _read_file(directory: pathlib.Path, name: str) -> bytes:
  try:
    return files.read_bytes(directory / name)
  except OSError as error:
    raise DamagedError(f'{name} cannot be read ({error})') from error


def _find_part(saved: Mapping[str, Leaf], part: str) -> str:
  """Returns the start of the paths in a part; the shortest that fits."""
  pattern = re.compile(rf'(.*?/)?{re.escape(part)}/')
  starts = {match.group() for match in map(pattern.match, saved) if match}
  return min(starts, key=len, default=f'{part}/')


def _first_difference(
  saved: Mapping[str, Leaf],
  expected: Mapping[str, Leaf],
  start: str,
  is_whole: bool,
) -> str | None:
  for name, leaf in expected.items():
    other = saved.get(start + name)
    if other is None:
      return f'{start}{name} is not in the checkpoint'
    if other != leaf:
      return (
        f'{start}{name} is {leaf} in the template and {other} in the checkpoint'
      )
  for name in sorted(saved.keys() - expected.keys()) if is_whole else ():
    return f'{name} of the checkpoint is not in the template'
  return None


def _make_like(data: Any, leaf: Leaf, like: Any) -> Any:
  """Returns an array of the kind of the template's leaf, from its bytes."""
  if not isinstance(data, bytearray):  # It was missing.
    data = bytearray(np.asarray(data, leaf.dtype).tobytes())
  # The dtype of the template, not that of the name: if TensorFlow is loaded,
  # the name bfloat16 refers to another dtype.
  dtype = np.dtype(getattr(like, 'dtype', leaf.dtype))
  array = np.frombuffer(data, dtype).reshape(leaf.shape)
  if isinstance(like, np.ndarray):
    return array
  if isinstance(like, np.generic):
    return array[()]
  if isinstance(like, bool | int | float | complex):
    return type(like)(array.item())
  if isinstance(like, jax.Array) and like.committed:
    return jax.device_put(array, like.sharding)
  return jax.device_put(array)  # It compiles nothing, unlike `jnp.asarray`.
