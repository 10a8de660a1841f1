"""A population learns a game of another library: any teams, any roles.

    uv run --with mpe2 experiments/any_game.py --game=mpe2:simple_tag

Games of mpe2 are in Python. All others are in JAX, need Python 3.11 or newer,
and run on the device:

    --with jaxmarl    --game=jaxmarl:overcooked, jaxmarl:MPE_simple_spread_v3,
                      jaxmarl:smax_3m
    --with craftax    --game=craftax:Craftax-Classic-Symbolic-v1

In games of several teams, members are evaluated against players that act
uniformly at random.
"""

import dataclasses
import functools
import importlib
from typing import Any

import numpy as np

import ftwax
from ftwax import extras, import_guard, registry, types
from ftwax.agents import ppo
from ftwax.cli import flags, launch
from ftwax.environments import (
  game_vectors,
  jax_adapters,
  jaxmarl_adapter,
)
from ftwax.networks import cores, torsos
from ftwax.population import players, population_config, selection

# The team of each agent of the particle environments.
_TEAMS = {
  'simple_spread': (0, 0, 0),
  'simple_tag': (0, 0, 0, 1),
  'simple_adversary': (0, 1, 1),
  'simple_push': (0, 1),
  'simple_crypto': (0, 1, 1),
}

_MLP = torsos.Torso(hidden_sizes=(128,))

# Flags and fields of the agent with which games are learnt, by the start of
# their names; each row adds to those above it.
_SETTINGS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
  (
    'mpe2:',
    {'max_num_actor_steps': 300_000, 'eval_every': 100_000},
    {'discount': 0.95, 'normalize_returns': True},
  ),
  ('mpe2:simple_spread', {'num_members': 1}, {}),
  (
    'jaxmarl:',
    {
      'num_members': 1,
      'max_num_actor_steps': 300_000,
      'eval_every': 100_000,
    },
    {'normalize_returns': True},
  ),
  ('jaxmarl:MPE', {}, {'discount': 0.95}),
  (
    'jaxmarl:overcooked',
    {
      'max_num_actor_steps': 1_500_000,
      'eval_every': 500_000,
      'num_eval_episodes': 10,
    },
    {'sequence_length': 64, 'torso': _MLP.replace(entries={'': 'mlp'})},
  ),
  (
    'craftax:',
    {'num_members': 1, 'num_eval_episodes': 64},
    {'sequence_length': 32, 'num_epochs': 2},
  ),
  (
    'craftax:Craftax-Symbolic',
    {'eval_every': 0},
    {
      'core': 'gru',
      'sequence_length': 64,
      'num_epochs': 4,
      'num_minibatches': 8,
      'discount': 0.95,
      'gae_lambda': 0.8,
      'max_gradient_norm': 1.0,
    },
  ),
)


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 1_000_000
  num_environments: int = 32
  eval_every: int = 250_000
  num_eval_episodes: int = 100
  num_members: int = flags.flag(2, 'Members of the population.')
  game: str = flags.flag('mpe2:simple_tag', 'The library and its game.')

  def defaults(self) -> dict[str, Any]:
    """Returns the defaults of flags for the game."""
    is_python = self.game.startswith('mpe2:')
    jax_only = (
      {} if is_python else {'runtime': 'device', 'num_environments': 64}
    )
    return {**jax_only, **_settings(self.game)[0]}


def _settings(game: str) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the flags and the fields of the agent for a game."""
  settings: tuple[dict[str, Any], dict[str, Any]] = {}, {}
  for start, *parts in _SETTINGS:
    if game.startswith(start):
      for found, part in zip(settings, parts, strict=True):
        found.update(part)
  return settings


@registry.register('any_game.game')
def make_game(
  library: str, name: str, seed: int, is_evaluation: bool = False
) -> Any:
  """Returns a game of a library."""
  if library == 'mpe2':
    return _make_mpe2(name, seed)
  if library not in ('jaxmarl', *jax_adapters.LIBRARIES):
    raise ValueError(
      f'game ({library}:{name}) must name a library and one of its games;'
      ' choose e.g. mpe2:simple_tag.'
    )
  if library != 'jaxmarl':
    return jax_adapters.make(f'{library}:{name}')
  with import_guard.guarded():  # A game may import more.
    return _make_jaxmarl(name, is_evaluation)


def _make_jaxmarl(name: str, is_evaluation: bool) -> Any:
  with extras.required(
    'jaxmarl',
    remedy='pip install jaxmarl (Python 3.11 or newer)',
  ):
    package = importlib.import_module('jaxmarl')
  if name == 'overcooked':
    return jaxmarl_adapter.from_jaxmarl(
      package.make(name), shaping=float(not is_evaluation), has_time_limit=True
    )
  if name.startswith('smax_'):
    scenario = package.environments.smax.map_name_to_scenario(name[5:])
    enemy = package.make('HeuristicEnemySMAX', scenario=scenario)
    return jaxmarl_adapter.from_jaxmarl(enemy)
  name_of_mpe = name.removeprefix('MPE_').removesuffix('_v3')
  return jaxmarl_adapter.from_jaxmarl(
    package.make(name),
    _TEAMS.get(name_of_mpe),
    has_time_limit=name.startswith('MPE_'),
  )


def _has_touched(env: Any, returns: types.NumpyArray) -> types.NumpyArray:
  """Lets those who chase win if they have touched anybody."""
  del env
  return np.array([1, -1] if returns[0] > 0.0 else [-1, 1])


def _make_mpe2(name: str, seed: int) -> Any:
  from ftwax.environments import pettingzoo_adapter  # Needs Gymnasium.

  if name not in _TEAMS:
    raise ValueError(
      f'game (mpe2:{name}) must be one of {sorted(_TEAMS)}; choose one.'
    )
  with extras.required('mpe2', 'envs'):
    env = importlib.import_module(f'mpe2.{name}_v3').parallel_env()
  return pettingzoo_adapter.PettingZooGame(
    env,
    _TEAMS[name],
    seed,
    outcome_fn=_has_touched if name == 'simple_tag' else None,
  )


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  library, _, name = options.game.partition(':')
  make = functools.partial(make_game, library, name)
  spec = game_vectors.read_spec(make, 'game')
  seats = options.num_environments * spec.num_players // options.num_members
  settings: dict[str, Any] = {
    'core': cores.FeedForward(128),
    'torso': _MLP,
    'batch_size': seats,
    'num_epochs': 4,
    'num_minibatches': 4,
    **_settings(options.game)[1],
  }
  config = options.configure(ppo.PPOConfig(**settings))
  config = config.decayed_over(options.max_num_actor_steps, options.num_members)
  is_rated = max(spec.teams) > 0
  opponents = {'random': players.uniform} if is_rated else {}
  return ftwax.ExperimentConfig(
    name=options.game.replace(':', '_'),
    agent=config,
    environment=make,
    population=population_config.PopulationConfig(
      options.num_members,
      exploits=options.num_members > 1,
      select=selection.WinProbability() if is_rated else selection.Truncation(),
    ),
    opponents=opponents,
    opponent_share=0.0,
    evaluation=ftwax.Evaluation(
      functools.partial(make, is_evaluation=True),
      # Where others play, it may take chance to do well; in Craftax, the most
      # probable actions repeat themselves.
      greedy=spec.num_players == 1 and library != 'craftax',
    ),
    steps_per_round=32 * config.sequence_length,
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
