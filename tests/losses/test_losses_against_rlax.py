import pathlib
import subprocess
import sys


def test_losses_equal_those_of_rlax():
  directory = pathlib.Path(__file__).parent
  result = subprocess.run(
    [sys.executable, directory / 'rlax_oracle.py'],
    cwd=directory,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip().endswith('10')
