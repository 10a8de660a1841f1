"""Runs README's Python, shortened, with whatever ftwax is installed.

python tests/readme.py DIRECTORY      in which the runs are
"""

import os
import pathlib
import re
import sys

import documented_code

README = pathlib.Path(__file__).parents[1] / 'README.md'


def main() -> None:
  """Runs all blocks in one namespace, as a reader would."""
  import ftwax

  assert README.parent not in pathlib.Path(ftwax.__file__).parents, (
    f'{ftwax.__file__} is the clone; run another Python'
  )
  os.chdir(sys.argv[1])
  names: dict = {'__name__': 'readme'}
  for block in documented_code.read_blocks(README):
    # Also of the blocks that have no bound, whose experiment is the first's.
    code = re.sub(
      r'max_num_actor_steps=[\d_]+', 'max_num_actor_steps=2_000', block
    )
    exec(
      compile(
        code.replace('eval_every=20_000', 'eval_every=1_000'),
        str(README),
        'exec',
      ),
      names,
    )


if __name__ == '__main__':
  main()
