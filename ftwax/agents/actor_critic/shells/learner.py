"""acme's learner: a shell around a `LearnerCore`."""

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import acme
import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import faults, pictures
from ftwax.agents.actor_critic.shells import variables as variables_lib
from ftwax.replay.reverb import datasets


class Logger(Protocol):
  """What the learner writes its metrics to."""

  def write(self, values: Any) -> None:
    """Writes one row."""


class Learner(acme.Learner):
  """Takes batches from a dataset, updates, and offers its variables."""

  def __init__(
    self,
    core: types.LearnerCore,
    key: types.Key,
    dataset: Iterator[datasets.ReplaySample],
    logger: Logger,
    max_skipped_updates: int,
    painter: pictures.Painter | None = None,
  ):
    """Makes the learner's first state.

    Args:
      core: the learner's functions.
      key: for parameters, hyperparameters and what updates draw.
      dataset: gives batches on the device.
      logger: where the metrics of each step go.
      max_skipped_updates: non-finite gradients in a row that end the learner.
      painter: writes pictures of what is learned from; None for none.
    """
    self._dataset = dataset
    self._logger = logger
    self._max_skipped_updates = max_skipped_updates
    self._painter = painter
    self._update = jax.jit(core.update)
    self._state: types.TrainingState = jax.jit(core.init)(key)
    self._num_steps = 0
    self._wait_s = 0.0
    self._start = time.monotonic()

  @property
  def state(self) -> types.TrainingState:
    """All that changes; a checkpoint holds just this."""
    return self._state

  @property
  def num_steps(self) -> int:
    """Updates done."""
    return self._num_steps

  def step(self) -> None:
    """Takes one batch and does one update.

    Raises:
      ReplayTimeoutError: no batch came in time.
      NonFiniteGradientError: too many updates in a row were skipped.
    """
    before = time.monotonic()
    sample = next(self._dataset)
    self._wait_s += time.monotonic() - before
    # Looked at one step late, so that updates need not be waited for.
    faults.check_skipped(
      int(np.max(self._state.skipped_in_a_row)), self._max_skipped_updates
    )
    self._state, metrics = self._update(self._state, sample.batch)
    self._logger.write(
      {
        **metrics,
        'sample_age_steps': self._num_steps - np.mean(sample.variables_steps),
        'sample_age_s': time.time() - np.mean(sample.written_at),
        'wait_fraction': self._wait_s / (time.monotonic() - self._start),
        'learner_steps': self._num_steps + 1,
      }
    )
    self._num_steps += 1
    if self._painter is not None:
      self._painter.write_if_due(self._num_steps, self._state, sample.batch)

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns what actors need, once for each name; all names are `policy`."""
    unknown = set(names) - {variables_lib.POLICY}
    if unknown:
      raise ValueError(
        f'names ({sorted(unknown)}) must be {variables_lib.POLICY!r}; ask for'
        ' that.'
      )
    return [types.actor_variables(self._state) for _ in names]

  def save(self) -> types.TrainingState:
    """Returns the state, for a checkpoint."""
    return self._state

  def restore(self, state: types.TrainingState) -> None:
    """Goes on from `state`."""
    self._state = jax.tree.map(
      lambda new, old: jax.device_put(new, old.sharding), state, self._state
    )
    self._num_steps = int(np.max(state.steps))  # Of members, the same.

  def set_hyperparameters(self, values: types.Hyperparameters) -> None:
    """Replaces hyperparameters, from the next step on and without a trace."""
    self._replace(hyperparameters=values)

  def set_internal_rewards(self, values: types.InternalRewards) -> None:
    """Replaces internal rewards [num_events], from the next step on."""
    self._replace(internal_rewards=values)

  def set_params(self, values: types.Params) -> None:
    """Replaces the network's parameters, from the next step on."""
    self._replace(params=values)

  def set_steps(self, value: int) -> None:
    """Replaces the number of updates done."""
    self._replace(steps=value)
    self._num_steps = value

  def _replace(self, **changes: Any):
    for name, new in changes.items():
      old = getattr(self._state, name)
      convert = functools.partial(_convert, name)
      self._state = self._state._replace(
        **{name: jax.tree.map(convert, old, new)}
      )


def _convert(name: str, old: jax.Array, new: Any) -> jax.Array:
  """Returns `new` as an array like `old`, whose shape it must have."""
  new = jax.numpy.asarray(new, old.dtype)
  if new.shape != old.shape:
    raise ValueError(
      f'{name} (shape {new.shape}) must have the shape of those that it'
      f' replaces, {old.shape}; give values of the same agent.'
    )
  return jax.device_put(new, old.sharding)
