"""The replay of agents that act and learn in one process."""

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ftwax import types
from ftwax.agents import builders
from ftwax.replay import gatherer, replay_options, samples


class AgentReplay(NamedTuple):
  """The writing and the reading end of an agent's replay.

  Attributes:
    adder: records timesteps.
    dataset: yields batches.
  """

  adder: gatherer.TrajectoryGatherer
  dataset: Iterator[samples.ReplaySample]


def choose(replay: str | None, port: int | None = None) -> str:
  """Chooses the kind of replay.

  Args:
    replay: `reverb`, `functional`, or None for Reverb if it is installed.
    port: port of the Reverb server, if given.

  Raises:
    ImportError: if Reverb is requested but not installed.
    ValueError: if a port is given for a replay without a server.
  """
  spec = importlib.util.find_spec('reverb')
  # A folder named `reverb` on the path is a namespace package without origin.
  has_reverb = spec is not None and spec.origin is not None
  if replay == replay_options.REVERB and not has_reverb:
    raise ImportError(
      "replay ('reverb') needs dm-reverb, which is not installed and needs"
      " Python 3.10; use that version, or choose replay='functional'."
    )
  by_default = (
    replay_options.REVERB if has_reverb else replay_options.FUNCTIONAL
  )
  chosen = replay or by_default
  if chosen == replay_options.FUNCTIONAL and port is not None:
    raise ValueError(
      f"replay_port ({port}) must be None with replay='functional', which has"
      ' no server; leave it out.'
    )
  return chosen


def make_replays(
  builder: builders.Builder,
  keys: Sequence[types.Key],
  environment_spec: types.EnvironmentSpec,
  policy: types.ActorCore,
  num_environments: int,
  stack: contextlib.ExitStack,
  replay: str | None = None,
  server: replay_options.ServerOptions = replay_options.LOOPBACK,
) -> list[AgentReplay]:
  """Makes one replay per agent.

  Args:
    builder: builder of the agents.
    keys: random key of each agent's replay.
    environment_spec: specs of the environments.
    policy: actor functions of the agents.
    num_environments: number of environments in which each agent acts.
    stack: closes the replays when it exits.
    replay: see `choose`.
    server: options of the first Reverb server; later ones use the next ports.

  Raises:
    ExposedError: if Reverb's port cannot be closed to other machines.
    ImportError: if Reverb is requested but not installed.
    ValueError: if a port is given for a replay without a server.
  """
  if choose(replay, server.port) == replay_options.FUNCTIONAL:
    local = builder.make_local_replays(
      keys, environment_spec, policy, num_environments
    )
    return [AgentReplay(each, each) for each in local]
  from ftwax.replay.reverb import servers

  replays = []
  for index in range(len(keys)):
    port = None if server.port is None else server.port + index
    made = servers.make_server(
      builder.make_replay_tables(environment_spec, policy),
      port,
      server.expose,
    )
    stack.callback(servers.stop, made)
    client = made.localhost_client()
    dataset = builder.make_dataset_iterator(client, environment_spec, policy)
    stack.callback(dataset.close)
    adder = builder.make_adder(
      client, environment_spec, policy, num_environments
    )
    stack.callback(adder.close)
    replays.append(AgentReplay(adder, dataset))
  return replays
