"""Signals wait until a run asks for them."""

import os
import signal

import pytest

from ftwax.runtime import signals


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM', 'SIGHUP'])
def test_a_signal_waits(name):
  signum = signal.Signals[name]
  before = signal.getsignal(signum)
  with signals.deferred_interrupts() as check:
    check()
    os.kill(os.getpid(), signum)
    with pytest.raises(KeyboardInterrupt, match=name):
      check()
  assert signal.getsignal(signum) is before


def test_what_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with signals.deferred_interrupts() as check:
      os.kill(os.getpid(), signal.SIGHUP)
      check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)
