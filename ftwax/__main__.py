"""Runs the command `ftwax` as `python -m ftwax`."""

import sys

from ftwax.cli import commands

if __name__ == '__main__':
  sys.exit(commands.main())
