r"""Runs the commands whose figures pages quote, and writes their tables.

    uv run --with rlax --with flashbax --with gymnax --with sb3-contrib \
      --with envpool --with 'tensorflow-probability<0.16' benchmarks/all.py
    uv run benchmarks/all.py --lines acting a3c
    uv run benchmarks/all.py --write

A line is a benchmark, whose printed tables are kept, or an experiment in some
variants and seeds, of which the mean return of the last training episodes is
kept. Runs are done one at a time, and each is recorded at once in
`records/LINE.json` with commit, date, machine and versions, so that the same
command goes on after an interruption. A line that was measured since the last
release is not run again, unless its record is deleted. `--write` runs nothing.
`$PUREJAXRL` must be a clone of PureJaxRL for its line, since it is no package.

A page shows a line between `<!-- figures LINE -->` and `<!-- end -->`. Tables
that no record holds follow a mark `<!-- recorded DATE COMMIT -->`.
In pages with marks, `tests/test_figures.py` fails for other tables, for changed
ones, and for figures that are older than the last release.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import common

ROOT = pathlib.Path(__file__).parents[1]
RECORDS = pathlib.Path(__file__).parent / 'records'
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md')))

# Prefixes of the marks.
FIGURES, RECORDED, END = '<!-- figures ', '<!-- recorded ', '<!-- end -->'

_BLOCK = re.compile(
  rf'{FIGURES}(?P<name>\w+) -->\n(?P<block>.*?){END}', re.DOTALL
)
_RESULT = re.compile(r'([\d,]+) steps and .* mean return (\S+) \(last')
_RELEASE = re.compile(r'^## \S+, (\d{4}-\d\d-\d\d)$', re.MULTILINE)


class Line(NamedTuple):
  """A command that a page quotes.

  Attributes:
    command: a script and its flags.
    variants: further flags of each row of an experiment's table, by name; empty
      for benchmarks.
    seeds: seeds of each variant.
  """

  command: str
  variants: Mapping[str, str] = {}
  seeds: Sequence[int] = (0, 1, 2)


LINES: Mapping[str, Line] = {
  'start': Line('benchmarks/start.py'),
  'compile': Line('benchmarks/compile.py --agents impala ppo ftw'),
  'ftw': Line('benchmarks/ftw.py'),
  'networks': Line('benchmarks/networks.py --tables networks acting'),
  'purejaxrl': Line(
    'benchmarks/device.py --rounds=3 --tables purejaxrl --purejaxrl=$PUREJAXRL'
  ),
  'local': Line('benchmarks/local.py'),
  'loop': Line('benchmarks/loop.py'),
  'by_hand': Line('benchmarks/device.py --rounds=3 --tables rival'),
  'family': Line('benchmarks/family.py'),
  'replay': Line('benchmarks/replay.py'),
  'acting': Line('benchmarks/acting.py'),
  'learning': Line('benchmarks/learning.py'),
  'stepping': Line('benchmarks/stepping.py'),
  'populations': Line(
    'benchmarks/device.py --rounds=3 --tables populations --members 8'
  ),
  'scaling': Line('benchmarks/scaling.py'),
  'a3c': Line(
    'experiments/catch.py --agent=a3c --runtime=distributed --eval_every=0'
    ' --max_num_actor_steps=120000',
    {'2 actors of 8 environments, the default': ''},
  ),
}


def run_missing(name: str) -> None:
  """Does the runs of a line that are missing or stale, and records each."""
  line, runs = LINES[name], read_record(name)
  release = release_date()
  for variant, seed in _cells(line):
    cell = {'variant': variant, 'seed': seed}
    recorded = [run for run in runs if cell.items() <= run.items()]
    if recorded and not is_stale(recorded[0]['date'], release):
      continue
    print(f'{name}, {variant}, seed {seed}' if variant else name, flush=True)
    runs = [run for run in runs if run not in recorded]
    runs.append({**cell, **_run(line, variant, seed)})
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f'{name}.json'
    path.write_text(json.dumps(runs, indent=1) + '\n', 'utf-8')


def _cells(line: Line) -> Iterator[tuple[str, int | None]]:
  """Yields variant and seed of each run, all variants of a seed first."""
  if not line.variants:
    yield '', None
    return
  for seed in line.seeds:
    for variant in line.variants:
      yield variant, seed


def _run(line: Line, variant: str, seed: int | None) -> dict[str, Any]:
  """Runs a command once and returns what to record."""
  with tempfile.TemporaryDirectory() as folder:
    tables = pathlib.Path(folder) / 'tables.jsonl'
    command = os.path.expandvars(line.command).split()
    if line.variants:
      command += [*line.variants[variant].split(), f'--seed={seed}']
      command += [f'--run_dir={folder}/run']
    about = {
      'commit': common.commit(),
      'date': datetime.date.today().isoformat(),
      'machine': common.machine(),
      'load': round(os.getloadavg()[0], 1),
    }
    before = time.perf_counter()
    result = subprocess.run(
      [sys.executable, str(ROOT / command[0]), *command[1:]],
      cwd=folder,
      env={**os.environ, common.TABLES_FILE: str(tables)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    about['seconds'] = round(time.perf_counter() - before)
    if result.returncode:
      raise SystemExit(f'{result.stdout[-5000:]}\n{command} failed.')
    if not line.variants:
      return {
        **about,
        'tables': [json.loads(text) for text in tables.open(encoding='utf-8')],
      }
  steps, mean_return = _RESULT.findall(result.stdout)[-1]
  return {
    **about,
    'steps': int(steps.replace(',', '')),
    'mean_return': float(mean_return),
  }


def read_record(name: str) -> list[dict[str, Any]]:
  """Returns the recorded runs of a line."""
  path = RECORDS / f'{name}.json'
  return json.loads(path.read_text('utf-8')) if path.exists() else []


def release_date() -> str:
  """Returns the date of the last release; '' if there has been none."""
  dates = _RELEASE.findall((ROOT / 'CHANGELOG.md').read_text('utf-8'))
  return max(dates, default='')


def is_stale(date: str, release: str) -> bool:
  """Returns whether figures of a date are older than a release."""
  return date < release


def render(name: str, runs: Sequence[Mapping[str, Any]]) -> str:
  """Returns what a page shows of a line, in Markdown."""
  line = LINES[name]
  if line.variants:
    tables = [_experiment_table(line, runs)]
  else:
    tables = [table for run in runs for table in run['tables']]
  blocks = []
  for table in tables:
    if table['title']:
      blocks.append(f'{table["title"]}:')
    header, *rows = [table['header'], *table['rows']]
    cells = [header, ['---'] * len(header), *rows]
    blocks.append('\n'.join('| ' + ' | '.join(row) + ' |' for row in cells))
  commits = sorted({run['commit'] for run in runs})
  dates = sorted({run['date'] for run in runs})
  machines = sorted({run['machine'] for run in runs})
  blocks.append(
    f'`{line.command}`, commit {", ".join(commits)}, {", ".join(dates)};'
    f' {"; ".join(machines)}; load {max(run["load"] for run in runs):g} or'
    ' less at the start.'
  )
  return '\n\n'.join(blocks)


def _experiment_table(
  line: Line, runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  rows = []
  for variant in line.variants:
    mine = {run['seed']: run for run in runs if run['variant'] == variant}
    if not mine:
      continue
    returns = {seed: run['mean_return'] for seed, run in mine.items()}
    each = [
      f'{returns[seed]:.2f}' if seed in returns else 'not run'
      for seed in line.seeds
    ]
    rows.append(
      [
        variant,
        f'{next(iter(mine.values()))["steps"]:,}',
        ', '.join(each),
        common.summarize([*returns.values()]),
        ', '.join(str(mine[seed]['seconds']) for seed in sorted(mine)),
      ]
    )
  seeds_text = ', '.join(map(str, line.seeds))
  header = ['', 'steps', f'return, seeds {seeds_text}', 'mean (95%)', 'seconds']
  return {'title': '', 'header': header, 'rows': rows}


def write_pages() -> None:
  """Writes the lines into all pages that have their marks."""
  for page in PAGES:
    text = page.read_text('utf-8')
    written = _BLOCK.sub(_write_block, text)
    if written != text:
      page.write_text(written, 'utf-8')
      print(f'wrote {page.relative_to(ROOT)}')


def _write_block(match: re.Match[str]) -> str:
  name = match['name']
  if runs := read_record(name):
    return f'{FIGURES}{name} -->\n\n{render(name, runs)}\n\n{END}'
  return match[0]


def find_faults(
  text: str, records: Mapping[str, Any], release: str
) -> Iterator[str]:
  """Yields what is wrong with the tables of a page.

  Args:
    text: the page.
    records: recorded runs of each line.
    release: date of the last release.
  """
  for match in _BLOCK.finditer(text):
    name = match['name']
    if not (runs := records.get(name)):
      continue  # Its tables need marks of their own, as others do.
    text = text.replace(match[0], '')
    if match['block'].strip() != render(name, runs):
      yield f'The figures of {name} must be those of its record; run all.py.'
    elif is_stale(min(run['date'] for run in runs), release):
      yield f'The figures of {name} must be newer than {release}; run all.py.'
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
