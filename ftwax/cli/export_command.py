"""Exports an agent of a run to a file that other programs run.

The file is one step of the policy, with the recurrent state among its inputs
and outputs, for any number of environments. It is compared with the agent on
1,000 steps of the run's environment, at 1, 3 and 64 rows. ONNX requires the
extra `onnx`.
"""

import contextlib
import dataclasses
import os
import pathlib

from ftwax.cli import flags, sources

# Games whose steps the file is compared on.
_NUM_GAMES = 3


@dataclasses.dataclass(frozen=True)
class Options(sources.RunOptions):
  """Flags of `ftwax export`."""

  format: str = flags.flag(
    'onnx', 'Format of the file.', choices=('onnx', 'stablehlo')
  )
  member: int = flags.flag(0, 'Number of the member.')
  out: str | None = flags.flag(
    None, 'Path of the file; by default member_N.FORMAT, in this folder.'
  )


def run(options: Options) -> int:
  """Writes the file, and prints its arrays and the differences."""
  run_dir = sources.find_run(options.run)
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import past_runs
  from ftwax.environments import game_vectors
  from ftwax.inference import loading, portable
  from ftwax.runtime import devices

  devices.keep_compiled_functions()
  experiment = past_runs.rebuild(run_dir, options.experiment)
  agent = loading.load(
    run_dir,
    options.member,
    experiment=experiment if options.experiment else None,
    step=options.checkpoint,
  )
  path = pathlib.Path(
    options.out or f'member_{options.member}.{options.format}'
  )
  temporary = path.with_name(f'.{path.name}')
  try:
    step = portable.write(agent, temporary, options.format)
    games = game_vectors.make_games(
      experiment.evaluation_factory, range(_NUM_GAMES), 'export'
    )
    with contextlib.closing(games):
      differences = portable.check(agent, step, games)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  for title, arrays in portable.describe(agent, step).items():
    print(f'{title}:')
    for name, array in arrays.items():
      print(f'  {name:24} {array}')
  print(
    f'{path} ({path.stat().st_size:,} bytes) acts as the agent; largest'
    ' difference of logits in 1,000 steps:'
  )
  for num_rows, difference in differences.items():
    print(f'  {portable.ROWS}={num_rows:<5} {difference:.1e}')
  return 0
