"""Experiments: each file is a command and is not meant to be imported.

`ftwax train NAME` runs an experiment by its name; in a clone, so does `uv run
experiments/NAME.py`.
"""
