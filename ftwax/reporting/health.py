"""What the logs of a run say about the health of its agents, one by one.

Each finding is a sentence with a remedy, and is told once. Thresholds are those
outside of which none of the library's own runs lies; `docs/how_to/tips.md` says
what they mean.
"""

import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax.records import files, loggers, run_directory

# Share of the largest entropy below which a policy is nearly deterministic.
_LOW_ENTROPY = 1 / 20

# KL(old policy || new policy) of an update; PPO stands at 0.01 to 0.02.
_LOW_KL, _HIGH_KL = 1e-3, 0.05

# How often the norm of gradients exceeds its bound where they are clipped hard.
_CLIPPED = 2.0

# Times by which a value loss grows that explodes.
_EXPLOSION = 100.0

# Rows of the log that show a state rather than a moment.
_FEW = 8

# Games that show how an agent plays.
_MANY_GAMES = 16

# Shares of the run: policies become deterministic and annealed rates fall.
_EARLY, _ANNEALED = 0.5, 0.75


_Column = np.ndarray[Any, np.dtype[np.float64]]


class Finding(NamedTuple):
  """Something that is wrong with an agent.

  Attributes:
    kind: a word for it, such as `entropy`.
    member: the member of a population, or zero.
    num_members: the size of the population.
    text: what is wrong, and what to do.
  """

  kind: str
  member: int
  num_members: int
  text: str

  def __str__(self) -> str:
    """Returns a sentence that names the member of a population."""
    who = f'member {self.member}: ' if self.num_members > 1 else ''
    return f'{who}{self.text}'


def read(run_dir: str | os.PathLike[str]) -> list[Finding]:
  """Returns what is wrong with the agents of a run; nothing without its logs.

  Raises:
    ValueError: if a log is damaged.
  """
  directory = pathlib.Path(run_dir)
  paths = {
    label: loggers.log_path(directory, label)
    for label in ('learner', 'evaluation', 'population')
  }
  rows = {
    label: loggers.read_jsonl(path) if path.exists() else []
    for label, path in paths.items()
  }
  config_file = directory / run_directory.CONFIG_FILE
  config = files.read_object(config_file) if config_file.exists() else {}
  with files.reading(config_file, 'the configuration of a run'):
    num_steps = float(config.get('max_num_actor_steps', 1.0))
    bound = dict(config.get('agent', {})).get('max_gradient_norm')
  game_file = directory / run_directory.GAME_FILE
  game = files.read_object(game_file) if game_file.exists() else {}
  with files.reading(paths['population'], 'the log of a population'):
    last = rows['population'][-1] if rows['population'] else {}
    steps = float(last.get('actor_steps', 0.0))
    bounds = last.get('hyperparameters/max_gradient_norm', bound)
    bounds = [
      one if isinstance(one, int | float) else None
      for one in (bounds if isinstance(bounds, list) else [bounds])
    ]
  with files.reading(paths['evaluation'], 'the log of evaluations'):
    of_games = _of_games(rows['evaluation'])
  with files.reading(paths['learner'], 'the log of a learner'):
    return [
      *diagnose(
        rows['learner'],
        progress=steps / max(num_steps, 1.0),
        max_entropy=_max_entropy(game.get('actions')),
        max_gradient_norm=bounds,
      ),
      *of_games,
    ]


def diagnose(
  learner: Sequence[Mapping[str, Any]],
  evaluations: Sequence[Mapping[str, Any]] = (),
  progress: float = 1.0,
  max_entropy: float | None = None,
  max_gradient_norm: Any = None,
) -> list[Finding]:
  """Returns what is wrong with the agents of a run.

  Args:
    learner: rows of the learner's log.
    evaluations: rows of the log of evaluations.
    progress: share of the run at the last row.
    max_entropy: entropy in nats of a policy that chooses uniformly; None if
      actions are not discrete.
    max_gradient_norm: bound of each member; None, also for one of them, for no
      bound. It does not count for vectors with normalized returns.
  """
  found = []
  num_members = _num_members(learner)
  last_row = learner[-1] if learner else {}
  last_step = last_row.get('learner_steps', 0)
  if max_entropy is None and 'return_scale' in last_row:
    # Gradients of densities grow as deviations fall, and those of values are
    # small.
    max_gradient_norm = None

  def until(share: float) -> float:
    """Returns the last update in a share of the whole run."""
    return last_step * share / max(progress, 1e-9)

  for member in range(num_members):
    bound = _of_member(max_gradient_norm, member)
    for kind, text in (
      *_of_entropy(
        _column(learner, 'entropy', member, until(_EARLY)), max_entropy
      ),
      *_of_kl(_column(learner, 'kl_old_new', member, until(_ANNEALED))),
      *_of_gradients(_column(learner, 'gradient_norm', member), bound),
      *_of_values(_column(learner, 'value_loss', member)),
    ):
      found.append(Finding(kind, member, num_members, text))
  found += _of_games(evaluations)
  return found


def _of_entropy(
  entropy: _Column, max_entropy: float | None
) -> Iterator[tuple[str, str]]:
  if max_entropy is None:
    return
  # Half of the rows: a policy that looks sure for a while may doubt again.
  recent = entropy[len(entropy) // 2 :]
  limit = _LOW_ENTROPY * max_entropy
  if recent.size >= _FEW and np.all(recent < limit):
    yield (
      'entropy',
      f'entropy stays below {limit:.2g} of at most {max_entropy:.2g} nats'
      ' before half of the run, so the policy explores no more; raise'
      ' entropy_cost, or lower learning_rate.',
    )


def _of_kl(kl: _Column) -> Iterator[tuple[str, str]]:
  recent = kl[len(kl) // 2 :]
  if recent.size < _FEW:
    return
  if np.all(recent < _LOW_KL):
    yield (
      'low_kl',
      f'kl_old_new stays below {_LOW_KL:g}, so updates hardly change the'
      ' policy; raise learning_rate or num_epochs.',
    )
  if np.all(recent > _HIGH_KL):
    yield (
      'high_kl',
      f'kl_old_new stays above {_HIGH_KL:g}, so updates move the policy too'
      ' far; lower learning_rate or num_epochs.',
    )


def _of_gradients(
  norm: _Column, bound: float | None
) -> Iterator[tuple[str, str]]:
  recent = norm[len(norm) // 2 :]
  limit = _CLIPPED * (math.inf if bound is None else bound)
  if recent.size >= _FEW and np.all(recent > limit):
    yield (
      'clipped',
      f'gradient_norm stays above {_CLIPPED:g} times max_gradient_norm'
      f' ({bound:g}), so the size of gradients is lost; raise it, or set'
      ' normalize_returns=True if returns are large.',
    )


def _of_values(loss: _Column) -> Iterator[tuple[str, str]]:
  if loss.size >= 2 * _FEW:
    first = float(np.median(loss[:_FEW]))
    last = float(np.median(loss[-_FEW:]))
    if last > _EXPLOSION * max(first, 1e-2):
      yield (
        'value_loss',
        f'value_loss has grown from {first:.2g} to {last:.2g}, so values do'
        ' not follow the returns; set normalize_returns=True, or lower'
        ' learning_rate.',
      )


def _of_games(evaluations: Sequence[Mapping[str, Any]]) -> list[Finding]:
  """Finds members with nothing but draws, as one that does nothing has."""
  if not evaluations:
    return []
  row = evaluations[-1]
  columns = [
    row.get(f'member_{name}') for name in ('payoffs', 'payoff_errors', 'games')
  ]
  if any(column is None for column in columns):
    return []
  # Against the first opponent, the weakest.
  of_members = [np.asarray(column, float)[:, 0] for column in columns]
  return [
    Finding(
      'draws',
      member,
      len(of_members[0]),
      f'all its {games:.0f} games with the first opponent are draws, as if it'
      ' did nothing; look at a film, and at the rewards that it has.',
    )
    for member, (payoff, error, games) in enumerate(
      zip(*of_members, strict=True)
    )
    if payoff == error == 0.0 and games >= _MANY_GAMES
  ]


def _num_members(rows: Sequence[Mapping[str, Any]]) -> int:
  value = rows[-1].get('value_loss', 0.0) if rows else []
  return len(value) if isinstance(value, list) else 1


def _of_member(value: Any, member: int) -> float | None:
  """Returns the number of a member; of a list that is too short the last."""
  return (
    value[min(member, len(value) - 1)] if isinstance(value, list) else value
  )


def _column(
  rows: Sequence[Mapping[str, Any]],
  name: str,
  member: int,
  last_step: float = math.inf,
) -> _Column:
  """Returns a column of a member up to an update, without what is no number."""
  values = [
    _of_member(row.get(name), member)
    for row in rows
    if row.get('learner_steps', 0) <= last_step
  ]
  numbers = [value for value in values if isinstance(value, int | float)]
  return np.array(numbers, np.float64)


def _max_entropy(spec: Any) -> float | None:
  """Returns the largest entropy of actions as recorded; None for vectors."""
  if isinstance(spec, list):
    entropies = [_max_entropy(one) for one in spec]
  elif isinstance(spec, dict) and 'kind' in spec:
    size = spec.get('num_values')
    return math.log(size) if isinstance(size, int) and size > 0 else None
  elif isinstance(spec, dict):
    entropies = [_max_entropy(one) for one in spec.values()]
  else:
    return None
  known = [entropy for entropy in entropies if entropy is not None]
  return sum(known) if known and len(known) == len(entropies) else None
