"""Tables of pages are those that programs wrote, and not too old."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def figures():
  """The program that writes tables, which is outside of the package."""
  sys.path.insert(0, str(ROOT / 'benchmarks'))
  try:
    import all as module
  finally:
    sys.path.pop(0)
  return module


_VARIANT = '2 actors of 8 environments, the default'

RUN = {
  'commit': 'abc1234',
  'date': '2026-11-20',
  'machine': '2 of 2 cores, cpu, Python 3.12.1, jax 0.12',
  'load': 1.5,
  'seconds': 9,
}


@pytest.fixture
def records():
  table = {
    'title': 'Updates',
    'header': ['agent', 'ms'],
    'rows': [['ppo', '3']],
  }
  return {
    'family': [{**RUN, 'variant': '', 'seed': None, 'tables': [table]}],
    'a3c': [
      {
        **RUN,
        'variant': _VARIANT,
        'seed': seed,
        'steps': 9000,
        'mean_return': value,
      }
      for seed, value in enumerate((0.4, 0.5))
    ],  # fmt: skip
  }


def _page(figures, records):
  blocks = [
    f'<!-- figures {name} -->\n\n{figures.render(name, runs)}\n\n<!-- end -->'
    for name, runs in records.items()
  ]
  return '# Page\n\n' + '\n\n'.join(blocks) + '\n'


def test_tables_are_rendered_with_where_they_come_from(figures, records):
  page = _page(figures, records)
  assert '| agent | ms |\n| --- | --- |\n| ppo | 3 |' in page
  assert (
    f'| {_VARIANT} | 9,000 | 0.40, 0.50, not run | 0.45 (0.40 to 0.50) | 9, 9 |'
    in page
  )
  assert '`benchmarks/family.py`, commit abc1234, 2026-11-20; 2 of 2' in page
  assert not list(figures.find_faults(page, records, ''))
  assert not list(figures.find_faults(page, records, '2026-11-20'))


def test_figures_older_than_a_release_are_faults(figures, records):
  page = _page(figures, records)
  faults = list(figures.find_faults(page, records, '2026-11-21'))
  assert len(faults) == 2
  assert 'figures of family must be newer than 2026-11-21' in faults[0]


def test_figures_that_no_record_holds_are_faults(figures, records):
  page = _page(figures, records).replace('| ppo | 3 |', '| ppo | 2 |')
  (fault,) = figures.find_faults(page, records, '')
  assert 'figures of family must be those of its record' in fault
  records.pop('family')
  (fault,) = figures.find_faults(page, records, '')
  assert fault == "A table of 'Page' must have a mark."


def test_other_tables_need_a_mark(figures):
  table = '| a |\n| --- |\n| 1 |\n'
  mark = '<!-- recorded 2026-11-20 abc1234 -->\n\n'
  assert not list(figures.find_faults(f'# A\n\n{mark}{table}', {}, ''))
  (fault,) = figures.find_faults(f'# A\n\n{mark}{table}# B\n\n{table}', {}, '')
  assert fault == "A table of 'B' must have a mark."
  (fault,) = figures.find_faults(f'# A\n\n{mark}{table}', {}, '2026-11-21')
  assert 'of 2026-11-20 must be newer than 2026-11-21' in fault


def test_pages_have_no_faults(figures):
  records = {name: figures.read_record(name) for name in figures.LINES}
  release, marked = figures.release_date(), []
  for page in figures.PAGES:
    text = page.read_text('utf-8')
    if figures.FIGURES in text or figures.RECORDED in text:
      marked.append(page.name)
      assert not list(figures.find_faults(text, records, release)), page
  assert 'results.md' in marked


def test_runs_are_recorded_one_at_a_time(figures, monkeypatch, tmp_path):
  """An interrupted program goes on with the runs that are missing."""
  line = figures.Line('run.py', {'one': '', 'other': ''})
  monkeypatch.setattr(figures, 'LINES', {'mine': line})
  monkeypatch.setattr(figures, 'RECORDS', tmp_path)
  done = []

  def run(line, variant, seed):
    if len(done) == 3:
      raise KeyboardInterrupt
    done.append((variant, seed))
    return {**RUN, 'steps': 1, 'mean_return': 0.0}

  monkeypatch.setattr(figures, '_run', run)
  monkeypatch.setattr(figures, 'release_date', lambda: '2026-11-20')
  with pytest.raises(KeyboardInterrupt):
    figures.run_missing('mine')
  first = done.copy()
  done.clear()
  figures.run_missing('mine')
  assert len(first) == len(done) == 3 and not set(first) & set(done)
  assert len(json.loads((tmp_path / 'mine.json').read_text())) == 6
  monkeypatch.setattr(figures, 'release_date', lambda: '2026-11-21')
  done.clear()
  with pytest.raises(KeyboardInterrupt):
    figures.run_missing('mine')
  assert len(done) == 3
