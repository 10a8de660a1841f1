"""Sentences of `docs/coming_from/`, for the tests that try them.

The folder has a page for each of three systems that this library implements
anew: every name, argument and default, and what behaves differently.
"""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted((ROOT / 'docs' / 'coming_from').glob('*.md'))


def read():
  """Returns the pages, with one space between words."""
  texts = [page.read_text('utf-8') for page in PAGES]
  return re.sub(r'\s+', ' ', '\n'.join(texts))


def says(*sentences):
  """Returns a decorator of a test that tries sentences of the pages."""

  def decorate(test):
    @functools.wraps(test)
    def wrapped(*args, **kwargs):
      pages = read()
      for sentence in sentences:
        assert sentence in pages, sentence
      test(*args, **kwargs)

    return wrapped

  return decorate
