"""The actor and learner of all agents, with acme's interfaces.

They are thin classes around the pure functions of `agents.actor_critic`, and
run in acme's loops: pure networks act, write trajectories to Reverb's tables,
and learn from them. acme needs Python 3.10; elsewhere the same classes stand
alone.
"""

from ftwax.agents.acme.actor import Actor as Actor
from ftwax.agents.acme.builder import Builder as Builder
from ftwax.agents.acme.learner import Learner as Learner
from ftwax.agents.acme.variables import VariableClient as VariableClient
