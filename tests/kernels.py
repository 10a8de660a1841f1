r"""Counts the kernels that XLA, compiling for an H100, makes of an iteration.

    uv run --with 'jax[cuda13-local]' --with nvidia-nvvm \
      --with nvidia-cuda-nvcc python tests/kernels.py

It needs no GPU: XLA compiles for a description of one, without trying which
kernel is the fastest. Loops of unknown length are not counted: they start games
in rows that end twice in a rollout, and go on where a map is winding. Of
branches counts the one with most kernels.
"""

import collections
import functools
import importlib.util
import re
import sys
import time

import jax
import pytest
from jax.experimental import topologies

from ftwax import scans
from ftwax.agents import ppo
from ftwax.cli import launch
from ftwax.environments import catch
from ftwax.networks import cores
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare
from ftwax.runtime.device import train

IS_INSTALLED = importlib.util.find_spec('jax_cuda13_plugin') is not None

_H100 = """
  gpu_device_info {
    threads_per_block_limit: 1024 threads_per_warp: 32
    shared_memory_per_block: 49152 shared_memory_per_core: 233472
    threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
    block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
    block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
    l2_cache_size: 52428800 clock_rate_ghz: 1.98
    device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
    cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
    registers_per_block_limit: 65536
  }
  platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 }
  runtime_version { major: 13 } device_description_str: "NVIDIA H100 80GB HBM3"
"""

# Both look for the fastest of several kernels, on a GPU.
_OPTIONS = {'xla_gpu_autotune_level': 0, 'xla_gpu_enable_triton_gemm': False}

# What only names or groups results.
_NO_KERNELS = (
  'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast',
)  # fmt: skip


def _ppo(core):
  """Returns PPO of the sizes of PureJaxRL, on a small game."""
  config = ppo.PPOConfig(
    core=core,
    separate_value=isinstance(core, cores.FeedForward),
    sequence_length=128,
    batch_size=16,
    num_epochs=4,
    num_minibatches=4,
  )
  return experiment_lib.ExperimentConfig(
    agent=config,
    environment=catch.make(),
    num_environments=16,
    max_num_actor_steps=100_000,
  )


def _capture_the_flag(*flags):
  options = ('--runtime=device', '--num_environments=32', *flags)
  return launch.find('capture_the_flag', options).build()


CASES = {
  'feed-forward': lambda: _ppo(cores.FeedForward(64)),
  'gru': lambda: _ppo(cores.GRU(128)),
  'main experiment': _capture_the_flag,
  'rpth': lambda: _capture_the_flag('--core=rpth'),
  'whole agent': lambda: _capture_the_flag('--agent=paper', '--num_members=4'),
}


def compile_case(name, patch):
  """Compiles an iteration of one of `CASES`; returns XLA's text."""
  from jax._src import compilation_cache
  from jax._src.pallas.triton import gpu_info

  # What is kept cannot be read back without a GPU.
  patch.setattr(compilation_cache, 'is_cache_used', lambda backend: False)
  # Pallas, too, would ask the device.
  kind = gpu_info.gpu_version_from_device_kind('NVIDIA H100 80GB HBM3')
  info = gpu_info._get_gpu_info_impl(kind)
  patch.setattr(gpu_info, 'get_gpu_info', lambda: info)
  patch.setattr(jax, 'default_backend', lambda: 'cuda')
  patch.setattr(scans, 'counts_launches', lambda: True)
  patch.setattr(scans, 'has_kernels', lambda: True)
  loop = train.make_loop(prepare.prepare(CASES[name]()))
  state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
  (device,) = topologies.get_topology_desc(
    platform='cuda', target_config=_H100, topology='1x1x1'
  ).devices
  place = jax.sharding.SingleDeviceSharding(device)
  arguments = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
    (state.training, state.rollout, state.replay),
  )
  lowered = jax.jit(loop._iterate).lower(*arguments)
  return lowered.compile(compiler_options=_OPTIONS).as_text()


def count(text):
  """Returns the kernels by loop; `/8/33` is a loop of 33 in one of 8."""
  computations = collections.defaultdict(list)
  for line in text.splitlines():
    if found := re.match(r'(ENTRY )?%?([\w.-]+) \(.*\{$', line):
      computation = computations[found[1] or found[2]]
    elif found := re.match(r'  (?:ROOT )?%?[\w.-]+ = (.*)', line):
      computation.append(found[1])

  def of_operation(line, path):
    # The first word before a parenthesis, but for those of layouts.
    bare = re.sub(r'\{[^{}]*\}', '', line)
    name = re.search(r' ([a-z][\w-]*)\(', bare)[1]
    called = dict(re.findall(r' (\w+)=%([\w.-]+)', line))
    if name == 'while':
      length = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
      times = int(length[1]) if length else 0
      path = f'{path}/{times}'
      inner = of(called['body'], path) + of(called['condition'], path)
      return collections.Counter({key: times * n for key, n in inner.items()})
    if name == 'conditional':
      (names,) = re.findall(r'branch_computations=\{([^}]*)\}', line)
      branches = [of(each.strip('% '), path) for each in names.split(',')]
      return max(branches, key=collections.Counter.total)
    if name in ('call', 'async-start'):
      return of(called.get('to_apply') or called['calls'], path)
    is_kernel = name not in _NO_KERNELS and not name.endswith('-done')
    return collections.Counter({path: int(is_kernel)})

  @functools.cache
  def of(computation, path):
    rows = [of_operation(line, path) for line in computations[computation]]
    return sum(rows, collections.Counter())

  return of('ENTRY ', '')


def main():
  """Prints the kernels of each case, and of the loops with most of them."""
  jax.config.update('jax_platforms', 'cpu')  # Looks for no GPU.
  for name in sys.argv[1:] or CASES:
    start = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
      found = count(compile_case(name, patch))
    seconds = time.monotonic() - start
    print(f'{name}: {found.total():,} kernels, compiled in {seconds:.0f} s')
    for path, number in found.most_common(5):
      print(f'  {number:7,} {path or "outside of loops"}')


if __name__ == '__main__':
  main()
