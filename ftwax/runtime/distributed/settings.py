"""How a distributed run is run, beside what its experiment tells."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
  """Periods and limits; none of them changes what is learned from what.

  Attributes:
    max_restarts: of one node in its life, after which the run fails.
    restart_period_s: within which one restart of a node is allowed.
    num_standbys: processes kept in waiting, to take the places of actors that
      die; an actor needs some ten seconds to start.
    standby_after_s: after which they are started.
    environment_timeout_s: that a step of an actor's environments may take.
    stall_timeout_s: that the queue may take to give the learner a batch, or to
      take an actor's trajectories.
    variables_period_s: between two requests of an actor for variables.
    replay_save_s: between two checkpoints of the replay server.
    stop_timeout_s: that nodes have to save and end before they are killed.
  """

  max_restarts: int = 10
  restart_period_s: float = 60.0
  num_standbys: int = 1
  standby_after_s: float = 30.0
  environment_timeout_s: float = 60.0
  stall_timeout_s: float = 300.0
  variables_period_s: float = 0.05
  replay_save_s: float = 60.0
  stop_timeout_s: float = 60.0

  def __post_init__(self):
    """Checks signs."""
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value < 0:
        raise ValueError(
          f'{field.name} ({value}) must not be negative; choose'
          f' {field.default}.'
        )
