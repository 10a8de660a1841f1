"""Runs environment, actor and learner in one compiled function."""

from typing import TYPE_CHECKING

from ftwax import submodules

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)
