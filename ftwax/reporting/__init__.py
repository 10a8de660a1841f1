"""Plots and pages made from the records of a run.

The modules need Matplotlib, so import them where they are used:
`ftwax.reporting.report`, `ftwax.reporting.curves`.
"""

__all__ = (
  'comparison_curves',
  'curves',
  'history',
  'report',
  'run_comparison',
  'videos',
)
