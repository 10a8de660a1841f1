"""Environments and games in JAX, and adapters for other libraries.

Adapters such as `ftwax.environments.gymnasium_adapter` import their library
only when they are imported themselves.
"""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.environments import (
  absences,
  bandits,
  capture_the_flag,
  catch,
  copying,
  delays,
  functional,
  game_pages,
  games,
  memory_chain,
  recall,
)
from ftwax.environments.functional import FunctionalEnvironment, FunctionalGame
from ftwax.environments.games import GameEnvironment
from ftwax.environments.process_games import Stepping

if TYPE_CHECKING:
  from ftwax.environments import (
    adapting,
    atari,
    atari_vector,
    curricula,
    gymnasium_adapter,
    jax_adapters,
    jaxmarl_adapter,
    pettingzoo_adapter,
    pgx_adapter,
    vector,
  )
else:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'FunctionalEnvironment',
  'FunctionalGame',
  'GameEnvironment',
  'Stepping',
  'absences',
  'adapting',
  'atari',
  'atari_vector',
  'bandits',
  'capture_the_flag',
  'catch',
  'copying',
  'curricula',
  'delays',
  'functional',
  'game_pages',
  'games',
  'gymnasium_adapter',
  'jax_adapters',
  'jaxmarl_adapter',
  'memory_chain',
  'pettingzoo_adapter',
  'pgx_adapter',
  'recall',
  'vector',
)
