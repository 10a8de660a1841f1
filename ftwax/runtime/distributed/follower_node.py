"""A learner node that follows the first one and updates with its own share.

The first learner does everything else; see `learner_node`. All learners have
the same parameters, so actors fetch them from the learner that reads their
trajectories.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax

from ftwax import types
from ftwax.records import log_values
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  node_learner,
  patient_iterator,
  peers,
  processes,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

# Seconds between two heartbeats.
_REPORT_S = 0.5


class Follower:
  """Learns together with the first learner; actors call it."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    settings: settings_lib.Settings,
    replay_addresses: Sequence[str],
    counter_client: Any,
    index: int,
    coordinator_address: Sequence[str],
  ):
    """Stores the arguments; `run` makes the learner.

    Args:
      experiment: an agent and its task.
      settings: settings of the run.
      replay_addresses: address of the replay server that provides its shares.
      counter_client: client of the counter.
      index: index of the learner, above 0.
      coordinator_address: address at which the first learner coordinates all.
    """
    self._name = shares.node_names('learner', settings.num_learners)[index]
    self._experiment = experiment
    self._settings = settings
    self._replay_addresses = replay_addresses
    self._counter = processes.Remote(counter_client, 'counter')
    self._index = index
    self._coordinator_address = coordinator_address
    self._learner: node_learner.NodeLearner | None = None
    self._report_time = 0.0
    self._stop = threading.Event()

  def variables(
    self, known_steps: int, written_at: float = 0.0
  ) -> list[types.NumpyArray] | None:
    """Returns variables; None until the learner is made.

    See `NodeLearner.variables`.
    """
    if self._learner is None:
      return None
    return self._learner.variables(known_steps, written_at)

  def run(self) -> None:
    """Learns until all learners end."""
    with (
      processes.node(self._name) as self._stop,
      contextlib.ExitStack() as stack,
    ):
      peers.join(self._coordinator_address, self._index, self._settings)
      learner = node_learner.NodeLearner(
        self._experiment,
        self._settings,
        jax.random.PRNGKey(self._experiment.seed),
        self._replay_addresses,
        _make_logger,
        self._stop,
        self._on_idle,
      )
      stack.callback(learner.close)
      learner.restore(learner.state)
      self._learner = learner
      self._report()
      with contextlib.suppress(patient_iterator.Ended):
        while True:
          learner.step()
          if time.monotonic() - self._report_time >= _REPORT_S:
            self._report()
      peers.leave()
      self._counter.try_call('finish', self._name)

  def _on_idle(self) -> bool:
    self._report()
    return False  # The first learner decides when the run is done.

  def _report(self) -> None:
    self._counter.try_call('report_follower', self._index)
    self._report_time = time.monotonic()


class _NoLogger:
  """Discards rows, which the first learner logs as well."""

  def write(self, values: log_values.LoggingData) -> None:
    """Discards a row."""

  def close(self) -> None:
    """Does nothing."""


def _make_logger(
  label: str, steps_key: str | None = None, instance: int | None = None
) -> _NoLogger:
  del label, steps_key, instance
  return _NoLogger()
