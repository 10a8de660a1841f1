"""What recorded games of the tactician add to the main experiment.

    uv run research/recorded_games.py

Records 512 games and trains the main experiment with and without them. The
table has the means of all members in the tournament that ends a run, in 104
games a pair; the figure has the evaluations against the tactician during
training, a line for each seed.

Games and runs are kept in `--directory`: finished runs are not repeated.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

from ftwax.records import loggers

_ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(_ROOT / 'benchmarks'))

import common  # noqa: E402
import figures  # noqa: E402

_SCRIPTS = ('random', 'wanderer', 'attacker', 'tactician')
_SIDES = ('recorded games and self-play', 'self-play alone')
_NUM_EVALUATIONS = 8


def _scores(run_dir: pathlib.Path) -> list[float]:
  """Returns the mean score of all members against each script."""
  played = json.loads((run_dir / 'tournament.json').read_text('utf-8'))
  columns = [played['players'].index(script) for script in _SCRIPTS]
  rates = np.array(played['win_rates'], float)[: played['num_members'], columns]
  means: list[float] = rates.mean(axis=0).tolist()
  return means


def _curve(run_dir: pathlib.Path) -> list[tuple[float, float]]:
  """Returns steps and the mean score of all members against the tactician."""
  rows = loggers.read_jsonl(loggers.log_path(run_dir, 'evaluation'))
  return [
    (row['actor_steps'], float(np.mean(row['member_scores'], axis=0)[-1]))
    for row in rows
  ]


def main() -> None:
  """Does what is missing, prints the table and draws the figure."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--num_steps', type=int, default=13_000_000)
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
  parser.add_argument('--directory', default='runs/recorded_games')
  args = parser.parse_args()
  print(common.machine_line())
  directory = pathlib.Path(args.directory)
  recorded = directory / 'tactician'
  if not recorded.exists():
    words = ['record', 'capture_the_flag', '--players=tactician', '--games=500']
    command = [sys.executable, '-m', 'ftwax', *words, f'--out={recorded}']
    subprocess.run(command, check=True)
  rows: list[list[str]] = []
  curves: dict[str, list[Any]] = {side: [] for side in _SIDES}
  for seed in args.seeds:
    for side in _SIDES:
      name = f'{side.replace(" ", "_")}_{args.num_steps}_{seed}'
      run_dir = directory / name
      common.train_flag(
        run_dir,
        f'--seed={seed}',
        f'--max_num_actor_steps={args.num_steps}',
        f'--eval_every={args.num_steps // _NUM_EVALUATIONS}',
        '--games_per_pair=104',
        *([f'--demonstrations={recorded}'] if side == _SIDES[0] else []),
      )
      scores = [f'{score:.2f}' for score in _scores(run_dir)]
      rows.append([side, str(seed), *scores])
      curves[side].append(_curve(run_dir))
      print(*rows[-1], sep=' | ', flush=True)
  common.print_table(
    f'After {args.num_steps:,} steps', ['run', 'seed', *_SCRIPTS], rows
  )
  figures.draw_runs(
    directory / 'curves.png',
    {'against the tactician': curves},
    'score, where a draw is a half',
  )


if __name__ == '__main__':
  main()
