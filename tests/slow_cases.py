"""Cases of a test that run by default, and those that are slow tests."""

import pytest


def all_but(fast, cases):
  """Returns the cases of a parameter, marked as slow unless in `fast`."""
  return [
    pytest.param(case, marks=[pytest.mark.slow] * (case not in fast))
    for case in cases
  ]
