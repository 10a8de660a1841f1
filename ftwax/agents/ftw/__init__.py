"""For The Win (Jaderberg et al., 2019, arXiv:1807.01281).

`ftw_config` holds the options, `agent` makes network and builder, and `shells`
wraps them in acme's interfaces.
"""

from ftwax.agents.ftw.agent import make_auxiliary_tasks as make_auxiliary_tasks
from ftwax.agents.ftw.agent import make_builder as make_builder
from ftwax.agents.ftw.agent import make_network as make_network
from ftwax.agents.ftw.ftw_config import CORES as CORES
from ftwax.agents.ftw.ftw_config import FTWConfig as FTWConfig
from ftwax.agents.ftw.ftw_config import Hyperparameters as Hyperparameters
