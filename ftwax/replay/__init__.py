"""Replay: Reverb tables across processes, and pure functions on the device."""

from ftwax.replay import functional

__all__ = (
  'functional',
  'reverb',
)
