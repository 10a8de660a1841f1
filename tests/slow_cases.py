"""Cases of a test that run by default, and those that do not."""

import pytest


def all_but(fast, cases, mark=pytest.mark.slow):
  """Returns the cases of a parameter, marked unless in `fast`."""
  return [
    pytest.param(case, marks=[mark] * (case not in fast)) for case in cases
  ]


def rows_but(fast, rows, mark=pytest.mark.ci):
  """Returns the cases of several parameters, marked unless in `fast`."""
  return [pytest.param(*row, marks=[mark] * (row not in fast)) for row in rows]
