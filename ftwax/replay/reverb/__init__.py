"""Trajectories through a Reverb server: tables, adders and datasets.

Only this package imports Reverb, which also loads TensorFlow (about 6 s).
"""

from ftwax import compatibility

compatibility.require_python_310(__name__)
