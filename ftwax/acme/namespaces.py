"""A network namespace for the nodes of a Launchpad program.

Courier runs what it unpickles, for whoever reaches its ports. In a namespace
that holds nothing but the nodes, neither other users of the machine nor other
machines do. It needs no privileges where the kernel lets users make namespaces.
"""

import contextlib
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from ftwax.acme import loopback

# Turns the loopback interface on (SIOCSIFFLAGS, IFF_UP and IFF_RUNNING), says
# so, and holds the namespace until standard input ends.
_HOLD = """
import fcntl, socket, struct, sys
with socket.socket() as any_socket:
  flags = struct.pack('16sh14x', b'lo', 0x41)
  fcntl.ioctl(any_socket, 0x8914, flags)
print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def make_interpreter() -> Iterator[str]:
  """Makes a namespace; yields a command like Python, which runs inside.

  The namespace ends with this process and those that it has started inside.

  Raises:
    ExposedError: if the system makes none.
  """
  with contextlib.ExitStack() as stack:
    try:
      holder = subprocess.Popen(
        ['unshare', '--user', '--map-root-user', '--net']
        + [sys.executable, '-I', '-S', '-c', _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
    except OSError as error:
      raise _refusal(str(error)) from error
    stack.callback(holder.communicate)
    if not (holder.stdout and holder.stdout.readline()):
      raise _refusal(holder.communicate()[1].strip() or 'it ended')
    folder = pathlib.Path(tempfile.mkdtemp())
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    script = folder / 'python'
    script.write_text(
      '#!/bin/sh\nexec nsenter --preserve-credentials --user --net'
      f' --target {holder.pid} {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o700)
    yield str(script)


def _refusal(reason: str) -> loopback.ExposedError:
  return loopback.ExposedError(
    'ports of Courier and Reverb must be closed to other users of this machine,'
    ' who could run code as you, but no network namespace can be made here'
    f' ({reason}); choose --expose (expose=True) if you trust all who reach'
    ' this machine, or a newer Python, where Ray asks for a token.'
  )
