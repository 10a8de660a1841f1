"""Distributed runs: a coordinator, learners, actors and an evaluator.

They are plain classes, which an engine places: Ray, on one machine or many, or
Launchpad on Python 3.10.
"""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.runtime.distributed.engine import (
  Engine,
  NodeFailedError,
  NodeLostError,
)
from ftwax.runtime.distributed.run import run_experiment
from ftwax.runtime.distributed.settings import Settings

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'Engine',
  'NodeFailedError',
  'NodeLostError',
  'Settings',
  'run_experiment',
)
