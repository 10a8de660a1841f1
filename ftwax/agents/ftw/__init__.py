"""For The Win (Jaderberg et al., 2019, arXiv:1807.01281).

`ftw_config` holds the agent.
"""

from ftwax.agents.ftw.ftw_config import CORES as CORES
from ftwax.agents.ftw.ftw_config import FTWConfig as FTWConfig

__all__ = ('CORES', 'FTWConfig')
