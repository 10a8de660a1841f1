"""Files that a kill leaves whole: replaced at once, or cut at a line's end."""

import io
import os
import pathlib


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Writes `text` so that a reader sees the old file or the new, never half."""
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    # Not translated: what was read with newline='' comes back as it was.
    with open(temporary, 'w', encoding='utf-8', newline='') as file:
      file.write(text)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def open_to_append(path: pathlib.Path) -> io.TextIOWrapper:
  """Opens `path` behind its last complete line; what follows it is cut off."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.exists():
    content = path.read_bytes()
    complete = content.rfind(b'\n') + 1
    if complete < len(content):
      os.truncate(path, complete)
  return open(path, 'a', encoding='utf-8', newline='')
