"""Whether memory matters in first person: cores, whole and with parts cut.

    uv run research/first_person.py

Trains a population of each core on `--game=first_person`, three seeds of 40M
steps each, and prints `benchmarks/ablation.py`'s table: scores against the
scripts at equal steps and at equal processor time. Then the member of each run
that scores best on some games plays others as it is, and

  forgets    with the recurrent state zeroed before each step
  slow cut   with the parameters of the slow core zeroed, for hierarchies

At last, linear probes of its recurrent state say where things are that no ray
hits at this step: the own flag, the nearest opponent and the team mate; see
`read_places`. They are compared to probes of an untrained state, which observes
the same games, and chance is 0.5.

Runs, finished cuts and probes are kept in `--directory`, and an interrupted
program goes on. `--demonstrations=DIR` trains on recorded games, too.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import evolution
import jax
import jax.numpy as jnp
import numpy as np
import probes
import what_it_knows

from ftwax import types
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag as game_lib
from ftwax.environments.capture_the_flag import features, rays, rules, views
from ftwax.experiments import capture_the_flag  # noqa: TID251
from ftwax.inference import loading

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'benchmarks'))

import ablation  # noqa: E402
import common  # noqa: E402

VARIANTS = (
  'without_recurrence',
  'with_gru',
  'main_experiment',
  'with_lru',
  'with_hierarchy',
  'with_memory',
)


# Files of finished cells.
CUTS, PROBES = 'cuts.jsonl', 'probes.jsonl'

# Things whose places are probed, and the opponent in those games.
THINGS = ('own flag', 'opponent', 'team mate')
_OPPONENT = 'attacker'

_Config = game_lib.CaptureTheFlagConfig


@dataclasses.dataclass(frozen=True)
class Options(ablation.Options):
  """Flags of this program."""

  game: str = 'first_person'
  max_num_actor_steps: int = 40_000_000
  directory: str = 'runs/first_person'
  variants: tuple[str, ...] = VARIANTS
  first_seed: int = 600
  num_games: int = flags.flag(200, 'Games of each member, cut or not.')
  num_probed: int = flags.flag(60, 'Games whose states are probed.')


def forgetful(policy: types.ActorCore) -> types.ActorCore:
  """Returns a policy whose recurrent state is zero before each step."""

  def select_action(variables: Any, timestep: Any, state: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, state.recurrent_state)
    state = state._replace(recurrent_state=zeros)
    return policy.select_action(variables, timestep, state)

  return policy._replace(select_action=select_action)


def without_slow_core(variables: Any) -> Any:
  """Returns variables in which the parameters of the slow core are zero."""
  params = {
    module: jax.tree.map(jnp.zeros_like, leaves)
    if 'level_1' in module
    else leaves
    for module, leaves in variables.params.items()
  }
  return variables._replace(params=params)


class Places(NamedTuple):
  """Where `THINGS` are from the seats of team 0, bool [S, 3].

  Attributes:
    is_ahead: whether each is ahead of the player, and not beside or behind it.
    is_right: whether it is to its right.
    is_unseen: whether no ray of this step hits one.
  """

  is_ahead: types.Array
  is_right: types.Array
  is_unseen: types.Array


def read_places(state: rules.State, config: _Config) -> Places:
  """Returns where things are, for games of two against two."""
  things = views.locate(state, config)
  ahead, right = jnp.unstack(things.offset[:2], axis=1)  # [S, K]
  # Team mate, two opponents, own flag; see `views.Things`.
  distance = jnp.abs(ahead) + jnp.abs(right)
  waits = (state.waiting > 0)[views.others(config)[:2]]  # [S, 3]
  far = jnp.where(waits[:, 1:], config.height + config.width, distance[:, 1:3])
  nearest = 1 + jnp.argmin(far, axis=1)
  index = jnp.stack([jnp.full(2, 3), nearest, jnp.zeros(2, int)], axis=1)
  hits = jnp.any(rays.cast(state, config, things)[:2] > 0, axis=-1)  # [S, C]
  channels = [
    features.CHANNELS.index(name)
    for name in ('own_flag', 'opponents', 'teammates')
  ]
  is_there = jnp.stack(
    [jnp.ones(2, bool), ~waits[:, 1:].all(axis=1), ~waits[:, 0]], axis=1
  )
  is_active = (state.waiting[:2] == 0)[:, None]
  return Places(
    jnp.take_along_axis(ahead, index, axis=1) > 0,
    jnp.take_along_axis(right, index, axis=1) > 0,
    ~hits[:, np.array(channels)] & is_there & is_active,
  )


def find_places(
  places: Places, states: types.NumpyArray, most: int = 20_000
) -> list[float]:
  """Returns the area under the curve of probes, by thing.

  A probe is fitted to two thirds of the games and scored on the others.

  Args:
    places: leaves [T, G, S, 3].
    states: float [T, G, S, D].
    most: number of states that are taken, at most, of each part.
  """
  rng = np.random.default_rng(0)
  num_fitted = 2 * states.shape[1] // 3
  areas = []
  for thing in range(len(THINGS)):
    parts = []
    for games in (slice(None, num_fitted), slice(num_fitted, None)):
      rows = np.argwhere(places.is_unseen[:, games, :, thing])
      rows = rows[rng.permutation(len(rows))[:most]]
      at = tuple(rows.T)
      answers = np.stack(
        [
          part[:, games, :, thing][at]
          for part in (places.is_ahead, places.is_right)
        ],
        axis=1,
      )
      parts.append((states[:, games][at], answers))
    fitted, held = parts
    areas.append(float(probes.score(probes.fit(*fitted), *held).auc.mean()))
  return areas


def probe(options: Options, variant: str, seed: int) -> dict[str, Any]:
  """Probes the states of the best member of a run, and of an untrained one."""
  options = dataclasses.replace(options, seed=seed)
  directory = ablation.run_directory(options, variant, seed)
  experiment = ablation.VARIANTS[variant](capture_the_flag.build(options))
  best = _read(options, CUTS)[variant, seed]['best']
  agent = loading.load(directory, best, greedy=False, experiment=experiment)
  config = capture_the_flag.make_game_config(options.agent, options.game)
  record = what_it_knows.play(
    agent,
    loading.initial_variables(directory, seed, experiment),
    game_lib.make(config),
    config,
    what_it_knows.Options('', _OPPONENT, options.num_probed, seed),
    read_places,
  )
  return {
    'variant': variant,
    'seed': seed,
    'trained': find_places(record.facts, record.states),
    'untrained': find_places(record.facts, record.untrained),
  }


def cut(options: Options, variant: str, seed: int) -> dict[str, Any]:
  """Plays with the best member of a run, as it is and with parts cut."""
  options = dataclasses.replace(options, seed=seed)
  experiment = ablation.VARIANTS[variant](capture_the_flag.build(options))
  directory = ablation.run_directory(options, variant, seed)
  agents = loading.load_members(directory, experiment=experiment)
  variables = [agent.variables for agent in agents]
  choice = evolution.Games(experiment, len(agents), options.num_games)
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *variables)
  best = int(np.argmax(choice.play(stacked, 0).mean(axis=1)))
  member = jax.tree.map(lambda leaf: leaf[None], variables[best])
  intact = evolution.Games(experiment, 1, options.num_games)
  forgets = evolution.Games(experiment, 1, options.num_games, forgetful)
  scores = {
    'as it is': intact.play(member, 1),
    'forgets': forgets.play(member, 1),
  }
  if any('level_1' in module for module in member.params):
    scores['slow cut'] = intact.play(without_slow_core(member), 1)
  return {
    'variant': variant,
    'seed': seed,
    'best': best,
    **{name: found[0].tolist() for name, found in scores.items()},
  }


def _read(options: Options, name: str) -> dict[tuple[str, int], Any]:
  """Returns the finished cells of a file by variant and seed."""
  path = pathlib.Path(options.directory) / name
  if not path.exists():
    return {}
  cells = map(json.loads, path.read_text('utf-8').splitlines())
  return {(cell['variant'], cell['seed']): cell for cell in cells}


def _own(options: Options, name: str, variant: str) -> list[Any]:
  """Returns the finished cells of a variant."""
  cells = _read(options, name).values()
  return [cell for cell in cells if cell['variant'] == variant]


def print_cuts(options: Options) -> None:
  """Prints the mean score over scripts of each kind of cut."""
  rows = []
  for variant in options.variants:
    own = _own(options, CUTS, variant)
    scores = [
      common.summarize([np.mean(cell[name]) for cell in own])
      if own and name in own[0]
      else ''
      for name in ('as it is', 'forgets', 'slow cut')
    ]
    rows.append([variant, len(own), *scores])
  common.print_table(
    'The best member of each run, mean score over scripts (95%)',
    ['variant', 'seeds', 'as it is', 'forgets', 'slow cut'],
    rows,
  )


def print_probes(options: Options) -> None:
  """Prints how well probes find each thing, trained and untrained."""
  rows = []
  for variant in options.variants:
    own = _own(options, PROBES, variant)
    for kind in ('trained', 'untrained') if own else ():
      areas = np.array([cell[kind] for cell in own])  # [seeds, 3]
      rows.append([variant, kind, len(own), *map(common.summarize, areas.T)])
  common.print_table(
    'Probes of places that no ray shows, area under the curve (95%)',
    ['variant', 'state', 'seeds', *THINGS],
    rows,
  )


def _finish(
  options: Options,
  name: str,
  measure: Callable[[Options, str, int], dict[str, Any]],
  variants: tuple[str, ...],
) -> None:
  """Measures the runs that have no cell in a file yet, and adds theirs."""
  path = pathlib.Path(options.directory) / name
  first = options.first_seed
  for seed in range(first, first + options.num_seeds):
    for variant in variants:
      if (variant, seed) in _read(options, name):
        continue
      cell = measure(options, variant, seed)
      with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(cell) + '\n')


def main(options: Options) -> None:
  """Does one run, or all runs, cuts, probes and tables."""
  ablation.main(options)
  if options.variant is not None:
    return
  _finish(options, CUTS, cut, options.variants)
  # Without a recurrent state there is nothing to probe.
  remembering = tuple(
    variant for variant in options.variants if variant != 'without_recurrence'
  )
  _finish(options, PROBES, probe, remembering)
  print_cuts(options)
  print_probes(options)


if __name__ == '__main__':
  launch.main(__file__)
