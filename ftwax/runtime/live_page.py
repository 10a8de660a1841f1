"""The page that follows a run while it trains, in a process of its own.

The process reads what the run writes, yields its share of the processor to the
run, and ends with the program, since its standard input does. What becomes of
it does not touch the run.
"""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading

# Of the extra `web`.
_PACKAGES = ('anyio', 'plotly', 'starlette', 'uvicorn', 'websockets')

# What `nice` adds: the run goes first.
_NICENESS = 10

_END_S = 5.0


def check() -> None:
  """Checks that pages can be served.

  Raises:
    ImportError: if a package that they need is not installed.
  """
  missing = [name for name in _PACKAGES if not importlib.util.find_spec(name)]
  if missing:
    raise ImportError(
      f'watch (True) needs packages that are not installed ({missing}); run'
      " `uv sync`, or `pip install -c constraints.txt -e '.[web]'`, in a clone;"
      ' or leave out --watch.'
    )


def start(directory: pathlib.Path) -> None:
  """Serves the page of a run until this program ends, and prints its link.

  Args:
    directory: of the run.
  """
  process = subprocess.Popen(
    [
      sys.executable, '-m', 'ftwax', 'watch', os.fspath(directory),
      '--end_with_input',
    ],
    # Accelerators are the run's, and Ctrl-C is not for the page.
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    start_new_session=True,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
  )  # fmt: skip
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
  """Prints the link, and why the page ended if it did so by itself."""
  assert process.stdout is not None
  last = ''
  for line in process.stdout:
    last = line.strip() or last
    if 'http://' in line and not ends.is_set():
      print(f'The run in the browser: {last}', flush=True)
  if not ends.is_set():
    print(
      f'The page of the run ended ({last}); the run goes on. Open it again by'
      f' `ftwax watch {directory}`.',
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
  with contextlib.suppress(OSError):  # Nobody reads any more.
    print(f'`ftwax watch {directory}` opens the page of the run again.')
