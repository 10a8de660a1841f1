"""Files that survive a kill or a power failure intact."""

import contextlib
import io
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_Read = TypeVar('_Read')


class DamagedRecordWarning(RuntimeWarning):
  """A record is damaged, and what it holds is left out."""


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Replaces a file so that readers see either the old text or the new one.

  The text and the file's name are on disk when this returns. Line ends stay as
  they are. Surrogates, which
  represent non-UTF-8 bytes of a path, are written as these bytes.

  Args:
    path: path of the file; its directory must exist.
    text: written as UTF-8.
  """
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    write_synced(temporary, text.encode('utf-8', 'surrogateescape'))
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  # A power failure could undo the rename until the directory is on disk.
  sync(path.parent)


def write_synced(path: pathlib.Path, content: bytes) -> None:
  """Writes a file and waits until its content is on disk."""
  with open(path, 'wb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def read(path: pathlib.Path, errors: str = 'surrogateescape') -> str:
  """Reads a file written by `write_atomically`, including surrogates.

  Raises:
    OSError: if it is not a file; a pipe, for example, could hang the reader.
  """
  if path.exists() and not path.is_file():
    raise OSError(f'{path} is not a file')
  return path.read_text('utf-8', errors)


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
      f' ({type(error).__name__}: {error}); give the directory of a run, or'
      ' restore it from a copy.'
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
    return parse(json.loads(read(path)))


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


def sync(path: pathlib.Path) -> None:
  """Waits until a file, or the names in a directory, are on disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def open_to_append(path: pathlib.Path) -> io.TextIOWrapper:
  """Opens a file for appending and removes an incomplete last line."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.exists():
    content = read(path).encode('utf-8', 'surrogateescape')
    complete = content.rfind(b'\n') + 1
    if complete < len(content):
      os.truncate(path, complete)
  return open(path, 'a', encoding='utf-8', newline='')
