"""acme's interfaces around the functions of the pair: they move and count."""

from ftwax import compatibility

compatibility.require_python_310(__name__)
