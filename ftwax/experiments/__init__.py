"""Experiments: each file is a command, which nobody imports.

`ftwax train NAME` runs one by its name, and in a clone so does
`uv run experiments/NAME.py`.
"""
