"""The differentiable neural computer.

In reading order, what it computes: `addressing`, `linkage`, `sparse_linkage`,
`interfaces`, `memory_state`, `access`, `memory_access`, `controllers`, `core`.
What makes it fast without changing a number: `link_update`, `lazy_link`,
`open_links`, `recompute`. See docs/networks.md.
"""
