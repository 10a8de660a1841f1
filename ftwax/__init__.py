"""Recurrent, memory-augmented actor-critic agents and populations in JAX."""

__version__ = '0.1.0'
