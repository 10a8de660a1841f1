"""Torsos, recurrent cores, memory and heads as pure functions."""

from ftwax.networks.cores import CoreOutput, RecurrentCore, SkipConnection
from ftwax.networks.dnc.core import DNC, DNCConfig
from ftwax.networks.dnc.interfaces import MemoryConfig
from ftwax.networks.embeddings import ObservationEmbedding
from ftwax.networks.gtrxl import GTrXL, GTrXLConfig
from ftwax.networks.heads import HeadOptions, PolicyHead, ValueHead
from ftwax.networks.layer_norm_lstm import LayerNormLSTM, LayerNormLSTMConfig
from ftwax.networks.linear_cores import LinearCore, LinearCoreConfig
from ftwax.networks.noisy import NoisyLinear
from ftwax.networks.recurrent import make_recurrent_network
from ftwax.networks.recurrent_cores import GRU, LSTM, FeedForward
from ftwax.networks.rpth import RPTH, RPTHConfig
from ftwax.networks.stacked_lstm import StackedLSTM, StackedLSTMConfig
from ftwax.networks.torsos import (
  DeepTorso,
  FTWTorso,
  MLPTorso,
  NatureTorso,
  ShallowTorso,
)

__all__ = (
  'CoreOutput',
  'DNC',
  'DNCConfig',
  'DeepTorso',
  'FTWTorso',
  'FeedForward',
  'GRU',
  'GTrXL',
  'GTrXLConfig',
  'HeadOptions',
  'LSTM',
  'LayerNormLSTM',
  'LayerNormLSTMConfig',
  'LinearCore',
  'LinearCoreConfig',
  'MLPTorso',
  'MemoryConfig',
  'NatureTorso',
  'NoisyLinear',
  'ObservationEmbedding',
  'PolicyHead',
  'RPTH',
  'RPTHConfig',
  'RecurrentCore',
  'ShallowTorso',
  'SkipConnection',
  'StackedLSTM',
  'StackedLSTMConfig',
  'ValueHead',
  'make_recurrent_network',
)
