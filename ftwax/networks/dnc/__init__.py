"""The differentiable neural computer: addressing, access, linkage, core."""
