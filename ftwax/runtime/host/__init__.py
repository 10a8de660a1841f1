"""Runs of populations: what all runtimes share, and those of host games."""
