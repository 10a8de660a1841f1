"""The actor and learner that all named agents share.

`acting` and `learning` are pure functions over JAX arrays; `ftwax.acme` wraps
them in acme's interfaces.
"""

from typing import TYPE_CHECKING

from ftwax import submodules

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)
