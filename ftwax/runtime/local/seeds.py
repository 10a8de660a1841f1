"""Seeds of environments."""

import numpy as np


def make_seeds(entropy: tuple[int, ...], num_seeds: int) -> list[int]:
  """Returns seeds below 2**31; different entropy gives different seeds."""
  sequence = np.random.SeedSequence(entropy)
  # Words have 32 bits; many simulators take signed seeds of 32 bits.
  return [int(x) >> 1 for x in sequence.generate_state(num_seeds)]
