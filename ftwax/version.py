"""The version of the library; the second number is the layout of runs."""

__version__ = '0.7.0'
