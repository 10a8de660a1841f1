"""Exports an agent of a run to a file that other programs run.

The file is one step of the policy, with the recurrent state among its inputs
and outputs. It is compared with the agent on 1,000 steps of the run's
environment. ONNX requires the extra `onnx`.
"""

import contextlib
import dataclasses
import os
import pathlib

from ftwax.cli import flags, sources


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
  rows: int = flags.flag(1, 'Environments that a call acts in.')


def run(options: Options) -> int:
  """Writes the file, and prints its arrays and the difference."""
  flags.check_positive(options, 'rows')
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
    step = portable.write(agent, temporary, options.format, options.rows)
    games = game_vectors.make_games(
      experiment.evaluation_factory, range(options.rows), 'export'
    )
    with contextlib.closing(games):
      difference = portable.check(agent, step, games, options.rows)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  inputs = portable.example(agent, options.rows)
  for title, arrays in {'inputs': inputs, 'outputs': step(inputs)}.items():
    print(f'{title}:')
    for key, value in sorted(arrays.items()):
      print(f'  {key:24} {value.dtype.name} {list(value.shape)}')
  print(
    f'{path} ({path.stat().st_size:,} bytes): its logits differ from the'
    f" agent's by at most {difference:.1e} in 1,000 steps."
  )
  return 0
