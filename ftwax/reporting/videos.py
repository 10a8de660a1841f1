"""Animated GIFs of games."""

import io
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from ftwax.records import files

# Smaller frames are enlarged, so that there is space for captions.
_MIN_WIDTH = 320

_PAPER, _INK = (255, 255, 255), (36, 41, 47)
_MARGIN = 8

Color = tuple[int, int, int]


def add_captions(
  frames: Sequence[npt.NDArray[np.uint8]],
  lines: Sequence[Sequence[str]],
  legend: Sequence[tuple[str, Color]] = (),
) -> npt.NDArray[np.uint8]:
  """Adds lines of text above frames and a legend below them.

  Args:
    frames: T images uint8 [H, W, 3]; those narrower than 320 pixels are
      enlarged.
    lines: lines of each frame, equally many; long text gets a smaller font.
    legend: labels and the colours that they explain.

  Returns:
    uint8 [T, H', W', 3].
  """
  scale = -(-_MIN_WIDTH // frames[0].shape[1])
  height, width = scale * frames[0].shape[0], scale * frames[0].shape[1]
  longest = max((line for row in lines for line in row), key=len)
  font = _fit(longest, width)
  line_height = round(1.35 * font.size)
  top = line_height * len(lines[0]) + _MARGIN
  footer = _draw_legend(legend, width)
  shape = (len(frames), top + height + len(footer), width, 3)
  captioned = np.empty(shape, np.uint8)
  for image, frame, row in zip(captioned, frames, lines, strict=True):
    header = Image.new('RGB', (width, top), _PAPER)
    draw = ImageDraw.Draw(header)
    for index, line in enumerate(row):
      place = (_MARGIN, _MARGIN // 2 + index * line_height)
      draw.text(place, line, fill=_INK, font=font)
    image[:top] = np.asarray(header)
    image[top : top + height] = _enlarge(frame, scale)
    image[top + height :] = footer
  return captioned


def _enlarge(
  frames: npt.NDArray[np.uint8], scale: int
) -> npt.NDArray[np.uint8]:
  """Repeats the pixels of frames [..., H, W, 3] in both directions."""
  if scale == 1:
    return frames  # Spares two copies of a whole film.
  return frames.repeat(scale, axis=-3).repeat(scale, axis=-2)


def _fit(text: str, width: int) -> ImageFont.FreeTypeFont:
  """Returns the largest font between 8 and 15 in which the text fits."""
  for size in range(15, 7, -1):
    font = _font(size)
    if font.getlength(text) <= width - 2 * _MARGIN:
      break
  return font


def _font(size: int) -> ImageFont.FreeTypeFont:
  font = ImageFont.load_default(size)
  if not isinstance(font, ImageFont.FreeTypeFont):
    raise ImportError(
      'Pillow was built without FreeType; install pillow from a wheel.'
    )
  return font


def _draw_legend(
  legend: Sequence[tuple[str, Color]], width: int
) -> npt.NDArray[np.uint8]:
  """Draws labels next to squares of their colours, uint8 [H, width, 3]."""
  if not legend:
    return np.zeros((0, width, 3), np.uint8)
  font, row_height = _font(12), 18
  places, x, y = [], _MARGIN, _MARGIN // 2
  for label, _ in legend:
    size = round(font.getlength(label)) + 26
    if x > _MARGIN and x + size > width:
      x, y = _MARGIN, y + row_height
    places.append((x, y))
    x += size
  image = Image.new('RGB', (width, y + row_height + _MARGIN // 2), _PAPER)
  draw = ImageDraw.Draw(image)
  for (label, color), (x, y) in zip(legend, places, strict=True):
    draw.rectangle((x, y + 2, x + 11, y + 13), fill=color)
    draw.text((x + 16, y), label, fill=_INK, font=font)
  return np.asarray(image)


def write_gif(
  path: str | os.PathLike[str],
  frames: npt.NDArray[np.uint8],
  frames_per_second: float = 15.0,
  scale: int = 1,
) -> pathlib.Path:
  """Writes frames as a GIF that loops forever.

  The file is replaced atomically.

  Args:
    path: path of the file.
    frames: uint8 [T, H, W, 3].
    frames_per_second: at most 50; viewers fall back to 10 for faster GIFs.
    scale: factor by which frames are enlarged in both directions.

  Returns:
    The path.

  Raises:
    ValueError: if `frames` has another shape or dtype, or a number is out of
      range.
  """
  frames = np.asarray(frames)
  if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
    raise ValueError(
      f'frames ({frames.dtype} of shape {frames.shape}) must be uint8 of shape'
      ' [T, H, W, 3]; render them in this format.'
    )
  if 0 in frames.shape:
    raise ValueError(
      f'frames (shape {frames.shape}) must have at least one frame with at'
      ' least one pixel; record at least one step.'
    )
  if not 0.0 < frames_per_second <= 50.0:
    raise ValueError(
      f'frames_per_second ({frames_per_second}) must be above 0 and at most 50;'
      ' choose 15.'
    )
  if scale < 1:
    raise ValueError(f'scale ({scale}) must be at least 1; choose 1.')
  first, *rest = map(Image.fromarray, _enlarge(frames, scale))
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  content = io.BytesIO()
  first.save(
    content,
    format='GIF',
    save_all=True,
    append_images=rest,
    # GIF durations are multiples of 10 ms, and `duration` is in ms.
    duration=10 * max(round(100.0 / frames_per_second), 2),
    loop=0,
  )
  files.write_atomically(path, content.getvalue())
  return path
