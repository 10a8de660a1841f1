"""The wrappers of an environment, and those that keep running statistics.

Means and variances in a wrapper belong to one environment. Others of the same
run, those of evaluations and of a loaded agent have statistics of their own, so
that equal observations look different to the agent. The statistics of
`normalize_observations` and `normalize_returns` are part of the run instead.
"""

from collections.abc import Iterator
from typing import Any

# Names of attributes with statistics, in Gymnasium's wrappers and the recipes
# that follow them.
_OF_OBSERVATIONS, _OF_RETURNS = 'obs_rms', 'return_rms'

# Attribute of wrappers that end episodes with lives.
_LIVES = 'terminal_on_life_loss'

_STATISTICS = 'mean', 'var', 'count'


def names(env: Any) -> tuple[str, ...]:
  """Returns the names of the wrappers of an environment from the outside."""
  *wrappers, _ = _stack(env)
  return tuple(type(wrapper).__name__ for wrapper in wrappers)


def play_whole_games(env: Any) -> None:
  """Lets `AtariPreprocessing` and its like end episodes with games alone."""
  for wrapper in _stack(env):
    if getattr(wrapper, '__dict__', {}).get(_LIVES):
      setattr(wrapper, _LIVES, False)


def check_statistics(env: Any) -> None:
  """Raises a ValueError if a wrapper keeps running statistics.

  Args:
    env: an environment, or a vector of Gymnasium.
  """
  for wrapper in _stack(env):
    changes = getattr(wrapper, 'update_running_mean', True)
    for attribute, value in list(getattr(wrapper, '__dict__', {}).items()):
      if changes and _are_statistics(value):
        _refuse(type(wrapper).__name__, attribute, env)
  rows = getattr(env.unwrapped, 'envs', ())
  if rows:
    check_statistics(rows[0])
  elif hasattr(env, 'num_envs'):
    for attribute in (_OF_OBSERVATIONS, _OF_RETURNS):
      if _rows_have(env, attribute):
        _refuse('a wrapper', attribute, env)


def _are_statistics(value: Any) -> bool:
  # Tables have methods of these names.
  parts = [getattr(value, part, None) for part in _STATISTICS]
  return not any(part is None or callable(part) for part in parts)


def _stack(env: Any) -> Iterator[Any]:
  """Yields the wrappers of an environment from the outside, then itself."""
  yield env
  while (inner := getattr(env, '__dict__', {}).get('env')) is not None:
    env = inner
    yield env


def _rows_have(env: Any, attribute: str) -> bool:
  """Returns whether environments in other processes have an attribute."""
  try:
    found = env.call('has_wrapper_attr', attribute)
    return bool(found) and all(
      one and changes is not False
      for one, changes in zip(
        found, _ask(env, 'update_running_mean', len(found)), strict=True
      )
    )
  except (AttributeError, NotImplementedError, TypeError):
    return False


def _ask(env: Any, attribute: str, num_rows: int) -> Any:
  """Returns an attribute of each row; True where there is none."""
  if not all(env.call('has_wrapper_attr', attribute)):
    return [True] * num_rows
  return env.get_attr(attribute)


def _refuse(wrapper: str, attribute: str, env: Any) -> None:
  what = f'{wrapper} {attribute}'.lower()
  is_of_returns = any(word in what for word in ('return', 'reward', 'ret_'))
  option = 'normalize_returns' if is_of_returns else 'normalize_observations'
  raise ValueError(
    f'{wrapper} of {type(env.unwrapped).__name__} ({attribute}) must not keep'
    ' running statistics, since those of each environment, of evaluations and'
    ' of a loaded agent would differ; remove it, and set'
    f' {option}=True in the config of the agent, or'
    ' update_running_mean=False if they are final.'
  )
