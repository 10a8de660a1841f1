"""Finds the tasks of `benchmarks/`, which are outside of the package."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / 'benchmarks'))
