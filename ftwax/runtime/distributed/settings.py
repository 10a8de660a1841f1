"""Settings of a distributed run."""

import dataclasses
from collections.abc import Mapping

# Value of `Settings.cluster` without a cluster.
LOCAL = 'local'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of a distributed run.

  Attributes:
    num_actors: number of actor processes, each with
      `experiment.num_environments` environments.
    num_learners: number of learner nodes, with one replay node each, that share
      the members or, with a single member, each batch.
    num_devices: number of devices over which a learner shards its members or,
      with a single member, its batches: the first ones that JAX sees in its
      process.
    inference_server: whether one process applies the network for all actors,
      which then hold no parameters.
    actors_wait: whether an actor waits to begin a trajectory until the learner
      has learned from its previous one. Parameters are then less stale, so the
      same number of steps teaches more; with more CPUs than nodes, fewer steps
      are taken per second. Ignored with an inference server.
    inference_wait_s: seconds that the inference server waits for further actors
      after the first request, to serve them in one batch.
    max_restarts: number of restarts of a node within `restart_period_s` after
      which the run fails. All actors together share this number times the
      number of actors.
    restart_period_s: period of `max_restarts`, in seconds.
    heartbeat_timeout_s: seconds without a heartbeat after which a node, which
      was stopped or hangs, is killed and replaced.
    stall_timeout_s: maximum seconds that the learner waits for a batch from the
      queue, or that an actor waits to insert trajectories.
    variables_period_s: seconds between two requests for variables of nodes that
      do not wait for the learner.
    replay_start_s: maximum seconds until the replay server first answers. A
      node that has waited so long in vain is restarted once, so the run fails
      after twice this time.
    replay_save_s: seconds between two checkpoints of the replay server.
    stop_timeout_s: seconds that nodes have to save and end before they are
      killed.
    cluster: address of the Ray cluster whose hosts run the nodes, as accepted
      by `ray.init` ('auto', 'ray://HOST:PORT'); 'local' for this machine
      without Ray.
    resources: resources of the cluster that a node takes, by label and by Ray's
      names: {'learner': {'GPU': 1}, 'actor': {'CPU': 2}}. Compute nodes take
      one CPU by default.
  """

  num_actors: int = 2
  num_learners: int = 1
  num_devices: int = 1
  inference_server: bool = False
  actors_wait: bool = True
  inference_wait_s: float = 0.005
  max_restarts: int = 10
  restart_period_s: float = 300.0
  heartbeat_timeout_s: float = 90.0
  stall_timeout_s: float = 300.0
  variables_period_s: float = 0.05
  replay_start_s: float = 8.0
  replay_save_s: float = 60.0
  stop_timeout_s: float = 60.0
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
    if self.resources and self.cluster == LOCAL:
      raise ValueError(
        f'resources ({dict(self.resources)}) need a Ray cluster, which reserves'
        f' them, but cluster is {LOCAL!r}; choose --cluster=auto.'
      )
