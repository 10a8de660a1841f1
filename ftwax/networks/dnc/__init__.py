"""The differentiable neural computer.

What it computes, in reading order: `addressing`, `linkage`, `sparse_linkage`,
`interfaces`, `memory_state`, `access`, `controllers`, `core`. What makes it
fast without changing a number: `deferred`, `link_update`, `lazy_link`,
`recompute`. docs/networks.md tells more.
"""
