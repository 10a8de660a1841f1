r"""PPO with and without a team critic beside JaxMARL's MAPPO and IPPO on SMAX.

    uv run --with jaxmarl==0.2.0 benchmarks/smax.py --jaxmarl=PATH \
      --tasks 3m 2s3z --num_steps=600_000

PATH is a clone of JaxMARL, which has these two programs; `uv run --script`
installs what they need. Ours has what `ftwax train jaxmarl:smax_3m --core=gru`
has. Steps are those of the game, in which all players of a team act at once.
Scores are of training, with sampled actions: the mean return, and the share of
won games, in the last twentieth of the steps. CPU seconds are those of
training, without compilation.

Each run is kept in `--directory` as one file: finished runs are not repeated.
`curves.png` there has the share of won games of each seed.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import common
import figures
import numpy as np

from ftwax.records import loggers

_PLAYERS = {'3m': 3, '2s3z': 5, '8m': 8, '5m_vs_6m': 5}
# Flags of ours, and the agents of JaxMARL.
_OURS = {'ours': (), 'ours, team critic': ('--team_critic',)}
_RIVALS = {'JaxMARL IPPO': 'ippo', 'JaxMARL MAPPO': 'mappo'}
_SIDES = (*_OURS, *_RIVALS)
_COMPILED_STEPS = 20_000
# The end of a run, of which scores are.
_END = 0.05

# Steps of the game, return and share of won games.
Curve = list[list[float]]


def _train(
  task: str, options: Sequence[str], num_steps: int, seed: int, cache: str
) -> tuple[Curve, float]:
  """Trains ours; returns its curve, and CPU seconds with compilation."""
  players = _PLAYERS[task]
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
      [
        sys.executable, '-m', 'ftwax', 'train', f'jaxmarl:smax_{task}',
        '--core=gru', *options, f'--steps={num_steps * players}',
        f'--seed={seed}', '--eval_every=0', '--metrics=won',
        f'--run_dir={run_dir}',
      ],
      check=True,
      stdout=subprocess.DEVNULL,
      env={
        **os.environ,
        'JAX_COMPILATION_CACHE_DIR': cache,
        'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
        'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
      },
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = loggers.read_jsonl(loggers.log_path(run_dir, 'train'))
  curve = [
    [row['actor_steps'] / players, row['episode_return'], row['metrics/won']]
    for row in rows
  ]
  seconds = after.ru_utime + after.ru_stime
  return curve, seconds - before.ru_utime - before.ru_stime


def run_ours(
  task: str, num_steps: int, seeds: Sequence[int], options: Sequence[str]
) -> dict[str, Any]:
  """Trains ours; its CPU seconds are beyond those of a run of few steps."""
  with tempfile.TemporaryDirectory() as cache:
    for _ in range(2):  # The second finds what the first has compiled.
      _, start = _train(task, options, _COMPILED_STEPS, seeds[0], cache)
    runs = [_train(task, options, num_steps, seed, cache) for seed in seeds]
  seconds = float(np.mean([seconds for _, seconds in runs]))
  share = (num_steps - _COMPILED_STEPS) / num_steps
  return {
    'seeds': list(seeds),
    'curves': [curve for curve, _ in runs],
    'cpu_seconds': (seconds - start) / share,
  }


def run_rival(
  task: str, num_steps: int, seeds: Sequence[int], clone: str, agent: str
) -> dict[str, Any]:
  """Trains JaxMARL's, in an environment of its own."""
  return common.run_rival(
    'jaxmarl_smax.py',
    f'--jaxmarl={clone}',
    f'--agent={agent}',
    f'--task={task}',
    f'--num_steps={num_steps}',
    '--seeds',
    *map(str, seeds),
    JAX_PLATFORMS='cpu',
    XLA_FLAGS=os.environ.get('XLA_FLAGS', ''),
  )


def score(curve: Curve, column: int) -> float:
  """Returns the mean over the end of a run."""
  rows = np.array(curve)
  is_end = rows[:, 0] > (1.0 - _END) * rows[-1, 0]
  return float(rows[is_end, column].mean())


def smooth(curve: Curve) -> list[list[float]]:
  """Returns steps and the share of won games, means of thirtieths of a run."""
  parts = np.array_split(np.array(curve)[:, ::2], min(30, len(curve)))
  return [part.mean(axis=0).tolist() for part in parts]


def main() -> None:
  """Does the runs that are missing in turn, and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--tasks', nargs='+', choices=_PLAYERS, default=['3m'])
  parser.add_argument('--sides', nargs='+', choices=_SIDES, default=_SIDES)
  parser.add_argument('--jaxmarl', help='path of a clone of JaxMARL')
  parser.add_argument('--num_steps', type=int, default=600_000)
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
  parser.add_argument('--directory', default='runs/smax')
  args = parser.parse_args()
  print(common.machine_line())
  directory = pathlib.Path(args.directory)
  directory.mkdir(parents=True, exist_ok=True)
  rows, drawn = [], {task: {} for task in args.tasks}
  for task in args.tasks:
    for side in args.sides:
      if side in _RIVALS and not args.jaxmarl:
        continue
      name = side.replace(', ', '_').replace(' ', '_')
      seeds = '_'.join(map(str, args.seeds))
      path = directory / f'{task}_{args.num_steps}_{name}_{seeds}.json'
      if not path.exists():
        sizes = task, args.num_steps, args.seeds
        if side in _RIVALS:
          result = run_rival(*sizes, args.jaxmarl, _RIVALS[side])
        else:
          result = run_ours(*sizes, _OURS[side])
        path.write_text(json.dumps(result))
      found = json.loads(path.read_text())
      drawn[task][side] = [smooth(curve) for curve in found['curves']]
      words = [
        ', '.join(f'{score(curve, column):.2f}' for curve in found['curves'])
        for column in (1, 2)
      ]
      rows.append([task, side, *words, f'{found.get("cpu_seconds", 0.0):.0f}'])
      print(*rows[-1], sep=' | ', flush=True)
  common.print_table(
    f'SMAX after {args.num_steps:,} steps, seeds {args.seeds}',
    ['game', 'agent', 'returns', 'won games', 'CPU seconds a seed'],
    rows,
  )
  figures.draw_runs(directory / 'curves.png', drawn, 'share of won games')


if __name__ == '__main__':
  main()
