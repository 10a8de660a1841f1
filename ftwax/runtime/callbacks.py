"""Observers that end a run early or keep its best checkpoint.

    experiment.replace(observers=[callbacks.EarlyStopping(patience=5)])

They act on evaluations, so pass `eval_every`. A distributed run ends once its
actors have taken the steps already granted to them, and its best checkpoint
dates from the moment at which the learner receives the evaluation.
"""

import json
import math
import shutil
from collections.abc import Mapping
from typing import Any

from ftwax.records import checkpoints, files
from ftwax.runtime import experiment as experiment_lib

# Subdirectory of a run with the checkpoint of `BestCheckpoint`.
BEST_DIRECTORY = 'best'
_SCORE_FILE = 'score.json'


class EarlyStopping(experiment_lib.Observer):
  """Ends a run at a given score, or when evaluations stop improving.

  A run that ended early can be continued with `resume`.
  """

  def __init__(
    self,
    score: float | None = None,
    patience: int | None = None,
    key: str = 'episode_return',
  ):
    """Stores the stopping criteria.

    Args:
      score: ends the run when an evaluation reaches this score.
      patience: ends the run after this many consecutive evaluations without a
        new best score.
      key: name of the score in the row; see `read_score`.

    Raises:
      ValueError: if neither is given or `patience` is less than 1.
    """
    if score is None and patience is None:
      raise ValueError(
        'score (None) or patience (None) must be given, or the run would never'
        ' end early; choose patience=5.'
      )
    if patience is not None and patience < 1:
      raise ValueError(f'patience ({patience}) must be at least 1; choose 5.')
    self.score = score
    self.patience = patience
    self.key = key
    self._best = float('-inf')
    self._num_worse = 0

  def observe_evaluation(
    self, row: Mapping[str, Any], run: experiment_lib.RunView
  ) -> bool:
    """Returns whether the run should end."""
    value = read_score(row, self.key)
    self._num_worse = 0 if value > self._best else self._num_worse + 1
    self._best = max(self._best, value)
    if self.score is not None and value >= self.score:
      print(f'{self.key} reached {self.score:g}; stopping the run.')
      return True
    if self.patience is not None and self._num_worse >= self.patience:
      print(
        f'{self.key} has not exceeded {self._best:g} in {self.patience} more'
        ' evaluations; stopping the run.'
      )
      return True
    return False


class BestCheckpoint(experiment_lib.Observer):
  """Keeps the checkpoint of the best evaluation, besides the newest ones.

  The checkpoint is stored in `best/` in the run directory; `ftwax.load(run_dir,
  step='best')` loads an agent from it. A resumed run continues to compare with
  it.
  """

  def __init__(self, key: str = 'episode_return'):
    """Stores the name of the score in the row; see `read_score`."""
    self.key = key

  def observe_evaluation(
    self, row: Mapping[str, Any], run: experiment_lib.RunView
  ) -> bool:
    """Saves the state if this evaluation is the best so far."""
    value, step = read_score(row, self.key), run.counts['actor_steps']
    directory = run.directory / BEST_DIRECTORY
    path = directory / _SCORE_FILE
    best = files.read_object(path)
    # A score by another key says nothing about this one.
    if not value > best.get(self.key, -math.inf):
      return False
    with checkpoints.Checkpointer(
      directory,
      max_to_keep=1,
      must_be_finite=lambda state: state.training.params,
    ) as checkpointer:
      if any(saved > step for saved in checkpointer.steps()):
        shutil.rmtree(directory)  # Of steps lost in a kill.
      checkpointer.save(step, run.snapshot())
    files.write_atomically(path, json.dumps({self.key: value, 'step': step}))
    return False


def read_score(row: Mapping[str, Any], key: str) -> float:
  """Returns a value of an evaluation's row, of which more is better.

  Args:
    row: see `evaluation.make_row`.
    key: name of the value; with a minus in front if less is better, as in
      `-metrics/distance`, to return its negative.

  Raises:
    ValueError: if the value is missing or not a number.
  """
  name = key.removeprefix('-')
  value = row.get(name)
  if not isinstance(value, int | float):
    numbers = [name for name, x in row.items() if isinstance(x, int | float)]
    raise ValueError(
      f'key ({key!r}) must be a number of an evaluation; choose one of'
      f' {numbers}.'
    )
  return float(value) if name == key else -float(value)
