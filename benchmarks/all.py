r"""Runs the commands behind the table of speeds, and writes it.

    uv run --with rlax --with flashbax --with gymnax --with sb3-contrib \
      benchmarks/all.py --lines local purejaxrl family replay
    uv run --python 3.10 benchmarks/all.py --lines reverb
    uv run benchmarks/all.py --write

A line is a benchmark. Lines run one at a time, and the tables of each are
recorded at once in `records/LINE.json` with commit, date, machine and versions,
so that the same command continues after an interruption. A line that was
measured since the last release is not run again, unless its record is deleted.
`--write` runs nothing. `$PUREJAXRL` and `$CLEANRL` must be clones of PureJaxRL
and CleanRL for lines that name them, since neither is a package.

The page has the table between `<!-- figures speed -->` and `<!-- end -->`. Any
other table of figures follows a mark `<!-- recorded DATE COMMIT -->`.
`tests/test_figures.py` fails for tables without a mark, for changed ones, and
for figures older than the last release.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import common

ROOT = pathlib.Path(__file__).parents[1]
RECORDS = pathlib.Path(__file__).parent / 'records'
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md')))

# Prefixes of the marks.
FIGURES, RECORDED, END = '<!-- figures ', '<!-- recorded ', '<!-- end -->'

_BLOCK = re.compile(rf'{FIGURES}speed -->\n(?P<block>.*?){END}', re.DOTALL)
_RELEASE = re.compile(r'^## \S+, (\d{4}-\d\d-\d\d)$', re.MULTILINE)

LINES: Mapping[str, str] = {
  'local': 'benchmarks/local.py --cleanrl=$CLEANRL',
  'purejaxrl': ('benchmarks/device.py --rounds=3 --purejaxrl=$PUREJAXRL'),
  'family': 'benchmarks/family.py',
  'replay': 'benchmarks/replay.py',
  'reverb': 'benchmarks/replay.py --rival=reverb',
}


class Row(NamedTuple):
  """A row of the page's table.

  Attributes:
    peer: the other library.
    what: the work that both do.
    line: the line of the record with the ratio.
    cells: the first cells of the record's row.
    columns: of the ratio and, where it has columns of its own, of its range.
  """

  peer: str
  what: str
  line: str
  cells: tuple[str, ...]
  columns: tuple[str, ...] = ('ratio',)


_RANGE = ('rival / ftwax', 'least', 'most')
ROWS = (
  Row(
    'Stable-Baselines3', 'PPO, local', 'local',
    ('feed_forward', 'Stable-Baselines3'),
  ),
  Row('CleanRL', 'PPO, local', 'local', ('feed_forward', 'CleanRL')),
  Row('sb3-contrib', 'recurrent PPO, local', 'local', ('lstm',)),
  Row(
    'sample-factory', 'PPO, local', 'local', ('feed_forward', 'sample-factory')
  ),
  Row('PureJaxRL', 'PPO, CartPole', 'purejaxrl', ('CartPole-v1', '1')),
  Row('PureJaxRL', 'PPO, MinAtar Breakout', 'purejaxrl', ('Breakout-MinAtar',)),
  Row('rlax by hand', 'update of PPO', 'family', ('ppo', 'FeedForward')),
  Row('rlax by hand', 'update of PPO, LSTM', 'family', ('ppo', 'LSTM')),
  Row('rlax by hand', 'update of A2C', 'family', ('a2c', 'FeedForward')),
  Row('rlax by hand', 'update of A2C, LSTM', 'family', ('a2c', 'LSTM')),
  Row('rlax by hand', 'update of A3C', 'family', ('a3c', 'FeedForward')),
  Row('rlax by hand', 'update of IMPALA', 'family', ('impala', 'FeedForward')),
  Row('rlax by hand', 'update of IMPALA, LSTM', 'family', ('impala', 'LSTM')),
  Row(
    'flashbax', 'add', 'replay', ('trajectory add, 16 env, 8 steps',), _RANGE
  ),
  Row(
    'flashbax', 'sample', 'replay', ('trajectory sample, 16 env, 8 steps',),
    _RANGE,
  ),
  Row(
    'flashbax', 'sample by priority', 'replay',
    ('prioritized sample, 16 env, 8 steps',), _RANGE,
  ),
  Row('Reverb', 'add', 'reverb', ('prioritized add, flushed',), _RANGE),
  Row('Reverb', 'sample', 'reverb', ('prioritized sample',), _RANGE),
)  # fmt: skip


def run_missing(name: str) -> None:
  """Runs a line if its record is missing or stale, and records it."""
  record = read_record(name)
  if record and not is_stale(record['date'], release_date()):
    return
  print(name, flush=True)
  RECORDS.mkdir(exist_ok=True)
  record = _run(LINES[name])
  (RECORDS / f'{name}.json').write_text(
    json.dumps(record, indent=1) + '\n', 'utf-8'
  )


def _run(line: str) -> dict[str, Any]:
  """Runs a command once and returns what to record."""
  with tempfile.TemporaryDirectory() as folder:
    tables = pathlib.Path(folder) / 'tables.jsonl'
    command = os.path.expandvars(line).split()
    about = {
      'commit': common.commit(),
      'date': datetime.date.today().isoformat(),
      'machine': common.machine(),
      'load': round(os.getloadavg()[0], 1),
    }
    subprocess.run(
      [sys.executable, str(ROOT / command[0]), *command[1:]],
      cwd=folder,
      env={**os.environ, common.TABLES_FILE: str(tables)},
      check=True,
    )
    return {
      **about,
      'tables': [json.loads(text) for text in tables.open(encoding='utf-8')],
    }


def read_record(name: str) -> dict[str, Any]:
  """Returns the record of a line; empty if there is none."""
  path = RECORDS / f'{name}.json'
  return json.loads(path.read_text('utf-8')) if path.exists() else {}


def release_date() -> str:
  """Returns the date of the last release; '' if there has been none."""
  dates = _RELEASE.findall((ROOT / 'CHANGELOG.md').read_text('utf-8'))
  return max(dates, default='')


def is_stale(date: str, release: str) -> bool:
  """Returns whether figures of a date are older than a release."""
  return date < release


def render(records: Mapping[str, Mapping[str, Any]]) -> str:
  """Returns the table of ratios, in Markdown."""
  lines = ['| compared with | what | ratio |', '| --- | --- | --- |']
  for row in ROWS:
    if row.line in records:
      ratio = _find_ratio(row, records[row.line]['tables'])
      lines.append(f'| {row.peer} | {row.what} | {ratio} |')
  return '\n'.join(lines)


def _find_ratio(row: Row, tables: list[dict[str, Any]]) -> str:
  for table in tables:
    for cells in table['rows']:
      if tuple(cells[: len(row.cells)]) == row.cells:
        named = dict(zip(table['header'], cells, strict=False))
        ratio, *ends = (named[column] for column in row.columns)
        return f'{ratio} ({" to ".join(ends)})' if ends else ratio
  raise LookupError(f'{row} must be in the record of its line; run all.py.')


def write_pages() -> None:
  """Writes the table into all pages that have its marks."""
  table = render(read_records())
  for page in PAGES:
    text = page.read_text('utf-8')
    block = f'{FIGURES}speed -->\n\n{table}\n\n{END}'
    written = _BLOCK.sub(lambda _, block=block: block, text)
    if written != text:
      page.write_text(written, 'utf-8')
      print(f'wrote {page.relative_to(ROOT)}')


def read_records() -> dict[str, dict[str, Any]]:
  """Returns the records that there are."""
  return {name: record for name in LINES if (record := read_record(name))}


def find_faults(
  text: str, records: Mapping[str, Mapping[str, Any]], release: str
) -> Iterator[str]:
  """Yields what is wrong with the tables of a page.

  Args:
    text: the page.
    records: of the lines.
    release: date of the last release.
  """
  for match in _BLOCK.finditer(text):
    text = text.replace(match[0], '')
    if match['block'].strip() != render(records):
      yield 'The table of speeds must be that of the records; run all.py.'
    for name, record in records.items():
      if is_stale(record['date'], release):
        yield f'The record of {name} must be newer than {release}; run all.py.'
  for section in re.split(r'^#+ ', text, flags=re.M):
    marked = ''
    for row in section.splitlines():
      if row.startswith(RECORDED):
        marked = row.removeprefix(RECORDED).split()[0]
      elif row.startswith('| --- |') and not marked:
        yield f'A table of {section.splitlines()[0]!r} must have a mark.'
      elif row.startswith('| --- |') and is_stale(marked, release):
        yield f'{row} of {marked} must be newer than {release}.'


def main() -> None:
  """Runs what is missing, and writes the pages."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--lines', nargs='*', choices=LINES, default=[*LINES])
  parser.add_argument('--write', action='store_true', help='Runs nothing.')
  arguments = parser.parse_args()
  for name in () if arguments.write else arguments.lines:
    run_missing(name)
  write_pages()


if __name__ == '__main__':
  main()
