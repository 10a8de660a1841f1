"""Conversion of logged values to plain numbers and to text."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# Values by name: numbers and arrays of JAX, NumPy or Python, strings, and
# images, which are NumPy arrays, uint8 [height, width, 3].
LoggingData = Mapping[str, object]


def is_image(value: object) -> bool:
  """Returns whether a value is an image."""
  return (
    isinstance(value, np.ndarray)
    and value.dtype == np.uint8
    and value.ndim == 3
    and value.shape[-1] == 3
  )


def without_images(values: LoggingData) -> dict[str, Any]:
  """Returns the values without images."""
  return {k: v for k, v in values.items() if not is_image(v)}


def to_plain(values: LoggingData) -> dict[str, Any]:
  """Converts values to Python numbers and nested lists.

  Args:
    values: numbers, arrays, strings or None, by name.

  Returns:
    A dict in the same order. Arrays of rank 0 become numbers, others lists;
    images stay arrays.

  Raises:
    TypeError: if a value is of another kind; names the first one.
  """
  return {key: _plain_value(key, value) for key, value in values.items()}


def _plain_value(key: str, value: Any) -> Any:
  if is_image(value):
    return value
  if value is None or isinstance(value, (str, float, int)):
    return value if not isinstance(value, np.generic) else value.item()
  array = np.asarray(value)
  if array.dtype.name == 'bfloat16':
    array = array.astype(np.float32)
  if array.dtype.kind not in 'biuf':
    raise TypeError(
      f'logged value {key!r} ({value!r}) must be a number, an array of numbers,'
      ' a string or None; convert it or leave it out.'
    )
  return array.item() if array.ndim == 0 else array.tolist()


def format_value(value: object) -> str:
  """Formats a plain value with four significant digits."""
  if not isinstance(value, float):
    return str(value)
  return f'{value:,.0f}' if abs(value) >= 1e4 else f'{value:.4g}'


def format_values(values: LoggingData) -> str:
  """Formats values on one line, without images."""
  plain = to_plain(without_images(values))
  return ' | '.join(f'{key} {format_value(plain[key])}' for key in plain)


def format_seconds(seconds: float) -> str:
  """Formats seconds as hours:minutes:seconds."""
  return str(datetime.timedelta(seconds=round(seconds)))


def null_non_finite(value: Any) -> Any:
  """Replaces non-finite floats by None, also in nested lists."""
  if isinstance(value, list):
    return [null_non_finite(entry) for entry in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
