"""Settings of a distributed run."""

import dataclasses
from collections.abc import Mapping

# Value of `Settings.cluster` without a cluster.
LOCAL = 'local'

LABELS = ('actor', 'learner', 'evaluator')


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of a distributed run.

  Attributes:
    num_actors: number of actor processes, each with
      `experiment.num_environments` environments.
    num_learners: number of learner processes, which share the members evenly.
    num_devices: number of devices over which a learner shards its members or,
      with a single member, its batches: the first ones that JAX sees in its
      process.
    actors_wait: whether an actor waits to begin a trajectory until the learners
      have learned from its previous one. Parameters are then less stale, so the
      same number of steps teaches more; with more CPUs than nodes, fewer steps
      are taken per second.
    max_restarts: number of restarts of a node within `restart_period_s` after
      which the run fails. All actors together share this number times the
      number of actors.
    restart_period_s: period of `max_restarts`, in seconds.
    heartbeat_timeout_s: seconds without an answer after which a node, which was
      stopped or hangs, is killed and replaced.
    cluster: address of the Ray cluster whose hosts run the nodes, as accepted
      by `ray.init` ('auto', 'ray://HOST:PORT'); 'local' for this machine.
    resources: resources that a node takes, by label and by Ray's names:
      {'learner': {'GPU': 1}, 'actor': {'CPU': 2}}. By default each node takes
      one CPU, and learners share the GPUs.
  """

  num_actors: int = 2
  num_learners: int = 1
  num_devices: int = 1
  actors_wait: bool = True
  max_restarts: int = 10
  restart_period_s: float = 300.0
  heartbeat_timeout_s: float = 90.0
  cluster: str = LOCAL
  resources: Mapping[str, Mapping[str, float]] = dataclasses.field(
    default_factory=dict, hash=False
  )

  def __post_init__(self) -> None:
    """Checks that numbers are in range."""
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, int | float) and value < 0:
        raise ValueError(
          f'{field.name} ({value}) must not be negative; choose'
          f' {field.default}.'
        )
      if field.name.startswith('num_') and value < 1:
        raise ValueError(
          f'{field.name} ({value}) must be at least 1; choose {field.default}.'
        )
    unknown = sorted(set(self.resources) - set(LABELS))
    if unknown:
      raise ValueError(
        f'resources ({dict(self.resources)}) must name nodes of {LABELS}, and'
        f' {unknown[0]!r} is none; choose one of them.'
      )
    if self.resources and self.cluster == LOCAL:
      raise ValueError(
        f'resources ({dict(self.resources)}) need a Ray cluster, which reserves'
        f' them, but cluster is {LOCAL!r}; choose --cluster=auto.'
      )
