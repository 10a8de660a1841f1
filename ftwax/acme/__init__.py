"""What needs Python 3.10: acme, Reverb and Launchpad, behind one door.

The actor and learner of all agents have acme's interfaces: thin classes around
the pure functions of `agents.actor_critic`, which run in acme's loops, write
trajectories to Reverb's tables, and learn from them. Runs use it with
`replay='reverb'`, and as programs of Launchpad. Importing this package loads
TensorFlow (about 6 s).
"""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.acme import compatibility

compatibility.require_python_310(__name__)

from ftwax.acme.actor import Actor  # noqa: E402
from ftwax.acme.adders import TrajectoryAdder  # noqa: E402
from ftwax.acme.builder import Builder  # noqa: E402
from ftwax.acme.datasets import TrajectoryIterator  # noqa: E402
from ftwax.acme.learner import Learner  # noqa: E402
from ftwax.acme.servers import make_server, stop  # noqa: E402
from ftwax.acme.tables import (  # noqa: E402
  ReplayTimeoutError,
  make_auxiliary_tables,
  make_queue,
)
from ftwax.acme.variables import VariableClient  # noqa: E402
from ftwax.replay.replay_options import ReplayOptions  # noqa: E402
from ftwax.replay.trajectories import Sequences, make_template  # noqa: E402

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'Actor',
  'Builder',
  'Learner',
  'ReplayOptions',
  'ReplayTimeoutError',
  'Sequences',
  'TrajectoryAdder',
  'TrajectoryIterator',
  'VariableClient',
  'make_auxiliary_tables',
  'make_queue',
  'make_server',
  'make_template',
  'stop',
)
