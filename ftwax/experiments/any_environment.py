"""Any agent in any environment or game: `ftwax train ENVIRONMENT` runs this.

The environment is the id of a Gymnasium environment, FILE.py:NAME or
MODULE:NAME of a class or function that makes one, or LIBRARY:NAME of

    brax, craftax, gymnax, jumanji, navix, playground, xminigrid
    pgx, jaxmarl, mpe2     games of several players

Where settings that suit it are known, they are the defaults; `cli/tasks.py` has
them. Members of a population play games of several players with each other. In
games of several teams they are evaluated against players that act at random.
"""

import contextlib
import dataclasses
import functools
import importlib
import json
from typing import Any

import jax
import numpy as np

import ftwax
from ftwax import continuous, extras, import_guard, registry, types
from ftwax.agents import named, ppo
from ftwax.cli import flags, launch, tasks
from ftwax.environments import (
  adapting,
  game_vectors,
  games,
  jax_adapters,
  jaxmarl_adapter,
  pgx_adapter,
  specified,
)
from ftwax.networks import cores
from ftwax.population import players, population_config, selection
from ftwax.records import config_files

# The team of each agent of the particle environments.
_TEAMS = {
  'simple_spread': (0, 0, 0),
  'simple_tag': (0, 0, 0, 1),
  'simple_adversary': (0, 1, 1),
  'simple_push': (0, 1),
  'simple_crypto': (0, 1, 1),
}

_PPO = ppo.PPOConfig.name


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  eval_every: int = 50_000
  environment: str = flags.flag(
    'CartPole-v1', 'A Gymnasium id, FILE.py:NAME, MODULE:NAME or LIBRARY:NAME.'
  )
  agent: str = flags.flag(_PPO, 'The agent.', named.STANDARD)
  core: str | None = flags.flag(
    None,
    "The recurrent core; the agent's own by default.",
    tuple(cores.NAMED),
  )
  num_members: int = flags.flag(1, 'Members of the population.')
  team_critic: bool = flags.flag(
    False, 'A value that sees the whole game (MAPPO).'
  )

  def defaults(self) -> dict[str, Any]:
    """Returns the flags that suit the task."""
    return dict(find_settings(self).flags)


def find_settings(options: Options) -> tasks.Settings:
  """Returns the settings that suit the task, without what flags choose."""
  name, is_continuous = options.environment, False
  with contextlib.suppress(Exception):  # Reported when it is made.
    parts = jax.tree.leaves(_read_spec(name).environment.actions)
    is_continuous = all(map(continuous.is_spec, parts))
  settings = tasks.find(name, is_continuous)
  fields = {
    path: value
    for path, value in settings.fields.items()
    if not path.startswith('agent.')
    or options.agent == _PPO
    and not (options.core and path.startswith(_OF_CORES))
  }
  is_ppo = options.agent == _PPO
  return settings._replace(
    fields=fields,
    decays=settings.decays and is_ppo,
    preset=settings.preset if is_ppo else '',
  )


_OF_CORES = ('agent.core', 'agent.skip_connection')


def introduce(options: Options) -> str:
  """Returns what is known of a task, for the first lines of its run."""
  lines = tasks.describe(find_settings(options))
  if not lines:
    return ''
  return '\n'.join([f'Settings that suit {options.environment}:', *lines])


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  settings = find_settings(options)
  changes: dict[str, Any] = {}
  for path, value in settings.fields.items():
    change = config_files.parse(f'{path}={json.dumps(value)}')
    changes = config_files.merge(changes, change)
  core: dict[str, Any] = {} if options.core is None else {'core': options.core}
  source = options.environment
  named_by: dict[str, Any] = {}
  if source.partition(':')[0] in (*_GAMES, 'pgx'):
    named_by = {'name': f'{options.agent}_{source.replace(":", "_")}'}
  make_agent: Any = named.AGENTS[options.agent]
  if settings.preset:
    make_agent = getattr(make_agent, settings.preset)
  critic = _find_critic(options)
  experiment = ftwax.ExperimentConfig(
    agent=make_agent(**core, **critic),
    environment=_find(source, options.team_critic),
    **named_by,
    **options.fields(),
  )
  experiment = launch.change(experiment, changes)
  agent = experiment.agent
  teams = _find_teams(source)
  if (settings.fields or settings.preset) and options.agent == _PPO:
    seats = options.num_environments * len(teams) // options.num_members
    agent = agent.replace(batch_size=max(agent.batch_size, seats))
  if options.offline and not agent.tasks:
    agent = agent.replace(tasks=('clone',))
  agent = options.configure(agent)
  if settings.decays:
    agent = agent.decayed_over(options.max_num_actor_steps, options.num_members)
  experiment = experiment.replace(agent=agent)
  if len(teams) == options.num_members == 1:
    return experiment
  return _seat(experiment, options, is_rated=max(teams) > 0)


def _find_critic(options: Options) -> dict[str, Any]:
  """Returns what a critic that sees the whole game changes in the agent."""
  if not options.team_critic:
    return {}
  if options.agent != _PPO:
    raise ValueError(
      f'agent ({options.agent}) must be ppo with --team_critic; leave one of'
      ' the two out.'
    )
  spec = _read_spec(options.environment, True).environment
  if types.PRIVILEGED not in specified.entries(spec.observations):
    raise ValueError(
      f'environment ({options.environment}) must tell a critic more than'
      ' players see, with --team_critic; give its observations an entry'
      f' {types.PRIVILEGED!r}, or leave --team_critic out.'
    )
  plain = ppo.PPOConfig()
  return {
    name: value
    for name, value in vars(ppo.PPOConfig.team_critic()).items()
    if value != getattr(plain, name)
  }


def _find_teams(source: str) -> tuple[int, ...]:
  """Returns the team of each player."""
  if source.partition(':')[0] in jax_adapters.LIBRARIES:
    return (0,)  # Known without the library.
  return tuple(_read_spec(source).teams)


def _seat(
  experiment: ftwax.ExperimentConfig, options: Options, is_rated: bool
) -> ftwax.ExperimentConfig:
  """Returns an experiment with a population, and whom evaluations meet."""
  library, _, name = options.environment.partition(':')
  environment = experiment.evaluation.environment
  if library in _GAMES:
    environment = functools.partial(
      make_game, library, name, is_evaluation=True, **_told(options.team_critic)
    )
  return experiment.replace(
    population=population_config.PopulationConfig(
      options.num_members,
      exploits=options.num_members > 1 and not options.offline,
      select=selection.WinProbability() if is_rated else selection.Truncation(),
    ),
    opponents={'random': players.uniform} if is_rated else {},
    opponent_share=0.0,
    evaluation=experiment.evaluation.replace(environment=environment),
  )


# Libraries of games that differ in evaluations.
_GAMES = ('jaxmarl', 'mpe2')


def _told(team_state: bool) -> dict[str, bool]:
  """Returns what games are made with; nothing new in records without it."""
  return {'team_state': True} if team_state else {}


def _find(source: str, team_state: bool = False) -> adapting.Environment:
  """Returns what a name on the command line stands for."""
  if '.py:' in source:
    return launch.find_name(source)
  module, colon, name = source.partition(':')
  if module in _GAMES:
    return functools.partial(make_game, module, name, **_told(team_state))
  if module == 'pgx':
    return functools.partial(pgx_adapter.make, name)
  if not colon or module in jax_adapters.LIBRARIES:
    return source
  # A package may also register its environments with Gymnasium.
  import_guard.release()
  return getattr(importlib.import_module(module), name, name)


@functools.cache
def _read_spec(source: str, team_state: bool = False) -> games.GameSpec:
  environment = adapting.accept(_find(source, team_state))
  return game_vectors.read_spec(adapting.make_factory(environment), source)


@registry.register('any_game.game')
def make_game(
  library: str,
  name: str,
  seed: int,
  is_evaluation: bool = False,
  team_state: bool = False,
) -> Any:
  """Returns a game of a library."""
  if library == 'mpe2':
    return _make_mpe2(name, seed, team_state)
  if library not in ('jaxmarl', *jax_adapters.LIBRARIES):
    raise ValueError(
      f'game ({library}:{name}) must name a library and one of its games;'
      ' choose e.g. mpe2:simple_tag.'
    )
  if library != 'jaxmarl':
    return jax_adapters.make(f'{library}:{name}')
  with import_guard.guarded():  # A game may import more.
    return _make_jaxmarl(name, is_evaluation, team_state)


def _make_jaxmarl(name: str, is_evaluation: bool, team_state: bool) -> Any:
  with extras.required(
    'jaxmarl',
    remedy='pip install jaxmarl (Python 3.11 or newer)',
  ):
    package = importlib.import_module('jaxmarl')
  if name == 'overcooked':
    return jaxmarl_adapter.from_jaxmarl(
      package.make(name),
      shaping=float(not is_evaluation),
      has_time_limit=True,
      team_state=team_state,
    )
  if name.startswith('smax_'):
    scenario = package.environments.smax.map_name_to_scenario(name[5:])
    enemy = package.make('HeuristicEnemySMAX', scenario=scenario)
    game = jaxmarl_adapter.from_jaxmarl(enemy, team_state=team_state)
    return game._replace(metrics=jaxmarl_adapter.measure_smax(enemy))
  name_of_mpe = name.removeprefix('MPE_').removesuffix('_v3')
  return jaxmarl_adapter.from_jaxmarl(
    package.make(name),
    _TEAMS.get(name_of_mpe),
    has_time_limit=name.startswith('MPE_'),
    team_state=team_state,
  )


def _has_touched(env: Any, returns: types.NumpyArray) -> types.NumpyArray:
  """Lets those who chase win if they have touched anybody."""
  del env
  return np.array([1, -1] if returns[0] > 0.0 else [-1, 1])


def _make_mpe2(name: str, seed: int, team_state: bool) -> Any:
  from ftwax.environments import pettingzoo_adapter  # Slow import.

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
    team_state=team_state,
  )


if __name__ == '__main__':
  launch.main(__file__)
