"""Torsos, recurrent cores, memory and heads as pure functions."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.networks import cores, heads, recurrence, torsos
from ftwax.networks.dnc.interfaces import Memory
from ftwax.networks.embeddings import ObservationEmbedding
from ftwax.networks.entry_torsos import (
  DeepTorso,
  FTWTorso,
  MLPTorso,
  NatureTorso,
  ShallowTorso,
)
from ftwax.networks.heads import Heads, PolicyHead, ValueHead
from ftwax.networks.noisy import NoisyLinear
from ftwax.networks.recurrence import (
  CoreOutput,
  RecurrentCore,
  SkipConnection,
  from_step,
)
from ftwax.networks.recurrent import make_recurrent_network
from ftwax.networks.torsos import Torso

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'CoreOutput',
  'DeepTorso',
  'FTWTorso',
  'Heads',
  'MLPTorso',
  'Memory',
  'NatureTorso',
  'NoisyLinear',
  'ObservationEmbedding',
  'PolicyHead',
  'RecurrentCore',
  'ShallowTorso',
  'SkipConnection',
  'Torso',
  'ValueHead',
  'cores',
  'from_step',
  'heads',
  'make_recurrent_network',
  'recurrence',
  'torsos',
)
