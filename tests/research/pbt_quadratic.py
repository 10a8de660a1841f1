"""Population based training on a quadratic, the toy example of the paper.

Two members maximize 1.2 - x^2 - y^2 by gradient ascent on surrogates,

  1.2 - h_x x^2 - h_y y^2 with h = (1, 0) and (0, 1),

each of which depends on one coordinate only (Jaderberg et al., 2017,
arXiv:1711.09846, figure 2). With fixed hyperparameters, neither member exceeds
0.39. As a population, the worse member copies the better one and draws new
hyperparameters, and both reach the maximum.

Run `uv run tests/research/pbt_quadratic.py`. It prints a table, and writes the
lineage and a plot to `runs/pbt_quadratic`.
"""

import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np

from ftwax import hyperparameters, types
from ftwax.cli import flags, launch
from ftwax.population import evolution, exploring, lineage, selection
from ftwax.population import population_config as config_lib
from ftwax.population import state as state_lib
from ftwax.records import files


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this experiment."""

  seed: int = flags.flag(0, 'Seed of the run.')
  num_steps: int = flags.flag(200, 'Steps of gradient ascent.')
  directory: str = flags.flag('runs/pbt_quadratic', 'Output directory.')


class Surrogate(NamedTuple):
  """Weights of the coordinates, float32 [], or their priors."""

  h_x: Any
  h_y: Any


TOP = 1.2
LEARNING_RATE = 0.02
# With equal heights neither member would copy, so one starts slightly lower.
START = ((0.9, 0.9), (0.9, 0.90001))
PRIORS = exploring.Traits(
  Surrogate(*[hyperparameters.Uniform(0.0, 1.0)] * 2),
  hyperparameters.Constant(1.0),
)
CONFIG = config_lib.PopulationConfig(
  num_members=2,
  num_returns=1,
  select=selection.Truncation(0.5),
  explore=exploring.Resample(1.0),
  burn_in_games=4,
)


def objective(theta: jax.Array) -> jax.Array:
  """Returns the objective by which members are ranked, for theta [..., 2]."""
  return TOP - jnp.sum(jnp.square(theta), axis=-1)


def surrogate(theta: jax.Array, weights: Surrogate) -> jax.Array:
  """Returns the objective that a member maximizes, for theta [2]."""
  return TOP - jnp.sum(jnp.stack(weights) * jnp.square(theta))


def make_population(
  key: types.Key,
  config: config_lib.PopulationConfig,
) -> state_lib.PopulationState:
  """Returns the initial population."""
  zeros = jnp.zeros((2,), jnp.int32)
  weights: Any = Surrogate(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))
  members = types.TrainingState(
    params=jnp.array(START),
    opt_state=(),
    hyperparameters=weights,
    internal_rewards=jnp.ones((2, 1)),
    key=jax.random.split(key),
    steps=zeros,
    skipped=zeros,
    skipped_in_a_row=zeros,
  )
  return state_lib.from_members(members, key, config)


def step(
  population: state_lib.PopulationState,
  key: types.Key,
  config: config_lib.PopulationConfig,
) -> tuple[state_lib.PopulationState, Any]:
  """Takes a step of gradient ascent, then evolves the population."""
  members = population.members
  gradient = jax.vmap(jax.grad(surrogate))(
    members.params, members.hyperparameters
  )
  theta = members.params + LEARNING_RATE * gradient
  population = state_lib.record_returns(
    population._replace(members=members._replace(params=theta)),
    objective(theta)[:, None],
    jnp.ones((2, 1), bool),
  )
  population, generation = evolution.evolve(key, population, PRIORS, config)
  return population, (population.members.params, generation)


def run(
  config: config_lib.PopulationConfig,
  key: types.Key,
  num_steps: int,
) -> Any:
  """Runs all steps.

  Returns:
    The first population, theta [num_steps + 1, member, coordinate], and the
    generations, leaves [num_steps, ...].
  """
  population = make_population(key, config)
  keys = jax.random.split(key, num_steps)
  steps = functools.partial(step, config=config)
  theta, generations = jax.jit(
    lambda population: jax.lax.scan(steps, population, keys)[1]
  )(population)
  theta = jnp.concatenate([population.members.params[None], theta])
  return population, np.asarray(theta), generations


def write_lineage(
  path: pathlib.Path,
  population: state_lib.PopulationState,
  generations: Any,
  num_steps: int,
) -> int:
  """Overwrites the lineage file; returns how often a member copied."""
  rows = [lineage.birth_row(population)]
  for number in range(num_steps):
    one = jax.tree.map(lambda leaf, n=number: leaf[n], generations)
    rows += lineage.rows(one, selection.Truncation.name)
  path.unlink(missing_ok=True)
  files.append_rows(path, rows)
  return len(rows) - 1


def plot(paths: dict[str, types.NumpyArray], picture: pathlib.Path) -> None:
  """Plots the path of each member in the plane, and its height over time."""
  figure = matplotlib.figure.Figure((8, 6.5), dpi=150, layout='constrained')
  axes = figure.subplots(2, 2, sharex='row', sharey='row')
  grid = np.linspace(-0.1, 1.0, 50)
  heights = TOP - grid**2 - grid[:, None] ** 2
  for column, (name, theta) in enumerate(paths.items()):
    plane, curve = axes[:, column]
    plane.contour(grid, grid, heights, 12, cmap='Greys', linewidths=0.7)
    curve.axhline(TOP, color='gray', linewidth=0.8, linestyle='--')
    for member in range(2):
      x, y = theta[:, member].T
      plane.plot(x, y, '.', markersize=3, label=f'member {member}')
      curve.plot(TOP - x**2 - y**2)
    plane.set(title=name, xlabel='x', ylabel='y', aspect='equal')
    plane.legend(frameon=False)
    curve.set(xlabel='step', ylabel='height')
  figure.savefig(picture)


def main(options: Options) -> None:
  """Runs the population, and for comparison the same members alone."""
  directory = pathlib.Path(options.directory)
  directory.mkdir(parents=True, exist_ok=True)
  key = jax.random.PRNGKey(options.seed)
  paths = {}
  for name, exploits in (('population', True), ('fixed', False)):
    config = CONFIG.replace(exploits=exploits)
    population, paths[name], generations = run(config, key, options.num_steps)
    best = objective(paths[name][-1]).max()
    print(f'{name:10s}  best height {best:.4f} of {TOP}')
    if exploits:
      path = directory / 'lineage.jsonl'
      num_copies = write_lineage(
        path, population, generations, options.num_steps
      )
      print(f'{"":10s}  members copied each other {num_copies} times')
  plot(paths, directory / 'pbt_quadratic.png')
  print(f'figure and lineage are in {directory}')


if __name__ == '__main__':
  launch.main(__file__)
