"""Formats the status of a distributed run as text."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from ftwax.records import log_values
from ftwax.runtime import run_records, runs


def format_status(
  status: Mapping[str, Any],
  max_steps: int,
  speeds: tuple[float, float],
  restarts: Mapping[str, int],
  waiting: Collection[str] = (),
) -> str:
  """Returns a few lines: progress, queue, and each node.

  Args:
    status: returned by `counter.Counter.status`.
    max_steps: number of actor steps of the whole run.
    speeds: actor steps and learner steps per second.
    restarts: number of restarts of each node.
    waiting: names of nodes that wait for a host.
  """
  steps_per_second, updates_per_second = speeds
  head = _format_counts(
    run_records.Counts(**status['counts']),
    status['mean_return'],
    max_steps,
    f'{steps_per_second:,.0f} steps/s',
    f'{updates_per_second:,.1f} updates/s',
  )
  head += [
    f'{name} {size}/{limit}' for name, (size, limit) in status['replay'].items()
  ]
  nodes = describe_nodes(status, restarts, waiting)
  rows = [f'  {name:<12} {text}' for name, text in nodes.items() if text]
  return '\n'.join([' | '.join(head), *rows])


def describe_nodes(
  status: Mapping[str, Any],
  restarts: Mapping[str, int],
  waiting: Collection[str] = (),
) -> dict[str, str]:
  """Describes the state of each node in words; see `format_status`."""
  nodes = {}
  for name in sorted(set(status['ages']) | set(restarts)):
    age = status['ages'].get(name)
    parts = ['' if age is None else f'seen {age:.1f} s ago']
    if restarts.get(name):
      parts.append(f'restarts {restarts[name]}')
    if status['failures'].get(name):
      parts.append(f'failed environments {status["failures"][name]}')
    if name in waiting:
      parts.append('waiting for a host')
    elif name in status['finished']:
      parts.append('ended')
    nodes[name] = ', '.join(filter(None, parts))
  return nodes


def format_end(result: runs.RunResult, max_steps: int, seconds: float) -> str:
  """Returns a line that summarizes a finished run.

  Args:
    result: result of the run.
    max_steps: number of actor steps of the whole run.
    seconds: duration since the run was started or resumed.
  """
  took = f'took {log_values.format_seconds(seconds)}'
  parts = _format_counts(result.counts, result.mean_return, max_steps, took)
  return ' | '.join(parts)


def _format_counts(
  counts: run_records.Counts, mean_return: float, max_steps: int, *pace: str
) -> list[str]:
  parts = [
    f'{counts.actor_steps:,} of {max_steps:,} steps',
    *pace,
    f'{counts.learner_steps:,} updates',
    f'{counts.episodes:,} episodes',
  ]
  if not math.isnan(mean_return):
    parts.append(f'return {log_values.format_value(mean_return)}')
  return parts
