"""Recurrent, memory-augmented actor-critic agents and populations in JAX.

The subpackages are `ftwax.agents`, `ftwax.environments`, `ftwax.networks`,
`ftwax.losses`, `ftwax.population`, `ftwax.replay`, `ftwax.records`,
`ftwax.reporting`, `ftwax.runtime` and `ftwax.inference`.
`ftwax.ExperimentConfig` describes an experiment, `ftwax.run` runs it, and
`ftwax.load` loads an agent from an earlier run. Modules are imported on first
use, at any depth, so that `import ftwax` is fast and enough.
"""

from ftwax import import_guard

# Before any other import: what this library imports must be installed.
import_guard.install()
with import_guard.guarded():
  import importlib
  import inspect
  from typing import TYPE_CHECKING, Any

  from ftwax import errors, submodules
  from ftwax.version import __version__ as __version__

if TYPE_CHECKING:
  from ftwax import acme as acme
  from ftwax import agents as agents
  from ftwax import environments as environments
  from ftwax import hyperparameters as hyperparameters
  from ftwax import inference as inference
  from ftwax import internal_rewards as internal_rewards
  from ftwax import losses as losses
  from ftwax import networks as networks
  from ftwax import parts as parts
  from ftwax import population as population
  from ftwax import records as records
  from ftwax import replay as replay
  from ftwax import reporting as reporting
  from ftwax import runtime as runtime
  from ftwax import types as types
  from ftwax.environments.checking import check as check_environment  # noqa: F401
  from ftwax.inference.loading import load as load
  from ftwax.population.population_config import (
    PopulationConfig as PopulationConfig,
  )
  from ftwax.registry import register as register
  from ftwax.runtime.device.train import make_train as make_train
  from ftwax.runtime.experiment import Evaluation as Evaluation
  from ftwax.runtime.experiment import ExperimentConfig as ExperimentConfig
  from ftwax.runtime.runs import run_experiment as run  # noqa: F401


# Names that are not subpackages, with their modules and names there.
_SHORTCUTS = {
  'Evaluation': ('ftwax.runtime.experiment', 'Evaluation'),
  'ExperimentConfig': ('ftwax.runtime.experiment', 'ExperimentConfig'),
  'PopulationConfig': (
    'ftwax.population.population_config',
    'PopulationConfig',
  ),
  'check_environment': ('ftwax.environments.checking', 'check'),
  'load': ('ftwax.inference.loading', 'load'),
  'make_train': ('ftwax.runtime.device.train', 'make_train'),
  'register': ('ftwax.registry', 'register'),
  'run': ('ftwax.runtime.runs', 'run_experiment'),
}

__all__ = (
  'Evaluation',
  'ExperimentConfig',
  'PopulationConfig',
  'acme',
  'agents',
  'check_environment',
  'environments',
  'hyperparameters',
  'inference',
  'internal_rewards',
  'load',
  'losses',
  'make_train',
  'networks',
  'parts',
  'population',
  'records',
  'register',
  'replay',
  'reporting',
  'run',
  'runtime',
  'types',
)


_get_submodule, __dir__ = submodules.on_first_use(__name__)


def __getattr__(name: str) -> Any:
  if name in _SHORTCUTS:
    module, attribute = _SHORTCUTS[name]
    shortcut = getattr(importlib.import_module(module), attribute)
    if inspect.isfunction(shortcut):
      return errors.shown_briefly(shortcut)
    return shortcut
  return _get_submodule(name)
