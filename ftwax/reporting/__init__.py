"""Plots and pages made from the records of a run.

The modules need Matplotlib, so import them where they are used:
`ftwax.reporting.report`, `ftwax.reporting.curves`.
"""

__all__ = (
  'comparison',
  'curves',
  'history',
  'report',
  'videos',
)
