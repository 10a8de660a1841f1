"""Sentences of `docs/coming_from.md`, for the tests that try them."""

import functools
import pathlib
import re

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'coming_from.md'


def read():
  """Returns the page, with one space between words."""
  return re.sub(r'\s+', ' ', PAGE.read_text('utf-8'))


def says(*sentences):
  """Returns a decorator of a test that tries sentences of the page."""

  def decorate(test):
    @functools.wraps(test)
    def wrapped(*args, **kwargs):
      page = read()
      for sentence in sentences:
        assert sentence in page, sentence
      test(*args, **kwargs)

    return wrapped

  return decorate
