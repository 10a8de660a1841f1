"""Runs experiments: locally, on the device, and distributed."""

from ftwax.runtime.device.train import make_train
from ftwax.runtime.experiment import ExperimentConfig, Observer
from ftwax.runtime.loaded_agent import LoadedAgent
from ftwax.runtime.loading import export, load
from ftwax.runtime.runs import RunResult, run_experiment

__all__ = (
  'ExperimentConfig',
  'LoadedAgent',
  'Observer',
  'RunResult',
  'callbacks',
  'comparison',
  'distributed',
  'export',
  'live_game',
  'load',
  'make_train',
  'playable',
  'run_experiment',
  'sweeps',
)
