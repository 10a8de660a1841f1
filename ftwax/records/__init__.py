"""The records of a run: its directory, logs, checkpoints and progress."""
