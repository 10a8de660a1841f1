"""The differentiable neural computer.

These modules define its computation, in reading order: `addressing`, `linkage`,
`sparse_linkage`, `interfaces`, `memory_state`, `access`, `memory_access`,
`controllers`, `core`. These only make it faster, with the same results:
`link_update`, `lazy_link`, `open_links`, `recompute`. See docs/networks.md.
"""

from typing import TYPE_CHECKING

from ftwax import submodules

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)
