"""The recurrent cores, each a part with its options.

A part's `make` is called within a Haiku transform and makes its module. A class
or function of your own that makes a `recurrence.RecurrentCore` serves as well:

    PPOConfig(core='gru')
    PPOConfig(core=cores.RPTH(64, memory=cores.Memory(num_slots=16)))
    PPOConfig(core=MyCore)

`NAMED` has them by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ftwax import parts
from ftwax.networks import (
  core_parts,
  gtrxl,
  linear_cores,
  recurrence,
  recurrent_cores,
  rpth,
  stacked_lstm,
)
from ftwax.networks.dnc import core as dnc_core
from ftwax.networks.dnc import interfaces

Core = core_parts.Core
DNC = dnc_core.DNC
FeedForward = recurrent_cores.FeedForward
GRU = recurrent_cores.GRU
GTrXL = gtrxl.GTrXL
LRU = linear_cores.LRU
LSTM = recurrent_cores.LSTM
Memory = interfaces.Memory
MinGRU = linear_cores.MinGRU
RPTH = rpth.RPTH
SizedCore = core_parts.SizedCore
StackedLSTM = stacked_lstm.StackedLSTM

# A part, or a class or function that makes a core of a user's own; called
# within a Haiku transform.
MakeCore = Core | Callable[[], recurrence.RecurrentCore]

# The cores by name, each with the defaults of its part.
NAMED: Mapping[str, Any] = {
  'lstm': LSTM(),
  'gru': GRU(),
  'lru': LRU(),
  'min_gru': MinGRU(),
  'gtrxl': GTrXL(),
  'feed_forward': FeedForward(),
  'stacked_lstm': StackedLSTM(),
  'dnc': DNC(),
  'rpth': RPTH(),
  'rpth_dnc': RPTH(memory=Memory()),
}


def find(core: Any) -> Any:
  """Returns the core of a name or class; anything else as it is."""
  return parts.find('core', core_parts.instantiate(core), NAMED)


as_part = core_parts.as_part
