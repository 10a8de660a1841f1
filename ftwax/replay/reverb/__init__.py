"""Trajectories through a Reverb server: tables, adders and datasets.

Only this package imports Reverb, which also loads TensorFlow (about 6 s).
"""

from ftwax import compatibility

compatibility.require_python_310(__name__)

from ftwax.replay.replay_options import ReplayOptions  # noqa: E402
from ftwax.replay.reverb.adders import TrajectoryAdder  # noqa: E402
from ftwax.replay.reverb.datasets import TrajectoryIterator  # noqa: E402
from ftwax.replay.reverb.servers import make_server, stop  # noqa: E402
from ftwax.replay.reverb.tables import (  # noqa: E402
  ReplayTimeoutError,
  make_auxiliary_tables,
  make_queue,
)
from ftwax.replay.trajectories import Sequences, make_template  # noqa: E402

__all__ = (
  'ReplayOptions',
  'ReplayTimeoutError',
  'Sequences',
  'TrajectoryAdder',
  'TrajectoryIterator',
  'make_auxiliary_tables',
  'make_queue',
  'make_server',
  'make_template',
  'stop',
)
