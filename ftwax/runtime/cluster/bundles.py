"""Groups the nodes of a run into bundles that are placed on a host together."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Default resources of a node. Ray counts CPUs and GPUs as shares of a host; it
# does not pin nodes to cores.
_DEFAULTS: Mapping[str, Mapping[str, float]] = {
  'learner': {'CPU': 1.0},
  'inference': {'CPU': 1.0},
  'actor': {'CPU': 1.0},
  'evaluator': {'CPU': 1.0},
}


class Bundles(NamedTuple):
  """Groups of nodes that are placed together.

  Attributes:
    resources: resources of each bundle, by Ray's names: CPU, GPU, memory
      (bytes), or custom ones.
    of_node: index of each node's bundle, by the node's name.
  """

  resources: list[dict[str, float]]
  of_node: dict[str, int]


def make(
  names: Sequence[str], resources: Mapping[str, Mapping[str, float]]
) -> Bundles:
  """Groups a learner with its replay; counter and keeper join learner 0.

  Args:
    names: names of the nodes, `label` or `label/index`.
    resources: resources by label, overriding the defaults of this file.

  Raises:
    ValueError: if a label has no nodes or a bundle needs no resources.
  """
  labels = {name.partition('/')[0] for name in names}
  for label in resources:
    if label not in labels:
      raise ValueError(
        f'resources of {label!r} must belong to nodes of this run, which are'
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
        f'resources of {members} must include one above zero, but are'
        f' {dict(resources)}; choose e.g. CPU=0.1.'
      )
    made.resources.append(total)
  return made


def _group(name: str) -> str:
  """Returns a key shared by the nodes of a bundle."""
  label, _, index = name.partition('/')
  if label in ('counter', 'keeper'):
    return 'learner/0'
  if label in ('learner', 'replay'):
    return f'learner/{index or 0}'
  return name
