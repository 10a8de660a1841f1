"""Plots and pages made from the records of a run.

The modules need Matplotlib, so import them where they are used:
`ftwax.reporting.report`, `ftwax.reporting.curves`.
"""

from typing import TYPE_CHECKING

from ftwax import submodules

if TYPE_CHECKING:
  from ftwax.reporting import comparison, curves, history, report, videos
else:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'comparison',
  'curves',
  'history',
  'report',
  'videos',
)
