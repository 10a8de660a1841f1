"""Fakes made from specs, for tests of agents and runtimes."""
