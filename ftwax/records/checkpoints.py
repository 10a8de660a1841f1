"""Checkpoints that a kill, a full disk or a flipped bit cannot turn into a lie.

A directory holds one directory for each step, named by its number. A step is
written under another name and renamed when it is whole, so a kill in mid-save
leaves the step before; a step that is not as it was saved is passed over with
a warning. `ftwax.records.checkpoint_files` tells what is in a step.
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

from ftwax.records import checkpoint_files

CheckpointError = checkpoint_files.CheckpointError

# A step that is saved once more is another attempt at it.
_STEP_NAME = re.compile(r'(?P<step>\d+)(-(?P<attempt>\d+))?')
_TEMPORARY = 'tmp-'


class NonFiniteError(CheckpointError):
  """What was to be saved holds a NaN or an infinity."""


class DamagedCheckpointWarning(RuntimeWarning):
  """A step is damaged and the one before it is restored in its place."""


@dataclasses.dataclass(frozen=True)
class CheckpointingConfig:
  """When checkpoints are saved and how many are kept.

  Attributes:
    save_every_seconds: between two saves.
    max_to_keep: newest steps that are not deleted.
  """

  save_every_seconds: float = 300.0
  max_to_keep: int = 3

  def __post_init__(self):
    """Checks both."""
    if not self.save_every_seconds > 0:
      raise ValueError(
        f'save_every_seconds ({self.save_every_seconds}) must be positive;'
        ' choose float("inf") to save at the end alone.'
      )
    _check_max_to_keep(self.max_to_keep)


def _check_max_to_keep(max_to_keep: int) -> None:
  if max_to_keep < 1:
    raise ValueError(
      f'max_to_keep ({max_to_keep}) must be at least 1; 2 or more leave'
      ' something to fall back to.'
    )


class Checkpointer:
  """Saves a pytree of arrays in the background and restores it bit for bit.

  One process at a time may save into a directory; others may restore from it
  meanwhile. A context manager: close it, or a save still under way when Python
  exits may be lost.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    max_to_keep: int = 3,
    must_be_finite: Callable[[Any], Any] = lambda state: state,
  ):
    """Opens a directory; nothing is written before the first save.

    Args:
      directory: of all steps of a run.
      max_to_keep: newest steps that are not deleted.
      must_be_finite: returns the part of a state that is refused when it holds
        a NaN or an infinity; by default all of it.
    """
    _check_max_to_keep(max_to_keep)
    # Orbax takes absolute paths only.
    self._directory = pathlib.Path(directory).absolute()
    self._max_to_keep = max_to_keep
    self._must_be_finite = must_be_finite
    self._damaged: set[pathlib.Path] = set()
    self._executor = concurrent.futures.ThreadPoolExecutor(
      max_workers=1, thread_name_prefix='checkpointer'
    )
    self._saving: concurrent.futures.Future | None = None

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self.close()

  def steps(self) -> list[int]:
    """Returns the steps that were saved completely, oldest first."""
    return sorted({step for step, _, _ in self._saved()})

  def save(
    self, step: int, state: Any, metadata: Mapping[str, Any] | None = None
  ) -> None:
    """Copies `state` to the host, then saves it in the background.

    Waits for the save before, if that is still under way. When this returns,
    the caller may change or donate the arrays.

    Args:
      step: not older than the newest one saved; an equal one is replaced.
      state: a pytree of arrays and numbers.
      metadata: plain JSON: dicts with strings as keys, lists, strings, finite
        numbers, booleans, None.

    Raises:
      NonFiniteError: names the first leaf that is not finite.
      CheckpointError: if `step` is older than the newest one, or a leaf is not
        numeric.
      ValueError: if `metadata` is not plain JSON.
      Exception: if the save before failed, e.g. an OSError for want of space.
    """
    self.wait()
    step = operator.index(step)
    self._check_step(step)
    leaves = checkpoint_files.describe(state)
    metadata = checkpoint_files.check_metadata(dict(metadata or {}))
    # Copies, since on the CPU the host's view may be the device's memory.
    state = jax.tree.map(np.array, jax.device_get(state))
    _check_finite(step, self._must_be_finite(state))
    self._saving = self._executor.submit(
      self._write, step, state, leaves, metadata
    )

  def wait(self) -> None:
    """Waits for the save under way and raises what went wrong in it."""
    if self._saving is not None:
      concurrent.futures.wait([self._saving])
      saving, self._saving = self._saving, None
      saving.result()

  def close(self) -> None:
    """Waits for the save under way; no other may follow."""
    try:
      self.wait()
    finally:
      self._executor.shutdown()

  def restore(self, template: Any) -> tuple[Any, dict[str, Any]]:
    """Restores the newest step that is not damaged.

    Args:
      template: a state of the structure, shapes and dtypes of the one saved;
        `jax.ShapeDtypeStruct` leaves will do. Its leaves say what comes back:
        JAX arrays (where the template's were put, if they were put somewhere;
        never weakly typed),
        NumPy arrays or Python numbers.

    Returns:
      The state and its metadata.

    Raises:
      CheckpointError: if there is no step, if all are damaged, or if the newest
        whole one differs from `template`; names the first leaf that differs.
    """
    self.wait()
    saved = self._saved()
    for step, _, path in reversed(saved):
      try:
        return checkpoint_files.read(path, template)
      except checkpoint_files.DamagedError as error:
        self._damaged.add(path)
        warnings.warn(
          f'checkpoint of step {step} in {path} is damaged: {error}. Falling'
          ' back to the one before it.',
          DamagedCheckpointWarning,
          stacklevel=2,
        )
    if saved:
      raise CheckpointError(
        f'{self._directory} must hold a whole checkpoint, but all'
        f' {len(saved)} are damaged; restore the directory from a copy, or'
        ' start a new run.'
      )
    raise CheckpointError(
      f'{self._directory} must hold a checkpoint, but has none; give the'
      ' directory of a run that has saved one, or start a new run.'
    )

  def _saved(self) -> list[tuple[int, int, pathlib.Path]]:
    """Returns (step, attempt, path) of all that is whole, oldest first."""
    saved = []
    for path in self._directory.glob('*'):
      match = _STEP_NAME.fullmatch(path.name)
      if match:
        saved.append((int(match['step']), int(match['attempt'] or 0), path))
    return sorted(saved)

  def _check_step(self, step: int) -> None:
    whole = [s for s, _, path in self._saved() if path not in self._damaged]
    newest = max(whole, default=0)
    if step < newest:
      raise CheckpointError(
        f'step ({step}) must not be older than the newest checkpoint ({newest})'
        f' in {self._directory}; restore that one first, or save into another'
        ' directory.'
      )

  def _write(self, step: int, *content: Any) -> None:
    """Writes a step; runs in the background."""
    try:
      _delete(self._directory.glob(f'{_TEMPORARY}*'))  # Left by a kill.
      temporary = self._directory / f'{_TEMPORARY}{step}'
      checkpoint_files.write(temporary, step, *content)
      earlier = [path for s, _, path in self._saved() if s == step]
      temporary.rename(self._new_path(step))
      self._discard([*earlier, *self._damaged])
      self._damaged.clear()
      old = self._saved()[: -self._max_to_keep]
      self._discard([path for _, _, path in old])
    except BaseException:
      # Raised again by `wait`, which may come late.
      logging.exception('Saving the checkpoint of step %d failed.', step)
      raise

  def _new_path(self, step: int) -> pathlib.Path:
    attempts = [attempt for s, attempt, _ in self._saved() if s == step]
    suffix = f'-{max(attempts) + 1}' if attempts else ''
    return self._directory / f'{step:010d}{suffix}'

  def _discard(self, paths: Iterable[pathlib.Path]) -> None:
    """Deletes steps so that none is ever seen half deleted."""
    for path in {path for path in paths if path.exists()}:
      discarded = path.with_name(f'{_TEMPORARY}{path.name}-discarded')
      path.rename(discarded)
      _delete([discarded])


def _delete(paths: Iterable[pathlib.Path]) -> None:
  for path in paths:
    shutil.rmtree(path)


def _check_finite(step: int, tree: Any) -> None:
  for path, leaf in jax.tree.leaves_with_path(tree):
    if not jnp.issubdtype(leaf.dtype, np.inexact):
      continue
    num_bad = int(np.sum(~np.isfinite(leaf)))
    if num_bad:
      raise NonFiniteError(
        f'state{jax.tree_util.keystr(path)} must be finite to be saved at step'
        f' {step}, but {num_bad} of its {leaf.size} numbers are not; go back to'
        ' the checkpoint before, and lower the learning rate or clip gradients.'
      )
