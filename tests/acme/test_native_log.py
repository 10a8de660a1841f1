"""Reverb's log lines that tell nothing are dropped, all others pass."""

import os
import tempfile

import pytest
import reverb

from ftwax.acme import native_log, servers


def test_noise_is_dropped_and_the_rest_passes(capfd):
  with native_log.filtered():
    os.write(2, b'[reverb/cc/server.cc:71] Started replay server on port 1\n')
    os.write(2, b'[reverb/cc/table.cc:9] Table is full\n')
    os.write(2, b'Started replay server on port 1\n')
  os.write(2, b'after\n')
  assert capfd.readouterr().err == (
    '[reverb/cc/table.cc:9] Table is full\n'
    'Started replay server on port 1\nafter\n'
  )


def test_what_an_error_left_passes_too(capfd):
  with pytest.raises(OSError, match='broken'), native_log.filtered():
    os.write(2, b'the cause\n')
    raise OSError('broken')
  assert capfd.readouterr().err == 'the cause\n'


def test_servers_start_and_stop_in_silence_and_leave_nothing(
  capfd, tmp_path, monkeypatch
):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  servers.stop(servers.make_server([reverb.Table.queue('queue', 1)]))
  assert capfd.readouterr().err == ''
  assert list(tmp_path.iterdir()) == []
