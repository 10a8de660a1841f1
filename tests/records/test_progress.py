import io
import re

import pytest
import rich.console

from ftwax.records import progress


class _Clock:
  """Tells the time it is set to."""

  def __init__(self):
    self.now = 0.0

  def __call__(self):
    return self.now


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def _run_plain(stream, times_and_steps, **kwargs):
  clock = _Clock()
  with progress.Progress(1_000, stream=stream, clock=clock, **kwargs) as shell:
    for clock.now, steps in times_and_steps:
      shell.update(steps, episode_return=steps / 8)


def test_plain_lines_on_no_terminal():
  stream = io.StringIO()
  _run_plain(stream, [(1.0, 10), (10.0, 100), (15.0, 300), (20.0, 600)])
  assert stream.getvalue().splitlines() == [
    'training: 100 of 1,000 steps (10.0%) | 10 steps/s | ETA 0:01:30'
    ' | episode_return 12.5',
    'training: 600 of 1,000 steps (60.0%) | 50 steps/s | ETA 0:00:08'
    ' | episode_return 75',
    'training: 600 of 1,000 steps (60.0%) | 30 steps/s | took 0:00:20'
    ' | episode_return 75',
  ]


def test_plain_lines_are_at_most_one_in_min_seconds():
  stream = io.StringIO()
  _run_plain(stream, [(t / 10, t) for t in range(1_000)], min_seconds=25.0)
  # At 25, 50 and 75 seconds, and at the end.
  assert len(stream.getvalue().splitlines()) == 4


def test_no_control_characters_on_no_terminal(capsys, monkeypatch):
  monkeypatch.setenv('FORCE_COLOR', '1')
  clock = _Clock()
  with progress.Progress(100, min_seconds=1.0, clock=clock) as shell:
    for clock.now in range(10):
      shell.update(10 * int(clock.now), episode_return=1.0)
  output = capsys.readouterr()
  assert output.out.count('\n') == 10
  assert not re.search(r'[^\x20-\x7e\n]', output.out)
  assert output.err == ''


def test_earlier_sessions_count_as_steps_but_not_as_speed():
  stream = io.StringIO()
  _run_plain(stream, [(0.0, 500), (10.0, 600)], initial_steps=500)
  assert stream.getvalue().startswith(
    'training: 600 of 1,000 steps (60.0%) | 10 steps/s | ETA 0:00:40'
  )


def test_compiling_does_not_count_as_speed():
  stream = io.StringIO()
  _run_plain(stream, [(60.0, 1), (70.0, 101)])
  lines = stream.getvalue().splitlines()
  assert 'steps/s' not in lines[0] and 'ETA' not in lines[0]
  assert '| 10 steps/s | ETA 0:01:30' in lines[1]


def test_the_time_left_counts_from_the_last_call_that_compiled():
  stream = io.StringIO()
  compiled = {1.0: 3, 60.0: 4}
  clock = _Clock()
  with progress.Progress(
    1_000, stream=stream, clock=clock,
    num_compiled=lambda: max(n for t, n in compiled.items() if t <= clock.now),
  ) as display:  # fmt: skip
    # The first update of the learner compiles, too.
    for clock.now, steps in ((1.0, 5), (60.0, 10), (65.0, 60), (71.0, 120)):
      display.update(steps)
  lines = stream.getvalue().splitlines()
  assert 'ETA' not in lines[0]
  assert '10 steps/s | ETA 0:01:28' in lines[1]


def test_a_bar_forgets_the_speed_of_calls_that_compiled():
  file = io.StringIO()
  console = rich.console.Console(
    file=file, force_terminal=True, width=160, color_system=None
  )
  compiled = iter((1, 1, 2))
  with progress.Progress(
    1_000, label='game', console=console, num_compiled=lambda: next(compiled)
  ) as display:
    assert 'game: starting' in file.getvalue()
    display.update(10)
    display.update(500)
    display.update(510)
  plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', file.getvalue())
  last = plain.strip().splitlines()[-1]
  assert 'steps/s' not in last and '-:--:--' in last and 'starting' not in last


def test_no_progress_has_no_eta():
  stream = io.StringIO()
  _run_plain(stream, [(0.0, 0), (10.0, 0)])
  assert '| 0 steps/s | ETA unknown |' in stream.getvalue()


def test_last_line_appears_after_an_error():
  stream = io.StringIO()
  with pytest.raises(KeyError), progress.Progress(10, stream=stream) as shell:
    shell.update(5)
    raise KeyError('a')
  assert '5 of 10 steps (50.0%)' in stream.getvalue()
  assert not stream.getvalue().endswith('| \n')


def test_bar_on_a_terminal():
  file = io.StringIO()
  console = rich.console.Console(
    file=file, force_terminal=True, width=160, color_system=None
  )
  with progress.Progress(1_000, label='[ctf]', console=console) as shell:
    for steps in (10, 200, 500):
      shell.update(steps, episode_return=steps / 200)
    console.print('a line above the bar')
  output = file.getvalue()
  assert '\x1b[' in output
  assert 'a line above the bar' in output
  plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', output)
  last = plain.strip().splitlines()[-1]
  for part in ('[ctf]', '500/1,000', 'steps/s', 'episode_return 2.5'):
    assert part in last


@pytest.mark.parametrize('width', [30, 70, 130])
def test_a_bar_fits_its_terminal(width):
  file = io.StringIO()
  console = rich.console.Console(
    file=file, force_terminal=True, width=width, color_system=None
  )
  with progress.Progress(8_000_000, label='game', console=console) as shell:
    for steps in (1_000_000, 2_000_000):
      shell.update(steps, mean_return=1.0)
  plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', file.getvalue())
  last = plain.strip().splitlines()[-1]
  assert len(last) <= width
  assert '\u2026' not in last  # Nothing is cut off.
  assert ('25%' in last) == (width < 130)
  assert ('2,000,000/8,000,000' in last) == (width == 130)


def test_console_that_is_no_terminal_gets_plain_lines():
  file = io.StringIO()
  console = rich.console.Console(file=file, force_terminal=False)
  with progress.Progress(10, console=console) as shell:
    shell.update(10)
  assert file.getvalue().startswith('training: 10 of 10 steps (100.0%)')
  assert '\x1b' not in file.getvalue()


@pytest.mark.parametrize(
  ('term', 'escapes'), [('xterm', True), ('dumb', False)]
)
def test_stream_decides_unless_the_terminal_is_dumb(monkeypatch, term, escapes):
  monkeypatch.setenv('TERM', term)
  stream = _Terminal()
  with progress.Progress(10, stream=stream) as shell:
    shell.update(5)
  assert ('\x1b[' in stream.getvalue()) == escapes


def test_update_outside_with_says_what_to_do():
  shell = progress.Progress(10)
  with pytest.raises(RuntimeError, match=r"Progress of 'training' must be ent"):
    shell.update(1)


def test_refuses_no_steps():
  with pytest.raises(ValueError, match=r'total_steps \(0\) must be positive'):
    progress.Progress(0)


def test_unknown_means_and_more_than_all_steps_are_not_shown():
  stream = io.StringIO()
  with progress.Progress(4_000, stream=stream) as display:
    display.update(5_536, mean_return=float('nan'), learner_steps=3)
  line = stream.getvalue()
  assert '5,536 of 4,000 steps (100.0%)' in line
  assert 'nan' not in line and 'learner_steps 3' in line
