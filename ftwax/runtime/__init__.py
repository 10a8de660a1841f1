"""Runs experiments: locally, on the device, and distributed."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.runtime.device.train import make_train
from ftwax.runtime.experiment import ExperimentConfig, Observer
from ftwax.runtime.runs import RunResult, run_experiment

if TYPE_CHECKING:
  from ftwax.runtime import callbacks, comparison, distributed, sweeps
else:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

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
