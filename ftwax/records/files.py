"""Files of runs: what is written survives a kill or a power failure intact.

A run may come from anybody. All of its files are opened here, through no link
that could lead out of its directory, no pipe or device, and none is read whole
that is larger than a limit.
"""

import contextlib
import errno
import json
import os
import pathlib
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

from ftwax import errors as errors_lib

_Read = TypeVar('_Read')

# Largest size of a record, and of a log, which is read by parts.
MAX_BYTES = 2**26
_MAX_LOG_BYTES = 2**30

# Most memory that what is read from JSON takes, roughly: a small text may
# become large objects.
MAX_MEMORY = 2**28
_BYTES_OF_A_VALUE = 64

# Levels of lists and objects in JSON.
_MAX_DEPTH = 100

# The folders in the directory of a run. It may be reached by a link itself.
_FOLDER = re.compile(
  r'best|checkpoints|games|logs|output|videos|\d{10,}(-\d+)?'
)


class DamagedRecordWarning(RuntimeWarning):
  """A record is damaged, and what it holds is left out."""


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
  """Replaces a file so that readers see the old content or the new one.

  The content and the file's name are on disk when this returns. Line ends stay
  as they are. Surrogates, which represent non-UTF-8 bytes of a path, are
  written as these bytes.

  Args:
    path: path of the file; its directory must exist.
    content: text is written as UTF-8.
  """
  if isinstance(content, str):
    content = content.encode('utf-8', 'surrogateescape')
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    write_synced(temporary, content)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  # A power failure could undo the rename until the directory is on disk.
  sync(path.parent)


def write_synced(path: pathlib.Path, content: bytes) -> None:
  """Writes a file and waits until its content is on disk."""
  with opened(path, 'wb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def opened(path: pathlib.Path, mode: str = 'rb', **options: Any) -> IO[Any]:
  """Opens a file of a run; see `open` for the arguments.

  Raises:
    OSError: if it is no file, or a link leads from the run's directory to it.
  """
  return open(path, mode, opener=_open, **options)


def _open(path: Any, flags: int) -> int:
  path = pathlib.Path(path)
  root = path.parent
  while _FOLDER.fullmatch(root.name):
    root = root.parent
  *folders, name = path.relative_to(root).parts
  if os.open not in os.supports_dir_fd:
    return _open_by_path(root, [*folders, name], flags)
  with contextlib.ExitStack() as stack:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, folder)
    try:
      for part in folders:
        inside = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        folder = os.open(part, inside, dir_fd=folder)
        stack.callback(os.close, folder)
      # A pipe without a reader or writer would block.
      flags |= os.O_NOFOLLOW | os.O_NONBLOCK
      file = os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as error:
      if error.errno in (errno.ELOOP, errno.ENOTDIR):
        raise OSError(f'{path} is a link or in one; put a copy there') from None
      raise
  if not stat.S_ISREG(os.fstat(file).st_mode):
    os.close(file)
    raise OSError(f'{path} is not a file')
  return file


def _open_by_path(root: pathlib.Path, parts: Sequence[str], flags: int) -> int:
  """Opens a file where folders are no descriptors, as on Windows.

  A link that is put there meanwhile is followed.
  """
  path = root
  for part in parts:
    path /= part
    if path.is_symlink():
      raise OSError(f'{path} is a link or in one; put a copy there')
  if path.exists() and not path.is_file():
    raise OSError(f'{path} is not a file')
  return os.open(path, flags, 0o666)


def make_folder(root: pathlib.Path, *names: str) -> pathlib.Path:
  """Makes a folder in the directory of a run, for what others write there.

  Args:
    root: directory of the run.
    *names: names of the folders on the way; the last one is made.

  Raises:
    OSError: if one of them is a link, or a file.
  """
  path = root
  for name in names:
    path = path / name
    if path.is_symlink():
      raise OSError(f'{path} is a link; put a copy there')
    path.mkdir(parents=True, exist_ok=True)
  return path


def read_bytes(path: pathlib.Path, max_bytes: int = MAX_BYTES) -> bytes:
  """Reads a file of a run.

  Raises:
    OSError: if it is larger than `max_bytes`, or see `opened`.
  """
  with opened(path) as file:
    content: bytes = file.read(_size(path, file, max_bytes))
  return content


def _size(path: pathlib.Path, file: IO[Any], max_bytes: int) -> int:
  size = os.fstat(file.fileno()).st_size
  if size > max_bytes:
    raise OSError(f'{path} has {size} bytes, more than {max_bytes}')
  return size


def read(path: pathlib.Path, errors: str = 'surrogateescape') -> str:
  """Reads a file written by `write_atomically`, including surrogates."""
  return read_bytes(path).decode('utf-8', errors)


def read_lines(path: pathlib.Path) -> Iterator[str]:
  """Yields the complete lines of a log, without their ends."""
  with opened(path) as file:
    _size(path, file, _MAX_LOG_BYTES)
    while (line := file.readline(MAX_BYTES)).endswith(b'\n'):
      yield line[:-1].decode('utf-8')


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], content: str) -> Iterator[None]:
  """Raises any error within as a ValueError that names the file.

  A context manager.

  Args:
    path: path of the file that is read.
    content: description of what it must hold, for the message.
  """
  try:
    yield
  except (
    OSError, ValueError, LookupError, TypeError, AttributeError,
    OverflowError, RecursionError,
  ) as error:  # fmt: skip
    raise ValueError(
      f'{os.fspath(path)} must hold {content}, and cannot be read'
      f' ({type(error).__name__}: {errors_lib.printable(str(error))}); give the'
      ' directory of a run, or restore it from a copy.'
    ) from None


def read_or_warn(read: Callable[..., _Read], *arguments: Any) -> _Read | None:
  """Returns what `read` returns; if it is damaged, warns and returns None."""
  try:
    return read(*arguments)
  except (OSError, ValueError) as error:
    warnings.warn(f'Left out: {error}', DamagedRecordWarning, stacklevel=2)
    return None


def parse_json(
  path: pathlib.Path, parse: Callable[[Any], _Read], content: str
) -> _Read:
  """Reads a JSON file that is part of a run's records.

  Args:
    path: path of the file.
    parse: converts the content to the result; raises a KeyError, TypeError or
      ValueError if the content is invalid.
    content: description of the content, for the message.

  Raises:
    ValueError: if there is no such file or it is damaged.
  """
  with reading(path, content):
    return parse(parse_text(read(path)))


def parse_text(text: str | bytes, **options: Any) -> Any:
  """Returns what JSON describes; see `json.loads` for the options.

  Raises:
    TypeError: if it is no text.
    ValueError: if it is no JSON, or would take too much memory.
  """
  if not isinstance(text, str | bytes):
    raise TypeError(f'it is a {type(text).__name__}, not text')
  memory = memory_of(text)
  if memory > MAX_MEMORY:
    raise ValueError(
      f'its values would take some {memory:,} bytes, more than {MAX_MEMORY:,}'
    )
  plain = json.loads(text, **options)
  _check_depth(plain)
  return plain


def _check_depth(plain: Any) -> None:
  """Raises a ValueError if functions that descend would not come back."""
  level = [plain] if isinstance(plain, dict | list) else []
  for _ in range(_MAX_DEPTH):
    level = [
      part
      for each in level
      for part in (each.values() if isinstance(each, dict) else each)
      if isinstance(part, dict | list)
    ]
    if not level:
      return
  raise ValueError(f'its values are nested more than {_MAX_DEPTH} deep')


def memory_of(text: str | bytes) -> int:
  """Estimates the bytes of memory that the values of a JSON text take."""
  if isinstance(text, bytes):
    num_values = sum(text.count(mark) for mark in (b',', b'[', b'{'))
  else:
    num_values = sum(text.count(mark) for mark in (',', '[', '{'))
  return len(text) + _BYTES_OF_A_VALUE * num_values


def read_object(path: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON object; returns an empty one if there is no file.

  Raises:
    ValueError: if the file is damaged.
  """
  if not path.exists():
    return {}
  return parse_json(path, to_object, 'a JSON object')


def to_object(plain: Any) -> dict[str, Any]:
  """Returns a JSON value that must be an object."""
  if not isinstance(plain, dict):
    raise ValueError(f'it is a {type(plain).__name__}, not an object')
  return plain


def first_line(error: BaseException) -> str:
  """Returns the kind of an error, and the first line of its message."""
  return f'{type(error).__name__}: {error}'.partition('\n')[0]


def sync(path: pathlib.Path) -> None:
  """Waits until a file, or the names in a directory, are on disk."""
  if path.is_dir() and not hasattr(os, 'O_DIRECTORY'):
    return  # Windows opens no directories.
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def open_to_append(path: pathlib.Path) -> IO[str]:
  """Opens a file for appending and removes an incomplete last line."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with opened(path, 'ab+') as file:
    end = file.seek(0, os.SEEK_END)
    while end:
      start = max(0, end - 2**16)
      file.seek(start)
      newline = file.read(end - start).rfind(b'\n')
      end = start + newline + 1 if newline >= 0 else start
      if newline >= 0:
        break
    file.truncate(end)
  return opened(path, 'a', encoding='utf-8', newline='')


def append_rows(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
  """Appends rows to a JSONL file with a single write, which is on disk then."""
  text = ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows)
  if text:
    with open_to_append(path) as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())


def cut_rows(
  path: pathlib.Path, is_late: Callable[[dict[str, Any]], bool]
) -> None:
  """Cuts a JSONL file off before its first late row, if there is one."""
  size = 0
  for line in read_lines(path):
    if is_late(to_object(parse_text(line))):
      with opened(path, 'ab') as file:
        file.truncate(size)
      return
    size += len(line.encode()) + 1
