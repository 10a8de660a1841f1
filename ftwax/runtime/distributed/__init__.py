"""Runs an experiment in many processes, as a Launchpad program.

`make_distributed_experiment` makes the program. `run_experiment` runs it: it
replaces nodes that die, saves a checkpoint when interrupted and leaves no
process behind.
"""

from ftwax import compatibility

compatibility.require_python_310(__name__)

from ftwax.runtime.distributed.program import (  # noqa: E402
  make_distributed_experiment as make_distributed_experiment,
)
from ftwax.runtime.distributed.runner import (  # noqa: E402
  run_experiment as run_experiment,
)
from ftwax.runtime.distributed.settings import (  # noqa: E402
  Settings as Settings,
)
from ftwax.runtime.distributed.supervision import (  # noqa: E402
  NodeFailedError as NodeFailedError,
)
