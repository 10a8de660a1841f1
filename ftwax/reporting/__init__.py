"""Figures and reports made from the directory of a run."""
