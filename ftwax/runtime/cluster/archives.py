"""Directories as bytes, to be sent to hosts that do not share a disk."""

import io
import pathlib
import tarfile


def pack(directory: pathlib.Path) -> bytes:
  """Returns the files below a directory; those that vanish are left out."""
  stream = io.BytesIO()
  with tarfile.open(fileobj=stream, mode='w:gz', compresslevel=1) as archive:
    for path in sorted(directory.rglob('*')):
      try:
        archive.add(path, path.relative_to(directory), recursive=False)
      except FileNotFoundError:
        continue  # For instance a checkpoint that a newer one replaced.
  return stream.getvalue()


def unpack(archive: bytes, directory: pathlib.Path) -> None:
  """Writes what `pack` returned below a directory.

  Raises:
    tarfile.TarError: a name leads out of the directory.
  """
  with tarfile.open(fileobj=io.BytesIO(archive), mode='r:gz') as packed:
    packed.extractall(directory, filter='data')
