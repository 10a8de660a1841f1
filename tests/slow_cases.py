"""Cases of a test that run by default, and those that do not."""

import pytest

CI = pytest.mark.ci


def all_but(fast, cases, mark=pytest.mark.slow):
  """Returns the cases of a parameter, marked unless in `fast`."""
  return [
    pytest.param(case, marks=[mark] * (case not in fast)) for case in cases
  ]


def rows_but(fast, rows, mark=CI):
  """Returns the cases of several parameters, marked unless in `fast`."""
  return [pytest.param(*row, marks=[mark] * (row not in fast)) for row in rows]
