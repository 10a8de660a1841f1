"""Serves a web page that follows a training run, in a separate process.

The process reads the files that the run writes, runs at low priority, and ends
with the program, when its standard input closes. Its failures do not affect the
run.
"""

import atexit
import contextlib
import os
import pathlib
import subprocess
import sys
import threading

from ftwax import extras, import_guard

# Packages of the extra `web`.
_PACKAGES = ('anyio', 'starlette', 'uvicorn', 'websockets')

# Niceness added to the page's process, so that the run takes precedence.
_NICENESS = 10

_END_S = 5.0


# Not `-m ftwax`, for which Python would look in the current directory first.
_SCRIPT = (
  'import sys; sys.path[:] = {}; from ftwax.cli import commands;'
  ' sys.exit(commands.main(sys.argv[1:]))'
)


def check() -> None:
  """Checks that pages can be served.

  Raises:
    ImportError: if a required package is not installed.
  """
  missing = [name for name in _PACKAGES if not import_guard.is_installed(name)]
  if missing:
    raise ImportError(
      f'watch (True) needs packages that are not installed ({missing}); run'
      f' {extras.install("web")}, or leave out --watch.'
    )


def start(directory: pathlib.Path) -> None:
  """Serves the page of a run until this program ends, and prints its link.

  Args:
    directory: directory of the run.
  """
  process = subprocess.Popen(
    [
      sys.executable, '-c', _SCRIPT.format(sys.path), 'watch',
      os.fspath(directory), '--end_with_input',
    ],
    # Leave accelerators to the run, and shield the page from Ctrl-C.
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    start_new_session=True,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
  )  # fmt: skip
  if hasattr(os, 'setpriority'):  # Not on Windows.
    os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
  ends = threading.Event()
  threading.Thread(
    target=_tell, args=(process, directory, ends), daemon=True
  ).start()
  atexit.register(_end, process, directory, ends)


def _tell(
  process: subprocess.Popen[str],
  directory: pathlib.Path,
  ends: threading.Event,
) -> None:
  """Prints the link, and the reason if the page ends prematurely."""
  assert process.stdout is not None
  last = ''
  for line in process.stdout:
    last = line.strip() or last
    if 'http://' in line and not ends.is_set():
      print(f'Live page: {last.removeprefix("Open ")}', flush=True)
  if not ends.is_set():
    print(
      f'The web page of the run ended ({last}); the run continues. Open the'
      f' page again with `ftwax watch {directory}`.',
      flush=True,
    )


def _end(
  process: subprocess.Popen[str],
  directory: pathlib.Path,
  ends: threading.Event,
) -> None:
  ends.set()
  assert process.stdin is not None
  process.stdin.close()
  try:
    process.wait(_END_S)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()
  with contextlib.suppress(OSError):  # Standard output is closed.
    print(f'`ftwax watch {directory}` opens the page of the run again.')
