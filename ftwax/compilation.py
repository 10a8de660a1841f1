"""Compilation for few launches or in less time, announced and counted."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.experimental

_LEVEL = 'xla_backend_optimization_level'

# On GPUs loops and branches are recorded into CUDA graphs like all else,
# so that the host launches a program and not each kernel. That makes
# training 1.3 to 3 times as fast; by default loops are left out.
_GRAPHS = {
  'xla_gpu_enable_command_buffer': (
    'FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL'
    ',WHILE'
  ),
  'xla_gpu_graph_min_graph_size': 1,
}

_GUARDS = tuple(
  f'jax_transfer_guard{kind}'
  for kind in ('', '_host_to_device', '_device_to_device', '_device_to_host')
)


@contextlib.contextmanager
def usual_settings() -> Iterator[None]:
  """Computes in 32 bits, with JAX's usual promotion and transfers.

  Other settings of a user's program, such as `jax_enable_x64`, hold outside.
  """
  config: Any = jax.config
  with contextlib.ExitStack() as stack:
    if config.jax_enable_x64:
      # In older versions it is an experiment.
      owner: Any = jax if hasattr(jax, 'enable_x64') else jax.experimental
      stack.enter_context(owner.enable_x64(False))
    if config.jax_numpy_dtype_promotion != 'standard':
      stack.enter_context(jax.numpy_dtype_promotion('standard'))
    if any(getattr(config, name) for name in _GUARDS):
      stack.enter_context(jax.transfer_guard('allow'))
    yield


def check_settings() -> None:
  """Raises a ValueError for settings of JAX that nothing here works with."""
  config: Any = jax.config
  if config.jax_enable_x64:  # Not within `usual_settings`.
    raise ValueError(
      'jax_enable_x64 (True) must be False for make_train, which computes in 32'
      ' bits; call it and its functions inside jax.enable_x64(False), or use'
      ' ftwax.run.'
    )
  if config.jax_enable_custom_prng:
    raise ValueError(
      'jax_enable_custom_prng (True) must be False for keys that can be saved;'
      ' leave it out: typed keys, as of jax.random.key, are taken all the same.'
    )


def jit(function: Callable[..., Any], **options: Any) -> jax.stages.Wrapped:
  """Returns `jax.jit(function, **options)` for what runs many times.

  On CPUs it compiles at LLVM's second level of optimization, of three: the main
  experiment's call in 0.6 of the time, and what it compiles is as fast. On GPUs
  see `_GRAPHS`.
  """
  return _jit(function, {'cpu': {_LEVEL: 2}, 'gpu': _GRAPHS}, options)


def jit_unoptimized(
  function: Callable[..., Any], **options: Any
) -> jax.stages.Wrapped:
  """Returns `jax.jit(function, **options)` that compiles fast and runs slowly.

  Random initialization and resets are large programs that run once or once in
  a round. On CPUs optimizing them takes four times as long as compiling them
  without.
  """
  return _jit(function, {'cpu': {_LEVEL: 0}}, options)


def _jit(
  function: Callable[..., Any],
  by_platform: dict[str, dict[str, Any]],
  options: dict[str, Any],
) -> jax.stages.Wrapped:
  """Returns a function with XLA's options, unless XLA_FLAGS sets others."""
  flags = os.environ.get('XLA_FLAGS', '')
  given = by_platform.get(jax.default_backend(), {})
  ours = {name: value for name, value in given.items() if name not in flags}
  return jax.jit(function, compiler_options=ours or None, **options)


@contextlib.contextmanager
def shown(text: str) -> Iterator[None]:
  """Announces what takes time, and prints how long it took."""
  start = time.monotonic()
  print(f'{text}...', flush=True)
  yield
  print(f'{text} took {time.monotonic() - start:.1f} s', flush=True)


def num_compiled() -> int:
  """Returns how often this process has compiled for a tenth of a second."""
  return _num_compiled


def _count(event: str, duration_secs: float, **_: Any) -> None:
  global _num_compiled
  is_compiling = event == '/jax/core/compile/backend_compile_duration'
  _num_compiled += is_compiling and duration_secs > 0.1


_num_compiled = 0
jax.monitoring.register_event_duration_secs_listener(_count)
