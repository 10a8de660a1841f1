"""Settings of a distributed run."""

import dataclasses
from collections.abc import Mapping

# In place of the address of a cluster.
LOCAL = 'local'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Periods and limits.

  Attributes:
    num_actors: processes that act, each in `experiment.num_environments`.
    num_learners: learner nodes, with a replay node each, over which the members
      or, of one member, its batches are spread.
    num_devices: devices over which a learner spreads members or, of one
      member, its batches: the first ones that JAX sees in its process.
    inference_server: whether one process applies the network for all actors,
      which then hold no parameters.
    actors_wait: whether an actor begins a trajectory only when the learner has
      learned from its last one. Its parameters lag less behind, so that as many
      steps teach more; where there are more CPUs than nodes it acts less.
      Not read with an inference server.
    inference_wait_s: that the inference server waits for more actors once one
      has asked, so as to serve them together.
    max_restarts: of one node within `restart_period_s`, after which the run
      fails; all actors together may have as many as there are actors times it.
    restart_period_s: seconds.
    heartbeat_timeout_s: after which a node that gives no sign of life, since it
      was stopped or cannot go on, is killed and replaced.
    stall_timeout_s: that the queue may take to give the learner a batch, or to
      take an actor's trajectories.
    variables_period_s: between two requests for variables of those that do not
      wait for the learner.
    replay_start_s: that the replay server may take to answer at first. A node
      that waited so long in vain is restarted once, so that the run fails
      after twice this time.
    replay_save_s: between two checkpoints of the replay server.
    stop_timeout_s: that nodes have to save and end before they are killed.
    cluster: address of the Ray cluster whose hosts nodes run on, as `ray.init`
      takes it ('auto', 'ray://HOST:PORT'); 'local' for this machine without
      Ray.
    resources: of the cluster, that a node takes, by its label and by Ray's
      names: {'learner': {'GPU': 1}, 'actor': {'CPU': 2}}. A CPU is the default
      of those that compute.
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
    """Checks signs."""
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
        f'resources ({dict(self.resources)}) must go with a cluster, which'
        f' accounts for them, and cluster is {LOCAL!r}; choose --cluster=auto.'
      )
