"""What is logged: from arrays to plain numbers, and to text for people."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# Numbers and arrays (of JAX, NumPy or plain Python) by name; strings pass too,
# and pictures: NumPy arrays uint8 [height, width, 3].
LoggingData = Mapping[str, Any]


def is_picture(value: Any) -> bool:
  """Returns whether a value is a picture."""
  return (
    isinstance(value, np.ndarray)
    and value.dtype == np.uint8
    and value.ndim == 3
    and value.shape[-1] == 3
  )


def without_pictures(values: LoggingData) -> dict[str, Any]:
  """Returns the values that are no pictures."""
  return {k: v for k, v in values.items() if not is_picture(v)}


def to_plain(values: LoggingData) -> dict[str, Any]:
  """Turns the values into Python numbers and lists of such.

  Args:
    values: numbers, arrays, strings or None by name.

  Returns:
    A dict in the same order. Arrays without axes are numbers, others lists;
    pictures stay arrays.

  Raises:
    TypeError: names the first value that is none of these.
  """
  return {key: _plain_value(key, value) for key, value in values.items()}


def _plain_value(key: str, value: Any) -> Any:
  if is_picture(value):
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


def format_value(value: Any) -> str:
  """Formats a plain value for people."""
  if not isinstance(value, float):
    return str(value)
  return f'{value:,.0f}' if abs(value) >= 1e4 else f'{value:.4g}'


def format_values(values: LoggingData) -> str:
  """Formats `values` for people, on one line, without pictures."""
  plain = to_plain(without_pictures(values))
  return ' | '.join(f'{key} {format_value(plain[key])}' for key in plain)


def format_seconds(seconds: float) -> str:
  """Formats a span of time for people: hours:minutes:seconds."""
  return str(datetime.timedelta(seconds=round(seconds)))


def null_non_finite(value: Any) -> Any:
  """Replaces floats that are not finite, at any depth of lists, by None."""
  if isinstance(value, list):
    return [null_non_finite(entry) for entry in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
