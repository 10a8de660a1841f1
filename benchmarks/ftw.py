"""Speed and memory of a learner step of the whole For-The-Win agent.

    uv run benchmarks/ftw.py

84x84x3 uint8, 5 actions, hidden and latent size 256, batch 16. Each line runs
in its own process with one malloc arena, so that its peak memory and the
seconds to the first finished step are its own.

Times are CPU seconds of the fastest call, which other work on the machine
changes least. Figures of the TensorFlow agent, which only runs on Python 3.8,
were recorded by wall clock on two other cores, of which it took between one and
two: ours is faster by a factor between the ones for one and for two cores.
"""

import argparse
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
_LEARNER_LINES = [
  ('rpth', 'exact', 20, False),
  ('rpth', 'exact', 20, True),
  ('rpth_dnc', 'exact', 20, False),
  ('rpth_dnc', 'sparse', 20, False),
  ('rpth_dnc', 'none', 20, False),
  ('rpth', 'exact', 100, False),
]


def _make_config(core, linkage, sequence_length, auxiliary):
  from ftwax.agents import ftw
  from ftwax.agents.actor_critic import tasks
  from ftwax.networks import cores

  hierarchy = ftw.FTWConfig().core.replace(memory=cores.Memory(linkage=linkage))
  kl, *others = ftw.FTWConfig().tasks
  others = [tasks.PixelControl(crop_size=(80, 80)), others[1]]
  chosen = [kl] if core.startswith('rpth') else []
  return ftw.FTWConfig(
    core=ftw.named_core(core, hierarchy),
    tasks=(*chosen, *(others if auxiliary else ())),
    sequence_length=sequence_length,
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
  if len(config.tasks) > 1:
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


def _measure(call, *, seconds, warmup):
  """Returns the seconds of the processor of the fastest call."""
  return common.measure(
    call, seconds=seconds, warmup=warmup, clock=time.process_time
  ).minimum


def _run_line(line, seconds):
  """Measures a line in its own process."""
  result = subprocess.run(
    [
      sys.executable,
      __file__,
      f'--line={json.dumps(line)}',
      f'--seconds={seconds}',
    ],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    check=True,
    env={**os.environ, 'MALLOC_ARENA_MAX': '1'},
  )
  return json.loads(result.stdout.strip().splitlines()[-1])


def _describe_speedup(ratio):
  """Returns how many times as fast ours is, on one core and on two."""
  return f'{ratio:.1f} to {2 * ratio:.1f}'


def _print_learner(seconds):
  rows = []
  for line in _LEARNER_LINES:
    core, linkage, length, auxiliary = line
    row = _run_line(line, seconds)
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


def main():
  """Prints the table, or measures a single line."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--seconds', type=float, default=4.0)
  parser.add_argument('--line', default='')
  arguments = parser.parse_args()
  if arguments.line:
    row = _learner_line(arguments.seconds, *json.loads(arguments.line))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**row, 'peak_gb': peak_kb / 1e6}))
    return
  print(common.machine_line())
  _print_learner(arguments.seconds)


if __name__ == '__main__':
  main()
