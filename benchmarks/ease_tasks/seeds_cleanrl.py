import runpy
import sys

for seed in range(3):
  sys.argv[1:] = [f'--seed={seed}', '--total-timesteps=10000']
  runpy.run_module('ppo', run_name='__main__')
