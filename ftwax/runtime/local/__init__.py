"""Runs experiments in one process, with actors that run in Python."""

from typing import TYPE_CHECKING

from ftwax import submodules

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)
