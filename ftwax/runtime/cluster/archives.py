"""Packs directories into bytes, for hosts that do not share a disk."""

import io
import pathlib
import tarfile


def pack(directory: pathlib.Path) -> bytes:
  """Packs the files below a directory; skips files that vanish meanwhile."""
  stream = io.BytesIO()
  # Parameters hardly compress, so a higher level would only cost time.
  with tarfile.open(fileobj=stream, mode='w:gz', compresslevel=1) as archive:
    for path in sorted(directory.rglob('*')):
      try:
        archive.add(path, path.relative_to(directory), recursive=False)
      except FileNotFoundError:
        continue  # For example a replaced checkpoint.
  return stream.getvalue()


def unpack(archive: bytes, directory: pathlib.Path) -> None:
  """Unpacks an archive made by `pack` below a directory.

  Raises:
    tarfile.TarError: if a name points outside the directory.
  """
  with tarfile.open(fileobj=io.BytesIO(archive), mode='r:gz') as packed:
    packed.extractall(directory, filter='data')
