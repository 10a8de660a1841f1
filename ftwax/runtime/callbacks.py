"""Observers that end a run early, or keep its best checkpoint.

    experiment.replace(observers=[callbacks.EarlyStopping(patience=5)])

They look at evaluations, so give `eval_every`. A distributed run ends once its
actors have taken the steps that they hold, and its best checkpoint is of the
moment at which the learner hears of the evaluation.
"""

import json
import shutil
from collections.abc import Mapping
from typing import Any

from ftwax.records import checkpoints, files
from ftwax.runtime import experiment as experiment_lib

# Holds the checkpoint of `BestCheckpoint` in the directory of a run.
BEST_DIRECTORY = 'best'
_SCORE_FILE = 'score.json'


class EarlyStopping(experiment_lib.Observer):
  """Ends a run at a score, or when evaluations get no better.

  A run that ended early goes on with `resume`.
  """

  def __init__(
    self,
    score: float | None = None,
    patience: int | None = None,
    key: str = 'episode_return',
  ):
    """Takes when to end.

    Args:
      score: ends the run when an evaluation reaches it.
      patience: ends the run after so many evaluations in a row that are not
        better than the best one before.
      key: value of the row that counts; see `evaluation.make_row`.

    Raises:
      ValueError: neither is given, or `patience` is less than 1.
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
    """Returns whether the run is to end."""
    value = read_score(row, self.key)
    self._num_worse = 0 if value > self._best else self._num_worse + 1
    self._best = max(self._best, value)
    if self.score is not None and value >= self.score:
      print(f'{self.key} reached {self.score:g}: the run ends.')
      return True
    if self.patience is not None and self._num_worse >= self.patience:
      print(
        f'{self.key} is not above {self._best:g} after {self.patience} more'
        ' evaluations: the run ends.'
      )
      return True
    return False


class BestCheckpoint(experiment_lib.Observer):
  """Keeps the checkpoint of the best evaluation beside the newest ones.

  It is in `best/` in the run's directory; `ftwax.load(run_dir,
  step='best')` loads an agent of it. A run that is resumed goes on comparing.
  """

  def __init__(self, key: str = 'episode_return'):
    """Takes the value of the row that counts; see `evaluation.make_row`."""
    self.key = key

  def observe_evaluation(
    self, row: Mapping[str, Any], run: experiment_lib.RunView
  ) -> bool:
    """Saves the state if this evaluation is the best so far."""
    value, step = read_score(row, self.key), run.counts['actor_steps']
    directory = run.directory / BEST_DIRECTORY
    path = directory / _SCORE_FILE
    if path.exists() and value <= json.loads(files.read(path))[self.key]:
      return False
    with checkpoints.Checkpointer(
      directory,
      max_to_keep=1,
      must_be_finite=lambda state: state.training.params,
    ) as checkpointer:
      if any(saved > step for saved in checkpointer.steps()):
        shutil.rmtree(directory)  # Of steps that a kill has undone.
      checkpointer.save(step, run.snapshot())
    files.write_atomically(path, json.dumps({self.key: value, 'step': step}))
    return False


def read_score(row: Mapping[str, Any], key: str) -> float:
  """Returns a value of an evaluation's row.

  Raises:
    ValueError: there is none, or it is no number.
  """
  value = row.get(key)
  if not isinstance(value, int | float):
    numbers = [name for name, x in row.items() if isinstance(x, int | float)]
    raise ValueError(
      f'key ({key!r}) must be a number of an evaluation; choose one of'
      f' {numbers}.'
    )
  return float(value)
