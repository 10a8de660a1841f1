"""How fast a GPU trains: PPO beside PureJaxRL, and the main experiment.

    uv run --with 'jax[cuda13]' --with gymnax --with distrax --with flax \
      benchmarks/gpu.py --purejaxrl=PATH
    uv run --with 'jax[cuda13]' benchmarks/gpu.py --flags=--num_environments=64

The first makes three tables within eight minutes. PATH is a clone; for today's
Flax both uses of `nn.GRUCell` in `ppo_rnn.py` need `features`, and the second
one the shape of its inputs. Each row is a process: all compile side by side,
then one at a time is measured.

- PPO of the sizes of PureJaxRL's examples, ours and theirs in turn; theirs also
  with the CUDA graphs of loops that our programs ask XLA for.
- The call of the main experiment, as the device runtime compiles it: steps/s
  with the host's work left out; FLOPs, counted in what JAX traced, and their
  share of the peak, that of large products; and memory. `tests/kernels.py`
  counts kernels, most of which traces do not show in CUDA graphs.
- Three updates on the device and on the CPU at the highest precision.

With `--flags`, once for each row, only the second, of any experiment.
"""

import argparse
import dataclasses
import fcntl
import functools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import common
import device
import jax
import jax.numpy as jnp
import numpy as np

import ftwax
from ftwax import compilation, scans
from ftwax.agents import ftw, ppo
from ftwax.cli import launch
from ftwax.environments import memory_chain
from ftwax.networks import cores
from ftwax.runtime import prepare
from ftwax.runtime.device import train

# Kind, game, environments of an agent, agents, and iterations of a call.
_PEERS = (
  ('feed-forward', 'CartPole-v1', 4, 1, 64),
  ('feed-forward', 'CartPole-v1', 2048, 1, 16),
  ('feed-forward', 'CartPole-v1', 4, 256, 16),
  ('feed-forward', 'Breakout-MinAtar', 1024, 1, 16),
  ('GRU', 'CartPole-v1', 2048, 1, 6),
  ('GRU', 'Breakout-MinAtar', 512, 1, 6),
  ('GRU', 'CartPole-v1', 64, 16, 6),
)
_EXPERIMENTS = (
  '--num_environments=512',
  '--num_environments=2048 --num_members=16',
  '--num_environments=8192',
  '--core=rpth --num_environments=2048',
  '--agent=paper --num_environments=1024',
)
_CORES = ('feed_forward', 'lstm', 'gru', 'gtrxl', 'lru', 'rpth', 'rpth_dnc')

# A call has this many iterations, and this many are timed.
_NUM_ITERATIONS, _NUM_CALLS = 4, 5


def count_flops(jaxpr: Any) -> float:
  """Returns the FLOPs of all matrix products and convolutions of a jaxpr.

  Loops count as often as they run, `while` loops of unknown length once, and of
  branches the largest.
  """
  total = 0.0
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    inner = [count_flops(each) for each in _inner(params.values())]
    if name == 'dot_general':
      contracted = params['dimension_numbers'][0][0]
      shape = equation.invars[0].aval.shape
      size = math.prod(shape[axis] for axis in contracted)
      total += 2.0 * size * equation.outvars[0].aval.size
    elif name == 'conv_general_dilated':
      kernel = equation.invars[1].aval
      outputs = kernel.shape[params['dimension_numbers'].rhs_spec[0]]
      total += 2.0 * equation.outvars[0].aval.size * kernel.size / outputs
    elif name == 'cond':
      total += max(inner, default=0.0)
    else:
      total += sum(inner) * params.get('length', 1)
  return total


def _inner(values: Iterable[Any]) -> Iterable[Any]:
  """Yields the jaxprs among the parameters of an equation."""
  for value in values:
    for each in value if isinstance(value, tuple | list) else (value,):
      each = getattr(each, 'jaxpr', each)
      if hasattr(each, 'eqns'):
        yield each


def measure_peak(size: int, seconds: float) -> float:
  """Returns the FLOP/s of products of two float32 matrices of a size."""
  product = jax.jit(jnp.matmul)
  matrix = jnp.ones((size, size))
  measured = common.measure(
    lambda: product(matrix, matrix).block_until_ready(), seconds=seconds
  )
  return 2.0 * size**3 / measured.minimum


@dataclasses.dataclass(frozen=True)
class _Turns:
  """Processes that wait for each other, then measure one at a time.

  Attributes:
    folder: with a file for each process that is ready.
    num_processes: number of them.
  """

  folder: pathlib.Path
  num_processes: int

  def be_ready(self) -> None:
    """Lets the others begin, also when this process has failed."""
    (self.folder / f'{os.getpid()}.ready').touch()

  def wait(self) -> Any:
    """Waits for its turn, which ends when the file returned is closed."""
    self.be_ready()
    while len([*self.folder.glob('*.ready')]) < self.num_processes:
      time.sleep(0.5)
    lock = open(self.folder / 'lock', 'w', encoding='utf-8')  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _time_in_turn(calls: Sequence[Callable[[], Any]]) -> list[float]:
  """Returns the median seconds of each call; the first of each is compiled."""
  times: list[list[float]] = [[] for _ in calls]
  for _ in range(_NUM_CALLS):
    for call, own in zip(calls, times, strict=True):
      own.append(_seconds(call))
  return [statistics.median(own) for own in times]


def _seconds(call: Callable[[], Any]) -> float:
  start = time.perf_counter()
  call()
  return time.perf_counter() - start


def beside_purejaxrl(path: str, index: int, turns: _Turns) -> list[Any]:
  """Measures a row of the first table."""
  kind, game, num_environments, num_agents, num_iterations = _PEERS[index]
  agent, rival = device.make_pair(
    path,
    {
      'ENV_NAME': game,
      'NUM_ENVS': num_environments,
      'NUM_STEPS': 128,
      'NUM_MINIBATCHES': 4,
    },
    num_agents,
    num_iterations,
    cores.GRU(128) if kind == 'GRU' else None,
  )
  keys = jax.random.split(jax.random.PRNGKey(0), num_agents)
  # By default, and with graphs of loops.
  theirs = [jit(rival) for jit in (jax.jit, compilation.jit)]
  calls = [
    agent.run,
    *[
      functools.partial(lambda run: jax.block_until_ready(run(keys)), run)
      for run in theirs
    ],
  ]
  compiling = [_seconds(call) for call in calls]
  with turns.wait():
    seconds = _time_in_turn(calls)
  speeds = [f'{agent.num_steps / each / 1e6:.3g}M' for each in seconds]
  ratios = [f'{each / seconds[0]:.2f}' for each in seconds[1:]]
  sizes = f'{num_environments:,}' + f' x {num_agents}' * (num_agents > 1)
  first = ', '.join(f'{each:.0f}' for each in compiling[:2])
  return [kind, game, sizes, *speeds, *ratios, first]


def of_experiment(name: str, flags: str, turns: _Turns) -> list[Any]:
  """Measures a row of the second table."""
  start = time.perf_counter()
  options = ['--runtime=device', '--num_devices=1', *flags.split()]
  parts = prepare.prepare(launch.find(name, options).build())
  loop = train.make_loop(parts)
  num_steps = _NUM_ITERATIONS * loop.sizes.steps_per_iteration
  function = functools.partial(loop.call, _NUM_ITERATIONS)
  state = compilation.jit_unoptimized(loop.init)(parts.key)
  flops = count_flops(jax.make_jaxpr(function)(state).jaxpr) / num_steps
  compiled = compilation.jit(function, donate_argnums=0)

  def call() -> None:
    nonlocal state
    state, _ = jax.block_until_ready(compiled(state))

  call()
  compiling = time.perf_counter() - start
  with turns.wait():
    (seconds,) = _time_in_turn([call])
    peak = measure_peak(8192 if jax.default_backend() != 'cpu' else 512, 1.0)
  share = flops * num_steps / seconds / peak
  memory = (jax.devices()[0].memory_stats() or {}).get('peak_bytes_in_use', 0)
  return [
    f'{name} {flags}',
    f'{num_steps / seconds / 1e6:.3g}M',
    f'{1e3 * seconds / _NUM_ITERATIONS:.1f}',
    f'{flops / 1e6:.2f}',
    f'{share:.1%} of {peak / 1e12:.3g} TFLOP/s',
    f'{memory / 2**30:.1f} GiB',
    f'{compiling:.0f}',
  ]


def on_both(core: str, turns: _Turns) -> list[Any]:
  """Measures a row of the third table."""
  options: dict[str, Any] = {'core': core, 'batch_size': 16}
  agent: Any = ppo.PPOConfig(**options)
  if core.startswith('rpth'):
    agent = ftw.FTWConfig(tasks=(), **options)
  experiment = ftwax.ExperimentConfig(
    agent=agent,
    environment=memory_chain.make(10),
    max_num_actor_steps=3 * 16 * agent.sequence_length,
    num_environments=16,
  )
  ends = []
  on_device = scans.counts_launches
  for where, is_packed in (
    (jax.devices('cpu')[0], lambda: False),
    (jax.devices()[0], on_device),
  ):
    scans.counts_launches = is_packed
    init, run = ftwax.make_train(experiment)
    with jax.default_device(where), jax.default_matmul_precision('highest'):
      state, _ = compilation.jit(run)(jax.jit(init)(jax.random.PRNGKey(0)))
      ends.append(jax.tree.leaves(jax.device_get(state.training.params)))
  turns.wait().close()
  differences, values = (
    math.hypot(*(float(np.linalg.norm(leaf)) for leaf in leaves))
    for leaves in (
      [one - other for one, other in zip(*ends, strict=True)],
      ends[0],
    )
  )
  return [core, f'{differences / values:.0e}']


_TABLES = {
  'peers': (
    'PPO, T = 128, 4 epochs of 4 minibatches, steps/s',
    ['', 'game', 'environments', 'ftwax', 'PureJaxRL', 'with graphs', 'ratio']
    + ['with graphs', 'first calls, s'],
  ),
  'experiments': (
    f'Medians of {_NUM_CALLS} calls of {_NUM_ITERATIONS} iterations',
    ['', 'steps/s', 'ms an iteration', 'MFLOP a step', 'of the peak', 'memory']
    + ['first call, s'],
  ),
  'cores': (
    'Parameters after three updates on the CPU and the device',
    ['core', 'relative difference'],
  ),
}


def _run_all(rows: Sequence[tuple[str, int]]) -> None:
  """Starts a process for each row; prints the tables."""
  print(f'{len(rows)} processes compile, then are measured', flush=True)
  with tempfile.TemporaryDirectory() as folder:
    processes = [
      subprocess.Popen(
        [sys.executable, *sys.argv, f'--row={table}/{index}/{len(rows)}']
        + [f'--folder={folder}'],
        env={**os.environ, 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
        stdout=subprocess.PIPE,
        text=True,
      )
      for table, index in rows
    ]
    outputs = [process.communicate()[0] for process in processes]
  print(common.machine_line())
  for name, (title, header) in _TABLES.items():
    measured = [
      json.loads(output.splitlines()[-1])
      if process.returncode == 0
      else [f'{index}', 'failed', *[''] * (len(header) - 2)]
      for (table, index), process, output in zip(
        rows, processes, outputs, strict=True
      )
      if table == name
    ]
    if measured:
      common.print_table(title, header, measured)


def main() -> None:
  """Prints the tables, or measures one row of them."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--purejaxrl', help='Clone of PureJaxRL.')
  parser.add_argument('--experiment', default='capture_the_flag')
  parser.add_argument('--flags', action='append', help='Of one row.')
  parser.add_argument('--row', help=argparse.SUPPRESS)
  parser.add_argument('--folder', help=argparse.SUPPRESS)
  arguments = parser.parse_args()
  flags = arguments.flags or _EXPERIMENTS
  if arguments.row:
    table, index, num_rows = arguments.row.split('/')
    turns = _Turns(pathlib.Path(arguments.folder), int(num_rows))
    measure = {
      'peers': lambda i: beside_purejaxrl(arguments.purejaxrl, i, turns),
      'experiments': lambda i: of_experiment(
        arguments.experiment, flags[i], turns
      ),
      'cores': lambda i: on_both(_CORES[i], turns),
    }[table]
    try:
      print(json.dumps(measure(int(index))))
    finally:
      turns.be_ready()
    return
  lengths = {'experiments': len(flags)}
  if not arguments.flags:
    lengths['cores'] = len(_CORES)
  if arguments.purejaxrl:
    lengths['peers'] = len(_PEERS)
  _run_all([(name, i) for name, n in lengths.items() for i in range(n)])


if __name__ == '__main__':
  main()
