"""No agent: the speed of a training program, from a short and a long run."""

import json
import os
import resource
import subprocess
import sys
import tempfile


def print_speed(command, num_steps):
  """Trains twice, and prints the steps in a second of the processor as JSON.

  Steps and seconds are those of the longer run less those of the shorter, so
  that imports are not counted. Each run has a directory of its own.

  Args:
    command: from a number of steps to the arguments of Python.
    num_steps: steps of the shorter run, half of those of the longer.
  """
  seconds = _train(command(2 * num_steps)) - _train(command(num_steps))
  print(json.dumps({'steps_per_second': num_steps / seconds}))


def _train(arguments):
  """Trains, and returns the seconds of the processor."""
  before = _processor_seconds()
  with tempfile.TemporaryDirectory() as directory:
    ended = subprocess.run(
      [sys.executable, *arguments],
      check=False,
      cwd=directory,
      env={**os.environ, 'OMP_NUM_THREADS': '1'},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
    )
    if ended.returncode:
      raise RuntimeError(f'{arguments} failed: {ended.stderr[-2000:]}')
  return _processor_seconds() - before


def _processor_seconds():
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime
