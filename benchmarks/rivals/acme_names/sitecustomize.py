"""Puts back the names of JAX that acme 0.4.0 needs; nothing else changes.

Python imports this module at its start when the directory is in PYTHONPATH.
"""

import types

import jax
import jax.numpy as jnp

jax.xla = types.SimpleNamespace(Device=jax.Device, DeviceArray=jax.Array)
jax.pxla = types.SimpleNamespace(ShardedDeviceArray=jax.Array)
jax.tree_map = jax.tree_util.tree_map
jnp.DeviceArray = jax.Array
