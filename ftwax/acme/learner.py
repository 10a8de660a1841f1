"""acme's learner, around the functions of a `LearnerCore`."""

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import acme
import jax
import jax.numpy as jnp
import numpy as np
from acme.utils import counting

from ftwax import compilation, parts, types
from ftwax.acme import datasets, tables
from ftwax.acme import variables as variables_lib
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import faults, learning
from ftwax.records import loggers


class Learner(acme.Learner):
  """Updates on batches from a dataset, and serves its variables to actors."""

  def __init__(
    self,
    core: types.LearnerCore,
    key: types.Key,
    dataset: Iterator[datasets.ReplaySample],
    logger: loggers.Logger,
    max_skipped_updates: int = 25,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    counter: counting.Counter | None = None,
    priorities: tables.Priorities | None = None,
  ):
    """Makes a learner in its initial state.

    Args:
      core: the learner's functions.
      key: random key of parameters, hyperparameters and updates.
      dataset: yields batches on the device.
      logger: receives the metrics of each update.
      max_skipped_updates: number of consecutive updates with non-finite
        gradients after which the learner raises an error.
      bounds: bounds of hyperparameters set by `set_hyperparameters`; see
        `parts.check_values`.
      counter: counts updates as `steps`, and its counts are logged; None counts
        nothing.
      priorities: those of what the agent learns from, if it samples by
        priority.
    """
    self._counter = counter
    self._priorities = priorities
    self._dataset = dataset
    self._logger = logger
    self._max_skipped_updates = max_skipped_updates
    self._bounds = bounds or {}
    update: Any = core.update
    if priorities is not None:
      update = functools.partial(learning.learn_from_sample, core)
    self._update = compilation.jit(update)
    init = compilation.jit_unoptimized(core.init)
    self._state: types.TrainingState = init(key)
    self._num_steps = 0
    self._wait_s = 0.0
    self._start = time.monotonic()

  @property
  def state(self) -> types.TrainingState:
    """State of the learner; a checkpoint holds exactly this."""
    return self._state

  @property
  def num_steps(self) -> int:
    """Number of updates done."""
    return self._num_steps

  def step(self) -> None:
    """Takes one batch and does one update.

    Raises:
      ReplayTimeoutError: if Reverb yields no batch in time.
      NonFiniteGradientError: if too many consecutive updates were skipped.
    """
    before = time.monotonic()
    sample = next(self._dataset)
    self._wait_s += time.monotonic() - before
    # Checked one update late: reading the count waits for the update.
    faults.check_skipped(
      int(np.max(self._state.skipped_in_a_row)), self._max_skipped_updates
    )
    metrics = self._learn(sample)
    counts = self._counter.increment(steps=1) if self._counter else {}
    self._logger.write(
      {
        **counts,
        **metrics,
        'sample_age_steps': self._num_steps - np.mean(sample.variables_steps),
        'sample_age_s': time.time() - np.mean(sample.written_at),
        'wait_fraction': self._wait_s / (time.monotonic() - self._start),
        'learner_steps': self._num_steps + 1,
      }
    )
    self._num_steps += 1

  def _learn(self, sample: datasets.ReplaySample) -> types.Metrics:
    """Does an update, and sets the priorities of what it learned from."""
    if self._priorities is None:
      self._state, metrics = self._update(self._state, sample.batch)
      return metrics
    info = sample.info
    assert info is not None
    self._state, metrics, priorities = self._update(
      self._state, sample.batch, info.probability
    )
    self._priorities.update(info.keys, np.asarray(priorities))
    return {**metrics, 'replay_size': info.table_size}

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the actors' variables for each name, which must be `policy`."""
    unknown = set(names) - {variables_lib.POLICY}
    if unknown:
      raise ValueError(
        f'names ({sorted(unknown)}) must be {variables_lib.POLICY!r}; request'
        ' only that.'
      )
    return [types.actor_variables(self._state) for _ in names]

  def save(self) -> types.TrainingState:
    """Returns the state, for a checkpoint."""
    return self._state

  def restore(self, state: types.TrainingState) -> None:
    """Continues from `state`."""
    # A change of sharding would compile the update again.
    self._state = jax.tree.map(
      lambda new, old: jax.device_put(new, old.sharding), state, self._state
    )
    self._num_steps = int(np.max(state.steps))  # The same for all members.

  def set_hyperparameters(self, values: types.Hyperparameters) -> None:
    """Replaces hyperparameters from the next step on, without retracing.

    Args:
      values: numbers or arrays, [], or [N] for a population.

    Raises:
      ValueError: if a value is out of the config's bounds, is not a number, or
        is fractional where the hyperparameter is an integer.
    """
    parts.check_values(values, self._bounds)
    self._replace(hyperparameters=values)

  def set_internal_rewards(self, values: types.InternalRewards) -> None:
    """Replaces internal rewards from the next step on.

    Args:
      values: [num_events], or [N, num_events] for a population.

    Raises:
      ValueError: if a value is not finite, or the shape differs.
    """
    if not np.all(np.isfinite(values)):
      raise ValueError(
        f'internal_rewards ({values}) must be finite; give a number for each'
        ' event.'
      )
    self._replace(internal_rewards=values)

  def set_params(self, values: types.Params) -> None:
    """Replaces the network's parameters from the next step on."""
    self._replace(params=values)

  def set_steps(self, value: int) -> None:
    """Replaces the number of updates done."""
    self._replace(steps=value)
    self._num_steps = value

  def _replace(self, **changes: Any) -> None:
    for name, new in changes.items():
      old = getattr(self._state, name)
      convert = functools.partial(_convert, name)
      self._state = self._state._replace(
        **{name: jax.tree.map(convert, old, new)}
      )


def make_learner(
  config: config_lib.ActorCriticConfig,
  key: types.Key,
  network: types.RecurrentNetwork,
  dataset: Iterator[datasets.ReplaySample],
  logger_fn: loggers.LoggerFactory,
  environment_spec: types.EnvironmentSpec,
  counter: counting.Counter | None = None,
  priorities: tables.Priorities | None = None,
) -> Learner:
  """Makes a learner of an agent; see `builder.Builder.make_learner`."""
  return Learner(
    config.make_learner_core(network, environment_spec),
    key,
    dataset,
    logger_fn('learner', 'learner_steps', None),
    config.max_skipped_updates,
    config.bounds,
    counter,
    priorities,
  )


def _convert(name: str, old: jax.Array, new: Any) -> jax.Array:
  """Returns `new` with the dtype and sharding of `old`, checking its shape."""
  given, new = new, jnp.asarray(new, old.dtype)
  if jnp.issubdtype(old.dtype, jnp.integer) and np.any(
    np.asarray(given) != np.asarray(new)
  ):
    raise ValueError(
      f'{name} ({given}) must be integers, like the values that they replace'
      f' ({old.dtype}); round them, or choose a prior of floats.'
    )
  if new.shape != old.shape:
    raise ValueError(
      f'{name} (shape {new.shape}) must have the shape of the values that it'
      f' replaces, {old.shape}; give values of the same agent.'
    )
  return jax.device_put(new, old.sharding)
