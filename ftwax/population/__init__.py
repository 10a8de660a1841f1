"""Populations: matchmaking, ratings, selection and evolution of members."""

from ftwax.population.evolution import evolve
from ftwax.population.evolution import perturb as perturb
from ftwax.population.evolution import resample as resample
from ftwax.population.matchmaking import Meetings
from ftwax.population.matchmaking import by_strength as match_by_strength
from ftwax.population.players import Player
from ftwax.population.players import frozen as frozen_player
from ftwax.population.players import scripted as scripted_player
from ftwax.population.players import uniform as uniform_player
from ftwax.population.population_config import PopulationConfig
from ftwax.population.selection import (
  multiple_frequencies,
  t_test,
  truncation,
  win_probability,
)
from ftwax.population.state import PopulationState
from ftwax.population.tournament import round_robin, summarize

__all__ = (
  'Meetings',
  'Player',
  'PopulationConfig',
  'PopulationState',
  'evolve',
  'frozen_player',
  'match_by_strength',
  'multiple_frequencies',
  'perturb',
  'resample',
  'round_robin',
  'scripted_player',
  'summarize',
  't_test',
  'truncation',
  'uniform_player',
  'win_probability',
)
