"""Cases of a test: quick ones, those of `.ci/run`, and slow ones."""

import pytest


def marks(case, quick, ci=None):
  """Returns the mark of a case: none, `ci` or `slow`.

  Args:
    case: the case.
    quick: those that run by default.
    ci: those that `.ci/run` runs too; None for all. The others are slow.
  """
  if case in quick:
    return []
  return [pytest.mark.ci if ci is None or case in ci else pytest.mark.slow]


def cases(every, quick, ci=None):
  """Returns the cases of one parameter, marked as `marks` does."""
  return [pytest.param(case, marks=marks(case, quick, ci)) for case in every]


def rows(every, quick, ci=None):
  """Returns the cases of several parameters, marked as `marks` does."""
  return [pytest.param(*row, marks=marks(row, quick, ci)) for row in every]
