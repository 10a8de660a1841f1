"""The learner inside a node: holds its members, or updates on its share."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import replays
from ftwax.records import loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  patient_iterator,
  peers,
  processes,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

# Seconds after which a learner without a batch notices the end of a run.
POLL_S = 0.5


class NodeLearner:
  """Wraps acme's learner, its datasets and the variables that it serves.

  If the learners of several nodes update as one, all must call `step` and
  `restore` at the same time.
  """

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    settings: settings_lib.Settings,
    key: types.Key,
    replay_addresses: Sequence[str],
    make_logger: loggers.LoggerFactory,
    stop: threading.Event,
    on_idle: Callable[[], bool],
  ):
    """Makes the learner's initial state.

    Args:
      experiment: an agent or a population, and its task.
      settings: settings of the run.
      key: random key for the initial state.
      replay_addresses: addresses of the replay servers, one for each member
        that the learner holds.
      make_logger: makes the logger of a label.
      stop: event that ends the learner.
      on_idle: called while no batch arrives; returns whether no further batches
        will come.

    Raises:
      FatalError: if the number of devices does not divide members or batches.
    """
    self._experiment = experiment
    self._settings = settings
    self._stop = stop
    self._on_idle = on_idle
    self._offered: tuple[int, list[types.NumpyArray]] | None = None
    mesh = make_mesh(experiment, settings, len(replay_addresses))
    num_members = experiment.population.num_members
    is_one_of_several = settings.num_learners > 1 and num_members == 1
    self._peers = peers.Peers(mesh) if is_one_of_several else None
    with contextlib.ExitStack() as stack:
      self._learner = self._make(
        stack, mesh, key, replay_addresses, make_logger
      )
      self._datasets = stack.pop_all()
    self._whole: Any = None  # An earlier state, known to be valid.

  @property
  def state(self) -> types.TrainingState:
    """State of all members, leaves [N, ...], on a device of this node."""
    return self._localize(self._learner.state)

  @property
  def whole_state(self) -> types.TrainingState:
    """The newest state that no failed update has touched, like `state`.

    If another learner dies, an update fails while it is computed, after `step`
    has returned.
    """
    return self.state if self._whole is None else self._localize(self._whole)

  @property
  def num_steps(self) -> int:
    """Number of updates done."""
    return self._learner.num_steps

  def variables(
    self, known_steps: int, written_at: float
  ) -> list[types.NumpyArray] | None:
    """Returns the leaves of the actors' variables, [N, ...].

    Args:
      known_steps: learner steps of the caller's current variables.
      written_at: waits until the trajectories written up to this time are
        learned from; see `PatientIterator.wait_until_learned`.

    Returns:
      The leaves; an empty list if the caller already has them; None if an
      update has failed.
    """
    self._shares.wait_until_learned(written_at)
    try:
      state = self.state
      steps = int(np.max(state.steps))  # The same for all members.
      if steps == known_steps:
        return []
      # Copied from the device once per update, not once per actor.
      if self._offered is None or self._offered[0] != steps:
        leaves = jax.tree.leaves(types.actor_variables(state))
        self._offered = steps, [np.asarray(leaf) for leaf in leaves]
      return self._offered[1]
    except Exception:
      # Another learner died in mid-update, so this one will be restarted, too.
      if self._peers is None:
        raise
      return None

  def step(self) -> None:
    """Takes one batch and runs one update.

    Raises:
      Ended: if no more batches come or the run ends.
      FatalError: if no batch came in time, or too many gradients were not
        finite.
    """
    from ftwax.agents.actor_critic import faults
    from ftwax.replay.reverb import tables

    # Several learners must all end before the same update; `SharedBatches` sees
    # to that.
    if self._peers is None and self._stop.is_set():
      raise patient_iterator.Ended
    state = self._learner.state
    try:
      self._learner.step()  # Reads the previous update's result.
    except (tables.ReplayTimeoutError, faults.NonFiniteGradientError) as error:
      reason = f'{type(error).__name__}: {error}'
      raise processes.FatalError(reason) from error
    if self._peers is not None:
      self._whole = state

  def restore(self, state: types.TrainingState) -> None:
    """Continues from a state, or from the first of several learners' state."""
    if self._peers is not None:
      state = self._peers.replicate(state)
    self._learner.restore(state)

  def close(self) -> None:
    """Stops sampling."""
    self._datasets.close()

  def _make(
    self,
    stack: contextlib.ExitStack,
    mesh: jax.sharding.Mesh,
    key: types.Key,
    replay_addresses: Sequence[str],
    make_logger: loggers.LoggerFactory,
  ) -> Any:
    """Makes the learner of all members; `stack` closes its datasets."""
    from ftwax.runtime.local import members

    experiment = self._experiment
    spec = experiment.read_game_spec().environment
    network = experiment.agent.make_network(spec)
    policy = experiment.agent.make_policy(network, spec)
    agent = shares.replay_config(experiment, self._settings.num_learners)
    # Only to be polled: `PatientIterator` has the real timeout.
    agent = agent.replace(replay_timeout_s=POLL_S)
    datasets = [
      replays.make_dataset(
        agent,
        spec,
        policy,
        processes.connect_to_replay(address, self._settings.replay_start_s),
      )
      for address in replay_addresses
    ]
    for dataset in datasets:
      stack.callback(dataset.close)
    return members.make_learner(
      experiment.agent,
      key,
      network,
      spec,
      len(replay_addresses),
      self._make_batches(members.Batches(datasets)),
      make_logger,
      mesh,
    )

  def _make_batches(self, dataset: Any) -> Any:
    """Returns an iterator over complete batches; sets the one over shares."""
    timeout_s = self._settings.stall_timeout_s
    if self._peers is not None:
      batches = peers.SharedBatches(
        self._peers, dataset, timeout_s, self._stop, self._on_idle
      )
      self._shares = batches.shares
      return batches
    self._shares = patient_iterator.PatientIterator(
      dataset, timeout_s, self._check_ended
    )
    return self._shares

  def _check_ended(self) -> None:
    if self._on_idle() or self._stop.is_set():
      raise patient_iterator.Ended

  def _localize(self, state: types.TrainingState) -> types.TrainingState:
    if self._peers is None:
      return state
    localized: types.TrainingState = peers.local(state)
    return localized


def make_mesh(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  num_members: int,
) -> jax.sharding.Mesh:
  """Returns the devices over which members or batches are sharded.

  Args:
    experiment: provides the batch size.
    settings: provides the number of devices.
    num_members: number of members that the learner holds.

  Raises:
    FatalError: if there are too few devices or they cannot share evenly.
  """
  from ftwax.runtime.local import members

  try:
    mesh = peers.make_mesh(settings.num_devices)
    members.check_devices(
      mesh,
      num_members,
      experiment.agent.batch_size,
    )
  except ValueError as error:
    raise processes.FatalError(str(error)) from error
  return mesh
