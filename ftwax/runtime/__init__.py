"""Runs experiments: locally, on the device, and distributed."""

from ftwax.runtime.device.train import make_train
from ftwax.runtime.experiment import ExperimentConfig, Observer
from ftwax.runtime.runs import RunResult, run_experiment

__all__ = (
  'ExperimentConfig',
  'Observer',
  'RunResult',
  'callbacks',
  'comparison',
  'distributed',
  'make_train',
  'run_experiment',
  'sweeps',
)
