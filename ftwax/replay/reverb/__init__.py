"""Trajectories through a Reverb server: tables, adders and datasets.

Reverb is loaded here and nowhere above; with it comes TensorFlow (some 6 s).
"""

from ftwax import compatibility

compatibility.require_python_310(__name__)
