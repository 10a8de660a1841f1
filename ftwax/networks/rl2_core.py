"""Memory across episodes: two levels of state (RL2, learning to learn).

Duan et al., 2016 (arXiv:1611.02779) and Wang et al., 2016 (arXiv:1611.05763):
an agent encounters the same task for several episodes, a trial. Its memory is
only reset when a new trial begins, so that it can learn within the trial.

For the rest of the library, a trial is an episode: it begins with `FIRST`, and
the discount is not zero inside it (see `environments.trials`). The observation
is a dict whose entry `EPISODE_START` marks where the episodes within a trial
begin. An inner core is reset there; an outer core, which sees the inner one's
features, is reset when the trial is over.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import haiku as hk
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import recurrence

# Entry of an observation: nonzero at the first step of an episode in a trial.
EPISODE_START = 'episode_start'


class RL2State(NamedTuple):
  """States of the two cores, leaves [B, ...].

  Attributes:
    inner: reset at every episode.
    outer: reset at every trial.
  """

  inner: types.RecurrentState
  outer: types.RecurrentState


class RL2Core(hk.Module):
  """An inner core, reset at every episode, below an outer one.

  The first input marks episode starts: the torso must come from `make_torso`.
  Features are those of both cores, the inner ones first; `layers` has them
  apart.
  """

  def __init__(
    self,
    inner: recurrence.RecurrentCore,
    outer: recurrence.RecurrentCore,
    name: str | None = None,
  ):
    """Makes a core.

    Args:
      inner: reads the inputs.
      outer: reads the inputs and the inner core's features.
      name: name of the module.
    """
    super().__init__(name)
    self._inner = inner
    self._outer = outer

  def initial_state(self, batch_size: int) -> RL2State:
    """Returns the zero state, leaves [batch_size, ...]."""
    return RL2State(
      self._inner.initial_state(batch_size),
      self._outer.initial_state(batch_size),
    )

  def __call__(
    self,
    inputs: types.Array,
    state: RL2State,
  ) -> tuple[recurrence.CoreOutput, RL2State]:
    """Does one step on inputs [B, num_inputs]."""
    # At the start of a trial, the caller has reset both states.
    inner_state = recurrence.reset_state(_episode_start(inputs), state.inner)
    inner, inner_state = self._inner(inputs, inner_state)
    outer, outer_state = self._outer(
      jnp.concatenate([inputs, inner.features], -1),
      state.outer,
    )
    return _join(inner, outer), RL2State(inner_state, outer_state)

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: RL2State,
  ) -> tuple[recurrence.CoreOutput, RL2State]:
    """Does `T` steps on inputs [T, B, num_inputs]; trials begin at `start`."""
    inner, inner_state = self._inner.unroll(
      inputs,
      jnp.logical_or(start, _episode_start(inputs)),
      state.inner,
    )
    outer, outer_state = self._outer.unroll(
      jnp.concatenate([inputs, inner.features], -1),
      start,
      state.outer,
    )
    return _join(inner, outer), RL2State(inner_state, outer_state)


def check_observation_spec(observation_spec: types.SpecTree) -> None:
  """Raises a ValueError unless observations mark episode starts."""
  is_dict = isinstance(observation_spec, Mapping)
  if not is_dict or EPISODE_START not in observation_spec:
    entries = list(observation_spec) if is_dict else observation_spec
    raise ValueError(
      f'observation_spec ({entries}) must have the entry {EPISODE_START!r} for'
      ' a two-level memory; wrap the environment in'
      ' environments.trials.TrialEnvironment.'
    )


def make_torso(
  observation_spec: types.SpecTree,
  make_embedding: Callable[[types.SpecTree], Callable[[Any], types.Array]],
) -> Callable[[Any], types.Array]:
  """Makes a torso whose first feature is the entry `EPISODE_START`.

  It must be called inside a Haiku transform.

  Args:
    observation_spec: a dict with that entry.
    make_embedding: makes, from the specs of the other entries, a function that
      maps them, leaves [B, ...], to features [B, num_features]. Not called if
      there are no other entries.

  Returns:
    A function from observations, leaves [B, ...], to [B, 1 + num_features].

  Raises:
    ValueError: if there is no such entry.
  """
  check_observation_spec(observation_spec)
  specs = _without_start(observation_spec)
  embed = make_embedding(specs) if specs else None

  def torso(observation: Mapping[str, Any]) -> types.Array:
    start = jnp.asarray(observation[EPISODE_START] != 0, jnp.float32)
    features = [start.reshape(-1, 1)]  # [B, 1]
    if embed is not None:
      features.append(embed(_without_start(observation)))
    return jnp.concatenate(features, axis=-1)

  return torso


def _episode_start(inputs: types.Array) -> types.Array:
  return inputs[..., 0] != 0


def _without_start(tree: Mapping[str, Any]) -> dict[str, Any]:
  return {key: tree[key] for key in tree if key != EPISODE_START}


def _join(
  inner: recurrence.CoreOutput, outer: recurrence.CoreOutput
) -> recurrence.CoreOutput:
  return recurrence.CoreOutput(
    features=jnp.concatenate([inner.features, outer.features], axis=-1),
    auxiliary={
      'inner': inner.auxiliary,
      'outer': outer.auxiliary,
      'layers': (inner.features, outer.features),
    },
  )
