"""Tables of pages are those that programs wrote, and not too old."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def figures():
  """The program that writes the table, which is outside of the package."""
  sys.path.insert(0, str(ROOT / 'benchmarks'))
  try:
    import all as module
  finally:
    sys.path.pop(0)
  return module


RECORD = {
  'commit': 'abc1234',
  'date': '2026-11-20',
  'machine': '2 of 2 cores, cpu, Python 3.12.1, jax 0.12',
  'load': 1.5,
}


@pytest.fixture
def records():
  table = {
    'title': 'Updates',
    'header': ['agent', 'core', 'ratio'],
    'rows': [
      ['ppo', 'LSTM', '1.85'],
      ['ppo', 'FeedForward', '0.97'],
      ['a2c', 'FeedForward', '1.02'],
      ['a2c', 'LSTM', '1.03'],
      ['impala', 'FeedForward', '1.04'],
      ['impala', 'LSTM', '1.05'],
      ['a3c', 'FeedForward', '0.66'],
    ],
  }
  return {'family': {**RECORD, 'tables': [table]}}


def _page(figures, records):
  return (
    '# Page\n\n<!-- figures speed -->\n\n'
    f'{figures.render(records)}\n\n<!-- end -->\n'
  )


def test_ratios_come_from_the_records(figures, records):
  page = _page(figures, records)
  assert '| rlax by hand | update of PPO | 0.97 |' in page
  assert '| rlax by hand | update of PPO, LSTM | 1.85 |' in page
  assert not list(figures.find_faults(page, records, ''))
  assert not list(figures.find_faults(page, records, '2026-11-20'))


def test_a_row_that_no_record_holds_is_named(figures, records):
  records['family']['tables'][0]['rows'].pop()
  with pytest.raises(LookupError, match='a3c'):
    figures.render(records)


def test_figures_older_than_a_release_are_faults(figures, records):
  page = _page(figures, records)
  (fault,) = figures.find_faults(page, records, '2026-11-21')
  assert 'record of family must be newer than 2026-11-21' in fault


def test_figures_that_no_record_holds_are_faults(figures, records):
  page = _page(figures, records).replace('0.97', '0.98')
  (fault,) = figures.find_faults(page, records, '')
  assert 'must be that of the records' in fault


def test_other_tables_need_a_mark(figures):
  table = '| a |\n| --- |\n| 1 |\n'
  mark = '<!-- recorded 2026-11-20 abc1234 -->\n\n'
  assert not list(figures.find_faults(f'# A\n\n{mark}{table}', {}, ''))
  (fault,) = figures.find_faults(f'# A\n\n{mark}{table}# B\n\n{table}', {}, '')
  assert fault == "A table of 'B' must have a mark."
  (fault,) = figures.find_faults(f'# A\n\n{mark}{table}', {}, '2026-11-21')
  assert 'of 2026-11-20 must be newer than 2026-11-21' in fault


def test_pages_have_no_faults(figures):
  records, release = figures.read_records(), figures.release_date()
  assert set(records) == {row.line for row in figures.ROWS}
  marked = []
  for page in figures.PAGES:
    text = page.read_text('utf-8')
    if figures.FIGURES in text or figures.RECORDED in text:
      marked.append(page.name)
      assert not list(figures.find_faults(text, records, release)), page
  assert {'results.md', 'which_core.md', 'paper.md'} < set(marked)


def test_lines_are_recorded_one_at_a_time(figures, monkeypatch, tmp_path):
  """An interrupted program goes on with the lines that are missing."""
  monkeypatch.setattr(figures, 'LINES', {'one': 'run.py', 'other': 'run.py'})
  monkeypatch.setattr(figures, 'RECORDS', tmp_path)
  monkeypatch.setattr(figures, 'release_date', lambda: '2026-11-20')
  done = []

  def run(line):
    done.append(line)
    return {**RECORD, 'tables': []}

  monkeypatch.setattr(figures, '_run', run)
  figures.run_missing('one')
  figures.run_missing('one')
  figures.run_missing('other')
  assert len(done) == 2
  assert json.loads((tmp_path / 'one.json').read_text())['commit'] == 'abc1234'
  monkeypatch.setattr(figures, 'release_date', lambda: '2026-11-21')
  figures.run_missing('one')
  assert len(done) == 3
