"""Runs experiments in one process, with actors that run in Python."""
