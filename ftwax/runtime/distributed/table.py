"""The state of a distributed run, as text for people."""

import math
from collections.abc import Mapping
from typing import Any

from ftwax.runtime import log_values


def format_status(
  status: Mapping[str, Any],
  max_steps: int,
  speeds: tuple[float, float],
  restarts: Mapping[str, int],
) -> str:
  """Returns a few lines: progress, queue, and each node.

  Args:
    status: of `counter.Counter.status`.
    max_steps: actor steps of the whole run.
    speeds: actor steps and learner steps a second.
    restarts: of each node.
  """
  counts = status['counts']
  mean_return = status['mean_return']
  head = [
    f'{counts["actor_steps"]:,} of {max_steps:,} steps',
    f'{speeds[0]:,.0f} steps/s',
    f'{speeds[1]:,.1f} updates/s',
    f'{counts["learner_steps"]:,} updates',
    f'{counts["episodes"]:,} episodes',
  ]
  if not math.isnan(mean_return):
    head.append(f'return {log_values.format_value(mean_return)}')
  head += [
    f'{name} {size}/{limit}' for name, (size, limit) in status['replay'].items()
  ]
  rows = []
  for name in sorted(set(status['ages']) | set(restarts)):
    age = status['ages'].get(name)
    parts = ['' if age is None else f'seen {age:.1f} s ago']
    if restarts.get(name):
      parts.append(f'restarts {restarts[name]}')
    if status['failures'].get(name):
      parts.append(f'failed environments {status["failures"][name]}')
    if name in status['finished']:
      parts.append('ended')
    told = ', '.join(filter(None, parts))
    if told:
      rows.append(f'  {name:<12} {told}')
  return '\n'.join([' | '.join(head), *rows])
