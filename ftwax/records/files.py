"""Files that survive a kill or a power failure intact."""

import io
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

_Parsed = TypeVar('_Parsed')


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


def read(path: pathlib.Path) -> str:
  """Reads a file written by `write_atomically`, including surrogates."""
  return path.read_text('utf-8', errors='surrogateescape')


def parse_json(
  path: pathlib.Path, parse: Callable[[Any], _Parsed], content: str
) -> _Parsed:
  """Reads a JSON file that is part of a run's records.

  Args:
    path: path of the file.
    parse: converts the content to the result; raises a KeyError, TypeError or
      ValueError if the content is invalid.
    content: description of the content, for the message.

  Raises:
    ValueError: if there is no such file or it is damaged.
  """
  try:
    return parse(json.loads(read(path)))
  except (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
  ) as error:  # fmt: skip
    raise ValueError(
      f'{path} must hold {content}, and cannot be read'
      f' ({type(error).__name__}: {error}); give the directory of a run, or'
      ' restore it from a copy.'
    ) from None


def read_object(path: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON object; returns an empty one if there is none."""
  if not path.exists():
    return {}
  content = json.loads(read(path))
  return content if isinstance(content, dict) else {}


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
    content = path.read_bytes()
    complete = content.rfind(b'\n') + 1
    if complete < len(content):
      os.truncate(path, complete)
  return open(path, 'a', encoding='utf-8', newline='')
