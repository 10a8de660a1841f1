"""Checkpoints that survive kills, full disks and flipped bits.

A directory holds one directory per checkpoint, named by its step. It is written
under a temporary name and renamed once it is on disk, so that a kill during a
save leaves the previous checkpoint. A damaged checkpoint is skipped with a
warning. `ftwax.records.array_files` describes the files of a checkpoint.
"""

import concurrent.futures
import dataclasses
import operator
import os
import pathlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from ftwax import registry, types
from ftwax.records import array_files, files

CheckpointError = array_files.CheckpointError

# If a step is saved again, its name has the number of the attempt.
_STEP_NAME = re.compile(r'(?P<step>\d+)(-(?P<attempt>\d+))?')
_TEMPORARY = 'tmp-'

# Name of the file of arrays in a checkpoint.
_STATE = 'state'


class NonFiniteError(CheckpointError):
  """Raised if a state that must be finite holds a NaN or an infinity."""


class DamagedCheckpointWarning(RuntimeWarning):
  """Warns that a checkpoint is damaged and the previous one is restored."""


@registry.register('checkpointing')
@dataclasses.dataclass(frozen=True)
class CheckpointingConfig(types.Config):
  """When checkpoints are saved and how many are kept.

  Attributes:
    save_every_seconds: seconds between two saves, above 0.
    max_to_keep: number of newest checkpoints to keep, at least 1.
  """

  save_every_seconds: float = 300.0
  max_to_keep: int = 3

  def __post_init__(self) -> None:
    """Raises a ValueError if a field is out of its range."""
    if not self.save_every_seconds > 0:
      raise ValueError(
        f'save_every_seconds ({self.save_every_seconds}) must be positive;'
        ' choose float("inf") to save only at the end.'
      )
    _check_max_to_keep(self.max_to_keep)


def _check_max_to_keep(max_to_keep: int) -> None:
  if max_to_keep < 1:
    raise ValueError(
      f'max_to_keep ({max_to_keep}) must be at least 1; 2 or more leave'
      ' something to fall back to.'
    )


class Checkpointer:
  """Saves pytrees of arrays in the background and restores them bit for bit.

  Only one process at a time may save into a directory; others may restore from
  it meanwhile. It is a context manager: unless it is closed, the last save may
  be lost when Python exits.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    max_to_keep: int = 3,
    must_be_finite: Callable[[Any], types.ArrayTree] = lambda state: state,
  ):
    """Opens a directory; nothing is written before the first save.

    Args:
      directory: directory of the checkpoints of one run.
      max_to_keep: number of newest checkpoints to keep.
      must_be_finite: returns the part of a state that must be finite to be
        saved; by default all of it.

    Raises:
      CheckpointError: if `directory` is a file, or a link out of its parent
        directory.
      ValueError: if `max_to_keep` is less than 1.
    """
    _check_max_to_keep(max_to_keep)
    self._directory = pathlib.Path(directory).absolute()
    _check_directory(self._directory)
    self._max_to_keep = max_to_keep
    self._must_be_finite = must_be_finite
    self._damaged: set[pathlib.Path] = set()
    self._executor = concurrent.futures.ThreadPoolExecutor(
      max_workers=1, thread_name_prefix='checkpointer'
    )
    self._saving: concurrent.futures.Future[None] | None = None

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self.close()

  def remove_leftovers(self) -> None:
    """Removes what a killed run has written in part; nobody else may write."""
    _delete(self._directory.glob(f'{_TEMPORARY}*'))

  def steps(self) -> list[int]:
    """Returns the steps of all checkpoints, oldest first."""
    return saved_steps(self._directory)

  def save(
    self,
    step: int,
    state: types.ArrayTree,
    metadata: Mapping[str, Any] | None = None,
  ) -> None:
    """Copies `state` to the host, then saves it in the background.

    Waits for the previous save to end. The caller may change or donate the
    arrays once this returns.

    Args:
      step: at least the step of the newest checkpoint, which is replaced if
        equal.
      state: a pytree of arrays and numbers.
      metadata: plain JSON: dicts with strings as keys, lists, strings, numbers
        (finite or not), booleans, None.

    Raises:
      NonFiniteError: if a leaf that must be finite is not.
      CheckpointError: if `step` is less than that of the newest checkpoint, or
        a leaf is not numeric.
      ValueError: if `metadata` is not plain JSON.
      Exception: if the previous save failed, e.g. an OSError if the disk is
        full.
    """
    self.wait()
    step = operator.index(step)
    self._check_step(step)
    array_files.describe(state)  # Raises an error now, not in the background.
    text = array_files.encode_metadata(dict(metadata or {}))
    # Copied, since on the CPU `device_get` may return a view of the device's
    # memory.
    state = jax.tree.map(np.array, jax.device_get(state))
    _check_finite(step, self._must_be_finite(state))
    self._saving = self._executor.submit(self._write, step, state, text)

  def wait(self) -> None:
    """Waits for the last save and raises its error, if any."""
    if self._saving is not None:
      concurrent.futures.wait([self._saving])
      saving, self._saving = self._saving, None
      saving.result()

  def close(self) -> None:
    """Waits for the last save; no other save may follow."""
    try:
      self.wait()
    finally:
      self._executor.shutdown()

  def restore(
    self,
    template: array_files.Tree,
    check_metadata: Callable[[dict[str, Any]], object] = lambda metadata: None,
    part: str | None = None,
    step: int | None = None,
    find_missing: Callable[[str], Any] | None = None,
  ) -> tuple[array_files.Tree, dict[str, Any]]:
    """Restores the newest checkpoint that is not damaged.

    Args:
      template: see `array_files.read`.
      check_metadata: raises a KeyError, TypeError or ValueError if metadata are
        invalid; that checkpoint then counts as damaged.
      part: see `array_files.read`.
      step: only checkpoints of this step are considered; None for all.
      find_missing: see `array_files.read`.

    Returns:
      The state and its metadata.

    Raises:
      CheckpointError: if there is no checkpoint, if all are damaged, or if the
        newest undamaged one has another structure or layout.
    """
    self.wait()
    entries = [
      e for e in _entries(self._directory) if step is None or e[0] == step
    ]
    for saved_step, _, path in reversed(entries):
      try:
        state, metadata = array_files.read(path, template, part, find_missing)
        _check(metadata, check_metadata)
        return state, metadata
      except array_files.DamagedError as error:
        self._damaged.add(path)
        warnings.warn(
          f'checkpoint of step {saved_step} in {path} is damaged: {error}.'
          ' Falling back to the one before it.',
          DamagedCheckpointWarning,
          stacklevel=2,
        )
    if entries:
      raise CheckpointError(
        f'{self._directory} must hold a whole checkpoint'
        f'{"" if step is None else f" of step {step}"}, but all'
        f' {len(entries)} are damaged; restore the directory from a copy, or'
        ' start a new run.'
      )
    raise CheckpointError(
      f'{self._directory} must hold a checkpoint, but has none; give the'
      ' directory of a run that has saved one, or start a new run.'
    )

  def _check_step(self, step: int) -> None:
    # A run that fell back saves the steps of damaged checkpoints again.
    whole = [
      s for s, _, path in _saved(self._directory) if path not in self._damaged
    ]
    newest = max(whole, default=0)
    if step < newest:
      raise CheckpointError(
        f'step ({step}) must not be older than the newest checkpoint ({newest})'
        f' in {self._directory}; restore that one first, or save into another'
        ' directory.'
      )

  def _write(self, step: int, state: types.ArrayTree, metadata: str) -> None:
    """Writes a checkpoint; runs in the background thread."""
    try:
      self.remove_leftovers()
      temporary = self._directory / f'{_TEMPORARY}{step}'
      temporary.mkdir(parents=True)
      array_files.write(temporary, _STATE, state, metadata)
      # A new attempt has a name of its own, and earlier ones are deleted only
      # once it is there.
      earlier = [e for e in _entries(self._directory) if e[0] == step]
      suffix = f'-{earlier[-1][1] + 1}' if earlier else ''
      temporary.rename(self._directory / f'{step:010d}{suffix}')
      files.sync(self._directory)
      self._discard([*(path for _, _, path in earlier), *self._damaged])
      self._damaged.clear()
      old = _saved(self._directory)[: -self._max_to_keep]
      self._discard([path for _, _, path in old])
    except BaseException:
      # Also raised by `wait`, which may be called much later.
      logging.exception('Saving the checkpoint of step %d failed.', step)
      raise

  def _discard(self, paths: Iterable[pathlib.Path]) -> None:
    """Deletes checkpoints such that none is ever visible half deleted."""
    for path in {path for path in paths if os.path.lexists(path)}:
      # A rename is atomic. The next save deletes what a kill leaves.
      discarded = path.with_name(f'{_TEMPORARY}{path.name}-discarded')
      path.rename(discarded)
      _delete([discarded])


def saved_steps(directory: pathlib.Path) -> list[int]:
  """Returns the steps of all checkpoints in a directory, oldest first."""
  return sorted({step for step, _, _ in _saved(directory)})


def newest_metadata(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the metadata of the newest checkpoint; {} if there is none."""
  try:
    *_, (_, _, path) = _saved(directory)
    manifest = files.read_object(path / array_files.MANIFEST_FILE)
    metadata = files.parse_text(manifest['metadata'])
  except (ValueError, KeyError, TypeError):
    return {}
  return metadata if isinstance(metadata, dict) else {}


def _entries(directory: pathlib.Path) -> list[tuple[int, int, pathlib.Path]]:
  """Returns (step, attempt, path) of all names with a step, oldest first."""
  entries = []
  for path in directory.glob('*'):
    match = _STEP_NAME.fullmatch(path.name)
    if match:
      entries.append((int(match['step']), int(match['attempt'] or 0), path))
  return sorted(entries)


def _saved(directory: pathlib.Path) -> list[tuple[int, int, pathlib.Path]]:
  """Returns the entries that can be checkpoints: neither files nor links."""
  return [
    entry
    for entry in _entries(directory)
    if entry[-1].is_dir() and not entry[-1].is_symlink()
  ]


def _check_directory(directory: pathlib.Path) -> None:
  if directory.exists() and not directory.is_dir():
    raise CheckpointError(
      f'{directory} must be a directory of checkpoints, but is a file; remove'
      ' it, or choose another directory.'
    )
  home = directory.parent.resolve()
  if directory.is_symlink() and not directory.resolve().is_relative_to(home):
    raise CheckpointError(
      f'{directory} must not be a link out of {home}, where saves would delete'
      ' the checkpoints of other runs; move the whole run to where the link'
      ' leads.'
    )


def _check(
  metadata: dict[str, Any], check: Callable[[dict[str, Any]], object]
) -> None:
  try:
    check(metadata)
  except (KeyError, TypeError, ValueError) as error:
    raise array_files.DamagedError(
      f'its metadata is not that of a run ({error!r})'
    ) from error


def _delete(paths: Iterable[pathlib.Path]) -> None:
  for path in paths:
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path)
    else:
      path.unlink()  # Not a directory, hence not from a save.


def _check_finite(step: int, tree: types.ArrayTree) -> None:
  leaves = jax.tree.leaves(tree)
  for name, leaf in zip(array_files.describe(tree), leaves, strict=True):
    if not jnp.issubdtype(leaf.dtype, np.inexact):
      continue
    num_bad = int(np.sum(~np.isfinite(leaf)))
    if num_bad:
      raise NonFiniteError(
        f'{name} must be finite to be saved at step'
        f' {step}, but {num_bad} of its {leaf.size} numbers are not; go back to'
        ' the previous checkpoint, and lower the learning rate or clip'
        ' gradients.'
      )
