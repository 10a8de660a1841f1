"""Populations: matchmaking, ratings, selection and evolution of members."""

from typing import TYPE_CHECKING

from ftwax import submodules

if TYPE_CHECKING:
  from ftwax.population.evolution import evolve
  from ftwax.population.exploring import Perturb, Resample
  from ftwax.population.matchmaking import ByStrength
  from ftwax.population.players import Player
  from ftwax.population.players import frozen as frozen_player
  from ftwax.population.players import observing as observing_player
  from ftwax.population.players import scripted as scripted_player
  from ftwax.population.players import uniform as uniform_player
  from ftwax.population.population_config import PopulationConfig
  from ftwax.population.selection import (
    Truncation,
    WinProbability,
  )
  from ftwax.population.state import PopulationState
  from ftwax.population.tournament import round_robin, summarize
else:
  __getattr__, __dir__ = submodules.on_first_use(
    __name__,
    {
      'ByStrength': 'matchmaking.ByStrength',
      'Perturb': 'exploring.Perturb',
      'Player': 'players.Player',
      'PopulationConfig': 'population_config.PopulationConfig',
      'PopulationState': 'state.PopulationState',
      'Resample': 'exploring.Resample',
      'Truncation': 'selection.Truncation',
      'WinProbability': 'selection.WinProbability',
      'evolve': 'evolution.evolve',
      'frozen_player': 'players.frozen',
      'observing_player': 'players.observing',
      'round_robin': 'tournament.round_robin',
      'scripted_player': 'players.scripted',
      'summarize': 'tournament.summarize',
      'uniform_player': 'players.uniform',
    },
  )

__all__ = (
  'ByStrength',
  'Perturb',
  'Player',
  'PopulationConfig',
  'PopulationState',
  'Resample',
  'Truncation',
  'WinProbability',
  'evolve',
  'frozen_player',
  'observing_player',
  'round_robin',
  'scripted_player',
  'summarize',
  'uniform_player',
)
