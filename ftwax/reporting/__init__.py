"""Plots and pages made from the records of a run.

They need Matplotlib, so import the modules where they are used:
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
