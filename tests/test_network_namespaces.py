"""Hosts in namespaces reach each other, and nothing of them stays."""

import subprocess
import sys

import network_namespaces

# A host that is there refuses a port on which nobody listens.
KNOCK = """
import socket, sys, time
start = time.monotonic()
try:
  socket.create_connection((sys.argv[1], 9), timeout=1)
except ConnectionRefusedError:
  print(time.monotonic() - start)
except OSError:
  print('inf')
"""


def _knock(host, other):
  """Returns the seconds until `other` answers, inf if it does not."""
  return float(host.run([sys.executable, '-S', '-c', KNOCK, other]).stdout)


def _reaches(host, other):
  return _knock(host, other) < float('inf')


def test_hosts_reach_each_other_until_the_cable_is_out():
  with network_namespaces.hosts(2) as (first, second):
    assert _reaches(first, second.address)
    assert _reaches(first, second.address_v6)
    second.set_link(up=False)
    assert not _reaches(first, second.address)
    second.set_link(up=True)
    assert any(_reaches(first, second.address) for _ in range(20))


def test_networks_of_one_process_do_not_meet():
  with (
    network_namespaces.hosts(1) as (first,),
    network_namespaces.hosts(2) as (_, second),
  ):
    assert first.name != second.name
    assert not _reaches(first, second.address)


def test_hosts_end_with_their_processes():
  with network_namespaces.hosts(1) as (host,):
    process = host.popen(['sleep', '600'])
    assert process.poll() is None
  assert process.wait(timeout=10) == -9
  listed = subprocess.run(
    ['ip', 'netns', 'list'], capture_output=True, text=True, check=True
  )
  assert host.name not in listed.stdout


def test_messages_are_delayed():
  with network_namespaces.hosts(2) as (first, second):
    first.impair(delay_ms=200.0)
    assert _reaches(first, second.address)  # Neighbours are found.
    assert _knock(first, second.address) >= 0.2
