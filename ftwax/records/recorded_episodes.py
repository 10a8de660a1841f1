"""Episodes of one's own, or of a Minari data set, as recorded games.

episode = recorded_episodes.Episode(observations, actions, rewards, True)
recorded_episodes.from_arrays('games', 'CartPole-v1', [episode])
recorded_episodes.from_minari('games', 'D4RL/door/human-v2')
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import continuous, distributions, errors, extras, trees, types
from ftwax.environments import adapting, game_vectors, games, gymnasium_spaces
from ftwax.records import recorded_games

# Steps of a part on disk, which is kept in memory until then.
_PART_STEPS = 65_536


class Episode(NamedTuple):
  """An episode of one seat, with L actions.

  Attributes:
    observations: leaves [L + 1, ...], from the first to that after the last
      action.
    actions: leaves [L, ...], as the environment received them.
    rewards: [L], or [L, num_events] for a vector reward.
    is_terminated: whether the game ended; otherwise it was cut off, and what
      would have followed has the value of the last observation.
  """

  observations: Any
  actions: Any
  rewards: Any
  is_terminated: bool


def from_arrays(
  directory: str | os.PathLike[str],
  environment: adapting.Environment,
  episodes: Iterable[Episode],
) -> int:
  """Adds episodes to a folder of recorded games.

  Args:
    directory: a folder, which may have games already.
    environment: the environment or game, as in an experiment, with the specs of
      the arrays.
    episodes: the episodes, as arrays of these specs.

  Returns:
    The number of episodes.

  Raises:
    ValueError: if an episode is not of these specs, there is none, or the
      folder has another game.
  """
  factory = adapting.make_factory(adapting.accept(environment))
  return _append(directory, game_vectors.read_spec(factory, 'arrays'), episodes)


def from_minari(directory: str | os.PathLike[str], source: Any) -> int:
  """Adds the episodes of a Minari data set to a folder of recorded games.

  Observations and actions take the form that they have in the environment when
  it trains; see `gymnasium_spaces`.

  Args:
    directory: a folder, which may have games already.
    source: the name of a data set, which is downloaded if it is not there, or a
      `minari.MinariDataset`.

  Returns:
    The number of episodes.

  Raises:
    ImportError: if Minari is not installed.
    ValueError: if there is no such data set, its spaces cannot be expressed as
      specs, or the folder has another game.
  """
  dataset = _load(source) if isinstance(source, str) else source
  spaces = dataset.observation_space, dataset.action_space
  specs = gymnasium_spaces.make_spec(*spaces)
  spec = games.GameSpec(
    specs,
    (0,),
    games.event_names_of(specs),
    spaces=gymnasium_spaces.to_text(*spaces),
  )
  return _append(directory, spec, _read_minari(dataset))


def _load(name: str) -> Any:
  with extras.required('minari', 'minari'):
    import minari
  try:
    return minari.load_dataset(name, download=True)
  except Exception as error:  # Of Minari, its storage or the network.
    raise ValueError(
      f'minari ({name}) must be a data set that is on this machine, or can be'
      f' downloaded, and is not ({errors.printable(str(error)):.200}); choose'
      ' one that `minari list remote` shows.'
    ) from None


def _read_minari(dataset: Any) -> Iterator[Episode]:
  """Yields the episodes of a data set, which may hold several in one."""
  observe = gymnasium_spaces.make_encoder(dataset.observation_space)
  act = gymnasium_spaces.make_action_encoder(dataset.action_space)
  for episode in dataset.iterate_episodes():
    num_steps = len(episode.rewards)
    observations = observe(episode.observations)
    actions, rewards = act(episode.actions), np.asarray(episode.rewards)
    is_terminated = np.asarray(episode.terminations, bool)
    is_end = is_terminated | np.asarray(episode.truncations, bool)
    ends = [*(np.flatnonzero(is_end[:-1]) + 1).tolist(), num_steps]
    for start, end in zip([0, *ends], ends, strict=False):
      if start < end:
        yield Episode(
          trees.take(observations, slice(start, end + 1)),
          trees.take(actions, slice(start, end)),
          rewards[start:end],
          bool(is_terminated[end - 1]),
        )


def _append(
  directory: str | os.PathLike[str],
  spec: games.GameSpec,
  episodes: Iterable[Episode],
) -> int:
  """Adds episodes to a folder, one after another in one row."""
  num_episodes, size = 0, 0
  rows: list[types.Streams] = []

  def write() -> None:
    joined: types.Streams = jax.tree.map(
      lambda *leaves: np.concatenate(leaves)[:, None], *rows
    )
    recorded_games.append(directory, spec, joined)

  for episode in episodes:
    rows.append(_to_stream(spec.environment, episode, num_episodes))
    num_episodes += 1
    size += len(rows[-1].timestep.step_type)
    if size >= _PART_STEPS:
      write()
      rows, size = [], 0
  if rows:
    write()
  if not num_episodes:
    raise ValueError(
      'episodes must be at least one, and there is none; give the arrays of'
      ' some.'
    )
  return num_episodes


def _to_stream(
  spec: types.EnvironmentSpec, episode: Episode, index: int
) -> types.Streams:
  """Returns the steps of an episode, leaves [L + 1, ...].

  Raises:
    ValueError: if it does not have the specs.
  """
  rewards = np.asarray(episode.rewards, np.float32)
  num_steps = len(rewards)
  name = f'episode {index}'
  if not num_steps or rewards.shape[1:] != spec.rewards.shape:
    raise ValueError(
      f'rewards of {name} (shape {rewards.shape}) must be of shape [L'
      f'{"".join(f", {n}" for n in spec.rewards.shape)}] with L > 0; give one'
      ' for each action.'
    )
  _check_finite(f'rewards of {name}', rewards)
  observations = _cast(
    spec.observations, episode.observations, num_steps + 1, f'{name}:'
    ' observations'
  )  # fmt: skip
  actions = _cast(spec.actions, episode.actions, num_steps, f'{name}: actions')
  _check_choices(spec.actions, actions, name)
  step_type = np.full(num_steps + 1, types.MID, np.int32)
  step_type[0], step_type[-1] = types.FIRST, types.LAST
  discount = np.ones(num_steps + 1, np.float32)
  discount[-1] = 0.0 if episode.is_terminated else 1.0
  timestep = dm_env.TimeStep(
    step_type,
    np.concatenate([np.zeros_like(rewards[:1]), rewards]),
    discount,
    observations,
  )
  none = distributions.no_action(spec.actions, (1,))
  previous_action = jax.tree.map(
    lambda first, leaf: np.concatenate([first, leaf.astype(first.dtype)]),
    none,
    actions,
  )
  return types.Streams(timestep, previous_action)


def _cast(spec: Any, tree: Any, length: int, name: str) -> Any:
  """Returns arrays [length, ...] with the dtypes of specs."""

  def cast(path: Any, one: Any, leaf: Any) -> types.NumpyArray:
    array = np.asarray(leaf)
    wanted = (length, *one.shape)
    where = f'{name}{jax.tree_util.keystr(path)}'
    if array.shape != wanted:
      raise ValueError(
        f'{where} (shape {array.shape}) must be of shape {wanted}; give one row'
        ' for each step, and one observation more than actions.'
      )
    if not np.can_cast(array.dtype, one.dtype, 'same_kind') and not (
      array.dtype.kind in 'iub' and np.dtype(one.dtype).kind in 'iuf'
    ):
      raise ValueError(
        f'{where} ({array.dtype}) must be of dtype {np.dtype(one.dtype)};'
        ' convert it.'
      )
    made = array.astype(one.dtype)
    _check_finite(where, made)
    return made

  try:
    return jax.tree.map_with_path(cast, spec, tree)
  except (TypeError, KeyError) as error:
    raise ValueError(
      f'{name} must have the parts of {spec}, and'
      f' {errors.printable(str(error)):.100}; give all of them.'
    ) from None


def _check_finite(name: str, array: types.NumpyArray) -> None:
  if array.dtype.kind == 'f' and not np.isfinite(array).all():
    step = int(np.argwhere(~np.isfinite(array))[0][0])
    raise ValueError(
      f'{name} must be finite, and is not at step {step}; leave the episode'
      ' out.'
    )


def _check_choices(spec: Any, actions: Any, name: str) -> None:
  """Raises a ValueError if a discrete action is none of its choices."""

  def check(one: Any, leaf: types.NumpyArray) -> None:
    if continuous.is_spec(one):
      return
    num_choices = distributions.num_choices(one)
    assert num_choices is not None
    if leaf.min() < 0 or leaf.max() >= num_choices:
      raise ValueError(
        f'actions of {name} (from {leaf.min()} to {leaf.max()}) must be from 0'
        f' to {num_choices - 1}; number choices from 0.'
      )

  jax.tree.map(check, spec, actions)
