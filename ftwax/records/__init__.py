"""Run directories, configurations, checkpoints, logs and progress."""
