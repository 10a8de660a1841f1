"""Identifiers as words, for pages and lines."""

import os
import re

# Words that are written in capitals.
_CAPITALS = re.compile(r'\b(i|kl|gae|rms)\b')


def readable(name: str) -> str:
  """Converts an identifier to words, e.g. `i_was_tagged` to `I was tagged`.

  Non-UTF-8 bytes of a path become replacement characters, which fonts support.
  """
  words = os.fsencode(name).decode('utf-8', 'replace').replace('_', ' ')
  return _CAPITALS.sub(lambda match: match[0].upper(), words)
