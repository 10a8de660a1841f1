"""Freed memory stays with the process, so that no page is mapped again."""

import os
import subprocess
import sys

import pytest

# Prints the pages mapped in ten calls, each with a result of 64 MB. The heap
# grows by some results before every later one fits into what is free.
_CALLS = """
import resource

from ftwax.runtime.device import freed_memory

freed_memory.keep({num_devices})
import jax
import jax.numpy as jnp

add = jax.jit(lambda x: x + 1)
x = jnp.zeros((2**24,))
for _ in range(60):
  add(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
  add(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _num_mapped_pages(num_devices, **environment):
  inherited = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(('MALLOC_', 'GLIBC_'))
  }
  process = subprocess.run(
    [sys.executable, '-c', _CALLS.format(num_devices=num_devices)],
    env={**inherited, 'JAX_PLATFORMS': 'cpu', **environment},
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )
  return int(process.stdout)


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != 'linux', reason='This is glibc.')
def test_calls_use_the_same_pages_unless_the_user_configures_malloc():
  kept = _num_mapped_pages(1)
  returned = _num_mapped_pages(1, MALLOC_PERTURB_='0')
  assert returned > 100_000  # 64 MB a call, in pages of 4 kB.
  assert kept < returned / 4
  # Threads of several devices would wait for each other.
  assert _num_mapped_pages(2) > 100_000
