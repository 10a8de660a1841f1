import glob
import runpy
import sys

import numpy as np
from matplotlib import pyplot as plt
from tensorboard.backend.event_processing import event_accumulator

for rate in (1e-4, 1e-3, 1e-2):
  curves, edges = [], np.linspace(0, 10_000, 6)
  for seed in range(3):
    sys.argv[1:] = [
      f'--exp-name=sweep_{rate}',
      f'--learning-rate={rate}',
      f'--seed={seed}',
      '--total-timesteps=10000',
    ]
    runpy.run_module('ppo', run_name='__main__')
    (path,) = glob.glob(f'runs/*__sweep_{rate}__{seed}__*')
    events = event_accumulator.EventAccumulator(path).Reload()
    rows = events.Scalars('charts/episodic_return')
    steps, returns = np.array([(row.step, row.value) for row in rows]).T
    parts = np.digitize(steps, edges)
    curves.append([returns[parts == i].mean() for i in range(1, len(edges))])
  plt.plot(edges[1:], np.mean(curves, 0), label=f'learning rate {rate}')
  plt.fill_between(edges[1:], np.min(curves, 0), np.max(curves, 0), alpha=0.3)
plt.legend()
plt.savefig('sweep.png')
