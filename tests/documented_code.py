"""Python in documents, run as users run it."""

import os
import pathlib
import re
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[1]


def read_blocks(document: pathlib.Path) -> list[str]:
  """Returns the blocks of Python in a document."""
  text = document.read_text('utf-8')
  return re.findall(r'```python\n(.*?)```', text, flags=re.DOTALL)


def run(code: str, directory: pathlib.Path, timeout_s: float) -> str:
  """Runs code in a process of its own, since tests compile unoptimized.

  Args:
    code: must end without an error.
    directory: in which it runs.
    timeout_s: that it may take.

  Returns:
    Its standard output.
  """
  environment = {**os.environ, 'PYTHONPATH': str(_ROOT)}
  environment.pop('XLA_FLAGS', None)
  (directory / 'example.py').write_text(code, 'utf-8')
  ended = subprocess.run(
    [sys.executable, 'example.py'],
    cwd=directory,
    env=environment,
    capture_output=True,
    text=True,
    timeout=timeout_s,
    check=False,
  )
  assert ended.returncode == 0, ended.stderr
  return ended.stdout
