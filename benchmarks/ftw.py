"""Speed and memory of the whole For-The-Win agent, acting and learning.

    uv run benchmarks/ftw.py [--tables=learner,acting,agent]

84x84x3 uint8, 5 actions, hidden and latent size 256, batch 16. Each line runs
in its own process, so that its peak memory and the seconds to the first
finished step are its own. As in a distributed run, it has one malloc arena, and
a single thread if it only acts.

Times are seconds of the processor of the fastest call, which other work on the
machine changes least; those of acting include Reverb's server. Figures of the
TensorFlow agent, which only runs on Python 3.8, were recorded by wall clock on
two other cores, of which it took between one and two: learning, ours is faster
by a factor between those of one and of two cores. `networks.py` compares with
networks in TensorFlow in the same run.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time

import common

# Seconds per step, peak GB.
_TENSORFLOW = {
  ('rpth', 20, False): (0.43, 1.13),
  ('rpth', 20, True): (1.09, 1.44),
  ('rpth_dnc', 20, False): (2.2, 3.5),
  ('rpth', 100, False): (6.2, 3.1),
}
# Environment steps per second of acting with adders, and of the whole agent.
_TENSORFLOW_ACTING = {'rpth': 380, 'rpth_dnc': 137}
_TENSORFLOW_AGENT = {('rpth', True): 94, ('rpth_dnc', False): 50}

_LEARNER_LINES = [
  ('rpth', 'exact', 20, False),
  ('rpth', 'exact', 20, True),
  ('rpth_dnc', 'exact', 20, False),
  ('rpth_dnc', 'sparse', 20, False),
  ('rpth_dnc', 'none', 20, False),
  ('rpth', 'exact', 100, False),
]
_ACTING_LINES = [('rpth', 'exact'), ('rpth_dnc', 'exact')]
_AGENT_LINES = [('rpth', 'exact', True), ('rpth_dnc', 'exact', False)]


def _make_config(core, linkage, sequence_length, auxiliary):
  from ftwax.agents import ftw
  from ftwax.networks.dnc import interfaces

  return ftw.FTWConfig.paper(
    core=core,
    memory=interfaces.MemoryConfig(linkage=linkage),
    sequence_length=sequence_length,
    use_pixel_control=auxiliary,
    use_reward_prediction=auxiliary,
    crop_size=(80, 80),
  )


def _make_batch(config, spec, network):
  """Returns a random batch for all tasks enabled in the config."""
  import dm_env
  import jax
  import numpy as np

  from ftwax import types

  rng = np.random.default_rng(0)
  num_rows, size = config.sequence_length + 1, config.batch_size
  shape = spec.observations.shape

  def trajectory():
    rows = (num_rows, size)
    return types.Trajectory(
      timestep=dm_env.TimeStep(
        step_type=np.full(rows, dm_env.StepType.MID, np.int32),
        reward=rng.normal(size=rows).astype(np.float32),
        discount=np.ones(rows, np.float32),
        observation=rng.integers(0, 256, (*rows, *shape), np.uint8),
      ),
      previous_action=rng.integers(0, 5, rows).astype(np.int32),
      logits=np.zeros((num_rows - 1, size, 5), np.float32),
      recurrent_state=network.initial_state(size),
    )

  batch = types.LearnerBatch(trajectory())
  if config.use_pixel_control:
    batch = types.LearnerBatch(
      batch.trajectory,
      types.ReplayBatch(trajectory(), np.bool_(True)),
      types.RewardPredictionBatch(
        rng.integers(0, 256, (3, size, *shape), np.uint8),
        rng.normal(size=size).astype(np.float32),
        np.bool_(True),
      ),
    )
  return jax.device_put(batch)


def _learner_line(seconds, *line):
  """Measures updates alone, on a batch on the device, without replay."""
  import jax

  from ftwax import compilation

  config, spec = _make_config(*line), common.pixel_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  state = compilation.jit_unoptimized(core.init)(jax.random.PRNGKey(0))
  batch = _make_batch(config, spec, network)
  update = compilation.jit(core.update, donate_argnums=0)

  def call():
    nonlocal state
    state, _ = jax.block_until_ready(update(state, batch))

  before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  call()
  first = time.process_time()
  measured = _measure(call, seconds=seconds, warmup=0)
  return {
    'seconds': measured,
    'first_step': first,
    'start_gb': before_kb / 1e6,
  }


def _acting_line(seconds, *line):
  """Measures acting in one environment and writing to Reverb, no learning."""
  import itertools

  import parts

  config = _make_config(*line, 20, True).replace(max_queue_size=4000)
  spec = common.pixel_spec()
  agent = parts.Agent(spec, config, 1)
  timesteps = itertools.cycle(parts.random_timesteps(spec, 1))

  def call():  # Each call writes one item.
    for _ in range(config.sequence_length):
      action = agent.actor.select_action(None)
      agent.actor.observe(action, next(timesteps))

  agent.actor.observe_first(next(timesteps))
  measured = _measure(call, seconds=seconds, warmup=3)
  agent.close()
  return {'steps_per_second': config.sequence_length / measured}


def _agent_line(seconds, core, linkage, auxiliary):
  """Measures acting, writing and learning in one process, 8 environments."""
  import itertools

  import parts

  config = _make_config(core, linkage, 20, auxiliary)
  spec, num_environments = common.pixel_spec(), 8
  agent = parts.Agent(spec, config, num_environments)
  timesteps = itertools.cycle(parts.random_timesteps(spec, num_environments))

  def call():  # As many steps as two updates use.
    for _ in range(80):
      action = agent.actor.select_action(None)
      agent.actor.observe(action, next(timesteps))
      agent.update()

  agent.actor.observe_first(next(timesteps))
  measured = _measure(call, seconds=seconds, warmup=1)
  agent.close()
  return {'steps_per_second': 80 * num_environments / measured}


def _measure(call, *, seconds, warmup):
  """Returns the seconds of the processor of the fastest call."""
  return common.measure(
    call, seconds=seconds, warmup=warmup, clock=time.process_time
  ).minimum


_KINDS = {
  'learner': _learner_line,
  'acting': _acting_line,
  'agent': _agent_line,
}


# One thread each.
_ENVIRONMENTS = {
  'acting': {
    'XLA_FLAGS': '--xla_cpu_multi_thread_eigen=false',
    'OMP_NUM_THREADS': '1',
  }
}


def _run_line(kind, line, seconds):
  """Measures a line in its own process."""
  result = subprocess.run(
    [
      sys.executable,
      __file__,
      f'--line={json.dumps([kind, *line])}',
      f'--seconds={seconds}',
    ],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    check=True,
    env={**os.environ, **_ENVIRONMENTS.get(kind, {}), 'MALLOC_ARENA_MAX': '1'},
  )
  return json.loads(result.stdout.strip().splitlines()[-1])


def _describe_speedup(ratio):
  """Returns how many times as fast ours is, on one core and on two."""
  return f'{ratio:.1f} to {2 * ratio:.1f}'


def _print_learner(seconds):
  rows = []
  for line in _LEARNER_LINES:
    core, linkage, length, auxiliary = line
    row = _run_line('learner', line, seconds)
    peer = _TENSORFLOW.get((core, length, auxiliary))
    rows.append(
      [
        core
        if core == 'rpth'
        else f'{core}, {linkage} links'.replace('none', 'no'),
        length,
        'both' if auxiliary else 'none',
        f'{row["seconds"]:.2f}',
        _describe_speedup(peer[0] / row['seconds']) if peer else '-',
        f'{row["start_gb"]:.2f}',
        f'{row["peak_gb"]:.2f}',
        f'{row["peak_gb"] / peer[1]:.2f}' if peer else '-',
        f'{row["first_step"]:.0f}',
      ]
    )
  common.print_table(
    'Learner, batch 16, seconds of the processor',
    ['core', 'T', 'tasks', 's/step', 'x TensorFlow', 'GB before a step']
    + ['peak GB', 'of TensorFlow', 's to the first step'],
    rows,
  )


def _print_steps(title, kind, lines, peers, describe, seconds):
  rows = []
  for line in lines:
    key = line[0] if kind == 'acting' else (line[0], line[2])
    row = _run_line(kind, line, seconds)
    speed = row['steps_per_second']
    rows.append(
      [line[0], f'{speed:.0f}', describe(speed / peers[key])]
      + [f'{row["peak_gb"]:.2f}']
    )
  common.print_table(
    f'{title}, steps in a second of the processor',
    ['core', 'steps/s', 'x TensorFlow', 'peak GB'],
    rows,
  )


_TABLES = {
  'learner': _print_learner,
  'acting': functools.partial(
    _print_steps,
    'Acting in one environment and writing to Reverb, one thread',
    'acting',
    _ACTING_LINES,
    _TENSORFLOW_ACTING,
    '{:.1f}'.format,
  ),
  'agent': functools.partial(
    _print_steps,
    'The whole agent in one process, 8 environments',
    'agent',
    _AGENT_LINES,
    _TENSORFLOW_AGENT,
    _describe_speedup,
  ),
}


def main():
  """Prints the tables, or measures a single line."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--seconds', type=float, default=4.0)
  parser.add_argument('--tables', default=','.join(_TABLES))
  parser.add_argument('--line', default='')
  arguments = parser.parse_args()
  if arguments.line:
    kind, *line = json.loads(arguments.line)
    row = _KINDS[kind](arguments.seconds, *line)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**row, 'peak_gb': peak_kb / 1e6}))
    return
  print(common.machine_line())
  for name in arguments.tables.split(','):
    _TABLES[name](arguments.seconds)


if __name__ == '__main__':
  main()
