"""Strictness for every test: see also `filterwarnings` in pyproject.toml."""

import os

# Set before JAX is imported. Several CPU devices, so that code which assumes
# one is found out; no preallocation and no compilation cache left behind.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['XLA_FLAGS'] = (
  os.environ.get('XLA_FLAGS', '') + ' --xla_force_host_platform_device_count=4'
)

import sys

import jax
import pytest

jax.config.update('jax_numpy_rank_promotion', 'raise')
jax.config.update('jax_legacy_prng_key', 'allow')

# The half that talks to Reverb, acme and Launchpad installs on Python 3.10.
REVERB_HALF = ('replay/reverb', 'agents', 'runtime/local', 'experiments')
HAS_REVERB_HALF = sys.version_info < (3, 11)


@pytest.fixture
def key():
  return jax.random.PRNGKey(0)
