"""Checks an environment before anything is trained in it.

`check` plays random actions. It raises the error that a run would raise, and
otherwise returns what it saw, with advice where training would be slow, wrong
or endless without an error.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import continuous, distributions, encodings, types
from ftwax.environments import (
  action_masks,
  adapting,
  curricula,
  episode_metrics,
  game_vectors,
  games,
)

# Observations and rewards above these sizes slow learning down.
_LARGE_OBSERVATION, _LARGE_REWARD = 10.0, 100.0


class Findings(NamedTuple):
  """What a check found.

  Attributes:
    facts: what was seen, by name.
    advice: what to change, a sentence each; empty if nothing is suspicious.
  """

  facts: Mapping[str, str]
  advice: tuple[str, ...]


class _Played(NamedTuple):
  """Timesteps of random actions, `T` of one game.

  Attributes:
    spec: specs of the game.
    timesteps: the timesteps, leaves [T, P, ...].
    seconds: time that the steps took.
    metrics: names of what the environment measures in the episodes that ended.
    wrappers: names of its wrappers.
    parameters: of `reset`, if it is written in JAX; see `curricula`.
  """

  spec: games.GameSpec
  timesteps: dm_env.TimeStep
  seconds: float
  metrics: tuple[str, ...]
  wrappers: tuple[str, ...]
  parameters: Mapping[str, float]


def check(environment: Any, num_steps: int = 1000, seed: int = 0) -> Findings:
  """Plays random actions in an environment and returns findings.

  Args:
    environment: anything that an experiment takes.
    num_steps: number of steps.
    seed: seed of the environment and of the actions.

  Raises:
    EnvironmentFault: if the environment raises or returns invalid data.
    ValueError: if it is no environment, or agents cannot act in it.
  """
  types.check_type('num_steps', num_steps, int)
  factory = adapting.make_factory(adapting.accept(environment))
  name = adapting.describe(environment)
  first, second = (_play(factory, name, num_steps, seed) for _ in range(2))
  same = jax.tree.map(
    lambda one, other: np.array_equal(one, other, equal_nan=True),
    first.timesteps,
    second.timesteps,
  )
  advice = list(_advise(first))
  if not all(jax.tree.leaves(same)):
    advice.append(
      'The same seed and actions gave other timesteps: take all random numbers'
      ' from the seed, or results cannot be repeated.'
    )
  return Findings(_describe(first), tuple(advice))


def _play(
  factory: game_vectors.EnvironmentFactory,
  name: str,
  num_steps: int,
  seed: int,
) -> _Played:
  made = game_vectors.make_games(factory, [seed], name)
  made.measure(episode_metrics.ALL)
  rng = np.random.default_rng(seed)
  metrics: set[str] = set()
  try:
    timesteps = [made.reset()]
    if made.game is not None:  # Compiles.
      made.step(_draw(made.spec, timesteps[0], rng))
      timesteps = [made.reset()]
    started = time.perf_counter()
    for _ in range(num_steps):
      timesteps.append(made.step(_draw(made.spec, timesteps[-1], rng)))
      if (timesteps[-1].step_type == types.LAST).all():
        metrics |= made.episode_metrics([0])[0].keys()
    seconds = time.perf_counter() - started
  finally:
    made.close()
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps)
  wrappers = getattr(made, 'wrappers', ())
  parameters = {} if made.game is None else curricula.defaults(made.game.reset)
  return _Played(
    made.spec, stacked, seconds, tuple(sorted(metrics)), wrappers, parameters
  )


def _draw(
  spec: games.GameSpec, timestep: dm_env.TimeStep, rng: np.random.Generator
) -> types.ArrayTree:
  """Draws an action for each player, leaves [P, ...]."""
  parts = spec.environment.actions
  masks: list[Any] = [None] * len(jax.tree.leaves(parts))
  observation = timestep.observation
  if isinstance(observation, Mapping) and types.ACTION_MASK in observation:
    masks = distributions.split_mask(
      distributions.part_sizes(parts), observation[types.ACTION_MASK]
    )

  def draw(part: Any, mask: Any) -> types.NumpyArray:
    shape = (spec.num_players, *part.shape)
    if isinstance(part, continuous.SimplexArray):
      return rng.dirichlet(np.ones(part.shape), spec.num_players).astype(
        part.dtype
      )
    if not isinstance(part, specs.DiscreteArray):
      sample = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
      return np.asarray(continuous.to_environment(part, jnp.asarray(sample)))
    if mask is None:
      return rng.integers(part.num_values, size=shape, dtype=np.int32)
    scores = rng.random(mask.shape) * (np.asarray(mask) > 0)
    return scores.argmax(axis=-1).astype(np.int32)

  leaves, structure = jax.tree.flatten(parts)
  return jax.tree.unflatten(structure, map(draw, leaves, masks))


def _describe(played: _Played) -> dict[str, str]:
  """Returns the facts of a check."""
  spec, timesteps = played.spec, played.timesteps
  facts = {
    f'observation{path}': (
      f'{leaf.dtype} {leaf.shape}, {_range(values)}, taken for'
      f' {encodings.describe(leaf)}'
    )
    for path, leaf, values in _observations(played)
  }
  source = action_masks.describe(spec.environment)
  if source is not None:
    facts['action masks'] = f'from {source}'
  if played.metrics:
    facts['metrics'] = ', '.join(played.metrics)
  if played.wrappers:
    facts['wrappers'] = ', '.join(played.wrappers)
  if played.parameters:
    facts['parameters'] = ', '.join(
      f'{name}={value:g}' for name, value in played.parameters.items()
    )
  facts['action'] = str(spec.environment.actions)
  if spec.num_players > 1:
    facts['teams'] = str(spec.teams)
  facts['reward'] = _range(timesteps.reward)
  last = timesteps.step_type[:, 0] == types.LAST  # [T]
  ends = np.flatnonzero(last)
  lengths = np.diff(ends, prepend=0)
  facts['episodes'] = f'{len(ends)} in {len(last) - 1:,} steps'
  if len(ends):
    facts['episodes'] += (
      f', of {lengths.mean():.0f} steps on average;'
      f' {int((timesteps.discount[ends] == 0).all(axis=1).sum())} terminated,'
      ' the others were truncated'
    )
  speed = (len(last) - 1) / max(played.seconds, 1e-9)
  facts['speed'] = f'{speed:,.0f} steps/s'
  return facts


def _advise(played: _Played) -> Iterator[str]:
  """Yields advice on timesteps that are valid."""
  for path, leaf, values in _observations(played):
    name = f'observation{path}'
    if isinstance(leaf, specs.BoundedArray) and (
      np.any(values < leaf.minimum) or np.any(values > leaf.maximum)
    ):
      yield (
        f'{name} leaves the bounds of its spec ({_range(values)}): widen them.'
      )
    if leaf.dtype == np.uint8:
      is_scaled = encodings.choose(leaf) == encodings.SCALED
      if is_scaled and 1 < values.max() < encodings.MAX_ONE_HOT:
        yield (
          f'{name} is an image by its shape, divided by 255, and'
          f' {_range(values)}: if these are codes, not pixels, give its space'
          " their largest value as high, or set Torso.encodings to 'embedding'"
          ' in the config of the agent.'
        )
    elif np.abs(values).max() > _LARGE_OBSERVATION and not isinstance(
      leaf, specs.DiscreteArray
    ):
      yield (
        f'{name} is large ({_range(values)}): scale it, or set'
        ' normalize_observations=True in the config of the agent.'
      )
    if np.ptp(values) == 0:
      yield f'{name} never changes: show the agent what its actions depend on.'
  parts = jax.tree.leaves_with_path(played.spec.environment.actions)
  for part, leaf in parts:
    low, high = (
      continuous.is_bound(getattr(leaf, bound, np.inf))
      for bound in ('minimum', 'maximum')
    )
    if np.any(low != high):
      yield (
        f'action{jax.tree_util.keystr(part)} has a bound on one side only: it'
        ' is cut off there, and is otherwise of the size of 1; give both'
        ' bounds to scale it.'
      )
  rewards = played.timesteps.reward
  if not rewards.any():
    yield 'Random actions get no reward: make sure that some are within reach.'
  if np.abs(rewards).max() > _LARGE_REWARD:
    yield (
      f'Rewards are large ({_range(rewards)}): scale them, or set'
      ' normalize_returns=True in the config of the agent.'
    )
  step_type = played.timesteps.step_type
  if not np.any(step_type == types.LAST):
    yield (
      f'No episode ended in {len(step_type) - 1:,} steps: limit them, for'
      ' example by gymnasium.wrappers.TimeLimit.'
    )


def _observations(
  played: _Played,
) -> Iterator[tuple[str, Any, types.NumpyArray]]:
  """Yields path, spec and values [T, P, ...] of each part of observations.

  Networks do not see action masks.
  """
  values = jax.tree.leaves(played.timesteps.observation)
  named = jax.tree.leaves_with_path(played.spec.environment.observations)
  for (path, leaf), seen in zip(named, values, strict=True):
    if not (path and getattr(path[0], 'key', None) == types.ACTION_MASK):
      yield jax.tree_util.keystr(path), leaf, seen


def _range(values: types.NumpyArray) -> str:
  return f'from {values.min():.4g} to {values.max():.4g}'
