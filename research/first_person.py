"""Whether memory matters in first person: cores, whole and with parts cut.

    uv run research/first_person.py

Trains a population of each core on `--game=first_person`, three seeds of 40M
steps each, and prints `benchmarks/ablation.py`'s table: scores against the
scripts at equal steps and at equal processor time. Then the member of each run
that scores best on some games plays others as it is, and

  forgets    with the recurrent state zeroed before each step
  slow cut   with the parameters of the slow core zeroed, for hierarchies

Runs and finished cuts are kept in `--directory`. An interrupted run is resumed.
"""

import dataclasses
import json
import pathlib
import sys
from typing import Any

import evolution
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.cli import flags, launch
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


@dataclasses.dataclass(frozen=True)
class Options(ablation.Options):
  """Flags of this program."""

  game: str = 'first_person'
  max_num_actor_steps: int = 40_000_000
  directory: str = 'runs/first_person'
  variants: tuple[str, ...] = VARIANTS
  first_seed: int = 600
  num_games: int = flags.flag(200, 'Games of each member, cut or not.')


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
    **{name: found[0].tolist() for name, found in scores.items()},
  }


def _read(options: Options) -> dict[tuple[str, int], Any]:
  """Returns the finished cuts by variant and seed."""
  path = pathlib.Path(options.directory) / 'cuts.jsonl'
  if not path.exists():
    return {}
  cells = map(json.loads, path.read_text('utf-8').splitlines())
  return {(cell['variant'], cell['seed']): cell for cell in cells}


def print_cuts(options: Options) -> None:
  """Prints the mean score over scripts of each kind of cut."""
  cells, rows = _read(options), []
  for variant in options.variants:
    own = [cell for (name, _), cell in cells.items() if name == variant]
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


def main(options: Options) -> None:
  """Does one run, or all runs, cuts and tables."""
  ablation.main(options)
  if options.variant is not None:
    return
  first = options.first_seed
  for seed in range(first, first + options.num_seeds):
    for variant in options.variants:
      if (variant, seed) in _read(options):
        continue
      cell = cut(options, variant, seed)
      path = pathlib.Path(options.directory) / 'cuts.jsonl'
      with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(cell) + '\n')
  print_cuts(options)


if __name__ == '__main__':
  launch.main(__file__)
