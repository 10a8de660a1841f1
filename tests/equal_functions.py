"""Compiles once what equal functions compute.

Each run makes its functions anew: closures of the same code over equal values,
which JAX compiles again. That is most of the time of tests that run often.
"""

import dataclasses
import functools
import pickle
import types

import jax
import numpy as np
import pytest
from dm_env import specs

from ftwax.agents.actor_critic import actor_critic_config

_CONSTANTS = (str, bytes, int, float, type(None))
_COMPARED = (
  jax.sharding.Sharding,
  jax.sharding.Mesh,
  frozenset,
  type,
  types.ModuleType,
)


def share(patch: pytest.MonkeyPatch) -> None:
  """Lets functions, and networks of equal configs, compile once.

  Not for tests that replace what compiled functions call.
  """
  first, networks, kept = {}, {}, []
  jit = jax.jit
  config = actor_critic_config.ActorCriticConfig
  make = config.make_network

  def jit_first(function, **options):
    return jit(first.setdefault(_key(function, kept), function), **options)

  def make_network(self, spec):
    if self.network is not None:  # A user's function may do anything.
      return make(self, spec)
    key = _key((self, spec), kept)
    if key not in networks:
      networks[key] = make(self, spec)
    return networks[key]

  patch.setattr(jax, 'jit', jit_first)
  patch.setattr(config, 'make_network', make_network)


def _key(value, kept, above=()):
  """Returns what is equal for values from which the same is compiled.

  Args:
    value: a function, or what it closes over. What is neither a function nor
      a constant is equal to itself alone.
    kept: keeps such values, so that no identity is given twice.
    above: identities of the values that contain this one.
  """
  if id(value) in above:  # A function that calls itself.
    return 'above', above.index(id(value))

  def keys(*values):
    return tuple(_key(each, kept, (*above, id(value))) for each in values)

  if isinstance(value, types.FunctionType):
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    constants = (value.__module__, value.__defaults__, value.__kwdefaults__)
    return value.__code__, keys(*constants, *cells)
  if isinstance(value, types.MethodType):
    return 'method', keys(value.__func__, value.__self__)
  if isinstance(value, functools.partial):
    return 'partial', keys(value.func, value.args, value.keywords)
  if isinstance(value, _CONSTANTS):
    return type(value), repr(value)
  if isinstance(value, tuple):
    return type(value), keys(*value)
  if isinstance(value, dict):
    return dict, tuple(value), keys(*value.values())
  if isinstance(value, specs.Array):
    return specs.Array, pickle.dumps(value)
  if isinstance(value, np.ndarray) and value.dtype != object:
    return np.ndarray, value.shape, str(value.dtype), value.tobytes()
  if isinstance(value, _COMPARED):
    return value
  if dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen:
    names = [field.name for field in dataclasses.fields(value)]
    return type(value), keys(*(getattr(value, name) for name in names))
  kept.append(value)
  return 'itself', id(value)
