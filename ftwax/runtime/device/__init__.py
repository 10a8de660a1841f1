"""Runs environment, actor and learner in one compiled function."""
