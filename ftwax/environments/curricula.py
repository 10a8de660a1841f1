"""Curricula: parameters of environments that change while an agent trains.

A rule has the name of a parameter, its first value, and a function from the
progress of the run to the next value. Values are data of the run: they are
saved and resumed with it, logged as `parameters/NAME`, and given to all
environments, which begin each episode with them:

- a Gymnasium or PettingZoo environment gets them as `reset(options=values)` or,
  if it has this method, by `set_parameters(values)`;
- a vector of Gymnasium's, whose rows reset themselves, and any other
  environment in Python has the method `set_parameters(values)`;
- an environment in JAX has `reset(key, parameters={'gap': 1.0})`, with the
  names and defaults of its parameters.
"""

import collections
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ftwax import parts, registry, types
from ftwax.environments import episode_metrics

# Name of the method, and of the argument of `reset` in JAX.
METHOD, ARGUMENT = 'set_parameters', 'parameters'

# Prefix of names in logs.
PREFIX = 'parameters/'

# Episodes over which `Progress.mean` is taken, at most.
_MOST_EPISODES = 100

# Parameters of an environment by name.
Values = Mapping[str, float]


class Progress(NamedTuple):
  """The progress of a run, as rules see it.

  Attributes:
    steps: number of actions in all training environments.
    values: the present values of all parameters.
    num_episodes: number of training episodes since a value last changed.
    episodes: values of these episodes by the names of the training log, such as
      `episode_return` and `metrics/is_success`; at most the last 100.
    evaluation: the row of the last evaluation; empty before the first.
  """

  steps: int
  values: Values
  num_episodes: int
  episodes: Mapping[str, Sequence[float]]
  evaluation: Mapping[str, Any]

  def mean(self, name: str) -> float:
    """Returns the mean over `episodes`; NaN without any."""
    values = self.episodes.get(name, ())
    return sum(values) / len(values) if values else math.nan


@dataclasses.dataclass(frozen=True)
class Rule(parts.Part):
  """Base of the rules: derive from it and override `next_value`.

  Attributes:
    parameter: name of the parameter.
    start: its first value.
  """

  parameter: str
  start: float

  def next_value(self, value: float, progress: Progress) -> float:
    """Returns the next value of the parameter, given the present one."""
    raise NotImplementedError


@registry.register('curriculum.ramp')
@dataclasses.dataclass(frozen=True)
class Ramp(Rule):
  """Moves a parameter linearly with the steps of the run.

  Attributes:
    end: the last value.
    num_steps: steps of all environments after which it is reached.
  """

  end: float = 1.0
  num_steps: int = parts.option(100_000, low=1)

  def next_value(self, value: float, progress: Progress) -> float:
    """Returns the value at the present step."""
    del value
    share = min(progress.steps / self.num_steps, 1.0)
    return self.start + share * (self.end - self.start)


@registry.register('curriculum.stages')
@dataclasses.dataclass(frozen=True)
class Stages(Rule):
  """Moves a parameter on whenever the agent is good enough.

  Attributes:
    then: the values after the first, in their order.
    key: what is compared, over training episodes since the last change: the
      return, or a metric such as `metrics/is_success`; with a minus in front if
      less is better. See `episode_metrics`.
    score: the mean at which the next value begins.
    num_episodes: number of episodes that there must be, at most 100.
  """

  then: tuple[float, ...] = ()
  key: str = episode_metrics.RETURN
  score: float = 0.9
  num_episodes: int = parts.option(50, low=1, high=_MOST_EPISODES)

  def __post_init__(self) -> None:
    """Checks the key."""
    super().__post_init__()
    episode_metrics.read_criterion('key', self.key)

  def next_value(self, value: float, progress: Progress) -> float:
    """Returns the value after the present one if the mean is high enough."""
    _, sign = episode_metrics.read_criterion('key', self.key)
    name = self.key.removeprefix('-')
    if len(progress.episodes.get(name, ())) < self.num_episodes:
      return value
    values = self.start, *self.then
    # Not the number of changes, since values are the whole state.
    place = min(range(len(values)), key=lambda i: abs(values[i] - value))
    if sign * progress.mean(name) < self.score or place + 1 == len(values):
      return value
    return values[place + 1]


class Course:
  """The present values of a run's parameters.

  Attributes:
    values: the values by name, empty without rules.
  """

  def __init__(self, rules: Sequence[Rule]):
    """Begins with the first values."""
    self._rules = tuple(rules)
    self.values: dict[str, float] = {
      rule.parameter: float(rule.start) for rule in rules
    }
    self._evaluation: Mapping[str, Any] = {}
    self._restart()

  def _restart(self) -> None:
    self._num_episodes = 0
    self._episodes: dict[str, collections.deque[float]] = {}

  @property
  def row(self) -> dict[str, float]:
    """The values by the names of a log."""
    return {PREFIX + name: value for name, value in self.values.items()}

  def advance(
    self,
    steps: int,
    returns: Sequence[float],
    measured: Sequence[Mapping[str, float]],
  ) -> None:
    """Chooses the next values.

    Args:
      steps: of the run.
      returns: of the training episodes since the last call.
      measured: metrics of the games that ended since the last call.

    Raises:
      ValueError: if a rule returns what is not a finite number.
    """
    if not self._rules:
      return
    self._num_episodes += len(returns)
    self._add(episode_metrics.RETURN, returns)
    for one in measured:
      for name, value in one.items():
        self._add(episode_metrics.PREFIX + name, [value])
    progress = Progress(
      steps,
      dict(self.values),
      self._num_episodes,
      {name: tuple(values) for name, values in self._episodes.items()},
      self._evaluation,
    )
    values = {
      rule.parameter: _check(
        rule, rule.next_value(self.values[rule.parameter], progress)
      )
      for rule in self._rules
    }
    if values != self.values:
      self.values = values
      self._restart()

  def _add(self, name: str, values: Sequence[float]) -> None:
    kept = self._episodes.setdefault(
      name, collections.deque(maxlen=_MOST_EPISODES)
    )
    kept.extend(float(value) for value in values)

  def see_evaluation(self, row: Mapping[str, Any]) -> None:
    """Keeps the row of an evaluation for the rules."""
    self._evaluation = dict(row)

  def save(self) -> dict[str, Any]:
    """Returns plain values to restore; empty without rules."""
    if not self._rules:
      return {}
    return {
      'values': self.values,
      'num_episodes': self._num_episodes,
      'episodes': {name: list(own) for name, own in self._episodes.items()},
    }

  def restore(self, saved: Mapping[str, Any]) -> None:
    """Continues from the result of `save`; new rules begin anew."""
    values = saved.get('values', {})
    self.values.update(
      {name: float(values[name]) for name in self.values if name in values}
    )
    self._restart()
    self._num_episodes = int(saved.get('num_episodes', 0))
    for name, own in saved.get('episodes', {}).items():
      self._add(name, own)


def _check(rule: Rule, value: Any) -> float:
  if not isinstance(value, int | float) or not math.isfinite(value):
    raise ValueError(
      f'next_value of {type(rule).__name__} for {rule.parameter!r} must be a'
      f' finite number, but is {value!r}; return the present value to keep it.'
    )
  return float(value)


def check_rules(rules: Any) -> None:
  """Raises an error unless `rules` are rules of different parameters."""
  if not isinstance(rules, tuple) or not all(
    isinstance(rule, Rule) for rule in rules
  ):
    raise types.InvalidTypeError(
      f'curriculum ({rules!r}) must be a tuple of rules; choose'
      " (curricula.Ramp('gap', 1.0, end=5.0),)."
    )
  names = [rule.parameter for rule in rules]
  if len(set(names)) < len(names):
    raise ValueError(
      f'curriculum ({", ".join(names)}) must have one rule for each parameter;'
      ' leave out the others.'
    )


def defaults(reset: Callable[..., Any]) -> dict[str, float]:
  """Returns parameters of an environment in JAX, by its `reset`; or none."""
  found = inspect.signature(reset).parameters.get(ARGUMENT)
  if found is None or not isinstance(found.default, Mapping):
    return {}
  return dict(found.default)


def check_names(reset: Callable[..., Any], rules: Sequence[Rule]) -> None:
  """Raises a ValueError if `reset` lacks parameters that have a rule."""
  found = defaults(reset)
  missing = [rule.parameter for rule in rules if rule.parameter not in found]
  if missing:
    example = ', '.join(f'{name!r}: 1.0' for name in (*found, *missing))
    raise ValueError(
      f'curriculum ({", ".join(missing)}) must name parameters of the'
      f" environment's reset, which has {sorted(found) or 'none'}; write"
      f' reset(key, {ARGUMENT}={{{example}}}).'
    )


def fail(environment: Any, values: Values) -> None:
  """Raises the error of an environment that takes no parameters."""
  raise ValueError(
    f'environment ({type(environment).__name__}) must have a method'
    f' {METHOD}(values) for a curriculum of {", ".join(values)}, and has none;'
    ' write one that keeps the values for the next episodes.'
  )
