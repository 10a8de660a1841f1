"""Animated GIFs of games."""

import os
import pathlib

import numpy as np
import numpy.typing as npt
from PIL import Image


def write_gif(
  path: str | os.PathLike[str],
  frames: npt.NDArray[np.uint8],
  frames_per_second: float = 15.0,
  scale: int = 1,
) -> pathlib.Path:
  """Writes frames as a GIF that repeats for ever.

  Readers see the old file or the new one, never half of it.

  Args:
    path: of the file.
    frames: uint8 [T, H, W, 3].
    frames_per_second: at most 50, above which viewers fall back to 10.
    scale: number of times that each pixel is repeated in both directions.

  Returns:
    The path.

  Raises:
    ValueError: if `frames` is of another shape or dtype, or a number is out of
      its range.
  """
  frames = np.asarray(frames)
  if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
    raise ValueError(
      f'frames ({frames.dtype} of shape {frames.shape}) must be uint8 of shape'
      ' [T, H, W, 3]; render them so.'
    )
  if 0 in frames.shape:
    raise ValueError(
      f'frames (shape {frames.shape}) must have at least one frame with a'
      ' pixel; play for a step.'
    )
  if not 0.0 < frames_per_second <= 50.0:
    raise ValueError(
      f'frames_per_second ({frames_per_second}) must be above 0 and at most 50;'
      ' choose 15.'
    )
  if scale < 1:
    raise ValueError(f'scale ({scale}) must be at least 1; choose 1.')
  frames = frames.repeat(scale, axis=1).repeat(scale, axis=2)
  first, *rest = [Image.fromarray(frame) for frame in frames]
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.tmp')
  first.save(
    temporary,
    format='GIF',
    save_all=True,
    append_images=rest,
    # GIFs count in hundredths of a second.
    duration=10 * max(round(100.0 / frames_per_second), 2),
    loop=0,
  )
  temporary.replace(path)
  return path
