"""acme's actor and learner, and whole agents, around the pure functions."""

from ftwax import compatibility

compatibility.require_python_310(__name__)
