"""Runs an experiment and keeps what it leaves: logs, checkpoints, progress."""
