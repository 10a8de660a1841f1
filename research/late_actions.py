"""What members do whose actions come late, and those that met delays.

    uv run research/late_actions.py

Trains the main experiment with and without `--max_delay=5`, where each training
game draws by how many steps actions come late. Copies of each member then play
against copies of the attacker with all of their actions so many steps late. The
table has a score for each seed, the mean of the members.

Runs are kept in `--directory`: finished runs are not repeated.
"""

import argparse
import pathlib
import sys

import numpy as np
import paper

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'benchmarks'))

import common  # noqa: E402

_DELAYS = (0, 1, 2, 5)
# Flags of the runs of each row.
_ROWS = {'on_time': [], 'late': ['--max_delay=5']}


def main() -> None:
  """Does what is missing, and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--num_steps', type=int, default=24_000_000)
  parser.add_argument('--seeds', type=int, nargs='+', default=[501, 502, 503])
  parser.add_argument('--games', type=int, default=200)
  parser.add_argument('--directory', default='runs/late_actions')
  args = parser.parse_args()
  print(common.machine_line())
  rows = []
  for name, flags in _ROWS.items():
    scores = []
    for seed in args.seeds:
      run_dir = pathlib.Path(args.directory) / f'{name}_{seed}'
      steps = f'--max_num_actor_steps={args.num_steps}'
      common.train_flag(run_dir, f'--seed={seed}', steps, *flags)
      options = paper.Options(run=str(run_dir), games=args.games)
      games = paper.against_scripts(
        options, paper.config_of(options), ['attacker'], _DELAYS
      )
      scores.append(games.mean(axis=(1, 2)))
    cells = [', '.join(f'{s:.2f}' for s in late) for late in np.array(scores).T]
    rows.append([name, *cells])
  common.print_table(
    f'Scores against the attacker after {args.num_steps:,} steps',
    ['trained', *(f'{delay} steps late' for delay in _DELAYS)],
    rows,
  )


if __name__ == '__main__':
  main()
