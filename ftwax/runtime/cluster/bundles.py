"""Which nodes of a run go together, and what they take on a host."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Of a node, unless settings say otherwise. Ray counts CPUs and GPUs as shares
# of a host, not as cores that a node is kept to.
_DEFAULTS: Mapping[str, Mapping[str, float]] = {
  'learner': {'CPU': 1.0},
  'inference': {'CPU': 1.0},
  'actor': {'CPU': 1.0},
  'evaluator': {'CPU': 1.0},
}


class Bundles(NamedTuple):
  """Nodes of a run that are placed together.

  Attributes:
    resources: of each bundle, by Ray's names: CPU, GPU, memory (bytes), or
      the user's own.
    of_node: index of each node's bundle, by the node's name.
  """

  resources: list[dict[str, float]]
  of_node: dict[str, int]


def make(
  names: Sequence[str], resources: Mapping[str, Mapping[str, float]]
) -> Bundles:
  """Groups nodes: a learner and its replay, the first with counter and keeper.

  Args:
    names: of nodes, `label` or `label/index`.
    resources: by label, in place of the defaults of this file.

  Raises:
    ValueError: a label has no nodes, or a bundle takes nothing of a host.
  """
  labels = {name.partition('/')[0] for name in names}
  for label in resources:
    if label not in labels:
      raise ValueError(
        f'resources of {label!r} must be of nodes of this run, which are'
        f' {sorted(labels)}; leave them out.'
      )
  groups: dict[str, list[str]] = {}
  for name in names:
    groups.setdefault(_group(name), []).append(name)
  made = Bundles([], {})
  for members in groups.values():
    total: dict[str, float] = {}
    for name in members:
      label = name.partition('/')[0]
      taken = {**_DEFAULTS.get(label, {}), **resources.get(label, {})}
      for resource, amount in taken.items():
        total[resource] = total.get(resource, 0.0) + amount
      made.of_node[name] = len(made.resources)
    total = {name: amount for name, amount in total.items() if amount > 0}
    if not total:
      raise ValueError(
        f'resources of {members} must have one above zero, and are'
        f' {dict(resources)}; choose for instance CPU=0.1.'
      )
    made.resources.append(total)
  return made


def _group(name: str) -> str:
  """Returns what nodes that share a bundle have in common."""
  label, _, index = name.partition('/')
  if label in ('counter', 'keeper'):
    return 'learner/0'
  if label in ('learner', 'replay'):
    return f'learner/{index or 0}'
  return name
