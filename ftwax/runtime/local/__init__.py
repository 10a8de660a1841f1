"""Runs experiments whose actors run in Python; shared by all runtimes."""
