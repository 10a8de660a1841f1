"""Logs values as TensorBoard events."""

import io
import os
import pathlib
import sys
import time
from typing import Any

from ftwax import import_guard
from ftwax.records import log_values


class TensorBoardLogger:
  """Writes scalars, vectors entry by entry, and images to TensorBoard.

  Names are `label/key`, or `label/key/i` for the entries of a vector. Strings
  and arrays of higher rank are left out. Events are flushed when `write`
  returns.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    label: str,
    steps_key: str | None = None,
  ):
    """Opens a new event file.

    Args:
      directory: directory used only by this logger.
      label: prefix of every name.
      steps_key: name of the value on the time axis; if None, or missing in a
        row, the number of writes is used.
    """
    # Slow to import, and only needed if this logger is used.
    # tensorboardX would load torch, 560 MB, for a type annotation.
    modules: dict[str, Any] = sys.modules
    hidden = {'torch'} - modules.keys()
    modules.update(dict.fromkeys(hidden))
    try:
      with import_guard.guarded():
        from tensorboardX import event_file_writer
        from tensorboardX.proto import event_pb2, summary_pb2
    finally:
      for name in hidden:
        del modules[name]

    self._make_event = event_pb2.Event
    self._make_summary = summary_pb2.Summary
    self._label = label
    self._steps_key = steps_key
    self._num_writes = 0
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    # `EventsWriter` starts no thread. The suffix keeps two writers opened in
    # the same second from sharing a file.
    self._writer = event_file_writer.EventsWriter(
      os.path.join(directory, 'events'), f'.{time.time_ns()}'
    )

  def write(self, values: log_values.LoggingData) -> None:
    """Writes one event."""
    plain = log_values.to_plain(values)
    steps = plain.get(self._steps_key) if self._steps_key else None
    step = self._num_writes if steps is None else int(steps)
    self._num_writes += 1
    summary = self._make_summary(
      value=[
        self._make_summary.Value(tag=f'{self._label}/{tag}', **content)
        for key in plain
        for tag, content in self._contents(key, plain[key])
      ]
    )
    event = self._make_event(wall_time=time.time(), step=step, summary=summary)
    self._writer.write_event(event)
    self._writer.flush()

  def close(self) -> None:
    """Closes the event file."""
    self._writer.close()

  def _contents(self, key: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Returns the tags of a value and the fields of each tag's summary."""
    if log_values.is_image(value):
      with import_guard.guarded():
        from PIL import Image  # Slow to import, and seldom needed.

      height, width, _ = value.shape
      png = io.BytesIO()
      Image.fromarray(value).save(png, 'png')
      image = self._make_summary.Image(
        height=height,
        width=width,
        colorspace=3,
        encoded_image_string=png.getvalue(),
      )
      return [(key, {'image': image})]
    if isinstance(value, list):
      return [
        (f'{key}/{index}', {'simple_value': entry})
        for index, entry in enumerate(value)
        if not isinstance(entry, list)
      ]
    if value is None or isinstance(value, str):
      return []
    return [(key, {'simple_value': value})]
