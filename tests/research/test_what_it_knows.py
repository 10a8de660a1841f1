import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = str(ROOT / 'research' / 'what_it_knows.py')


def _run(*arguments):
  return subprocess.run(
    [sys.executable, SCRIPT, *arguments],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.mark.slow
def test_the_population_of_the_library_is_probed(tmp_path):
  done = _run('capture_the_flag', '--num_games=6', f'--directory={tmp_path}')
  assert done.returncode == 0, done.stderr
  text = (tmp_path / 'what_it_knows.html').read_text('utf-8')
  assert text.count('<img') == 3
  for question in ('Do I carry the flag?', 'Is our flag lying on the ground?'):
    assert question in text and question in done.stdout
  (line,) = [
    line for line in done.stdout.splitlines() if line.startswith('Do I carry')
  ]
  majority, accuracy, *_ = map(float, line.split('?')[1].split())
  assert accuracy > majority


@pytest.mark.slow
def test_a_script_that_the_game_lacks(tmp_path):
  done = _run('capture_the_flag', '--opponent=nobody')
  assert done.returncode == 1
  assert '--opponent (nobody) must be one of' in done.stderr
