"""The replays of the members of a local run."""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

import jax

from ftwax import types
from ftwax.replay import gatherer, samples
from ftwax.runtime import experiment as experiment_lib


class MemberReplay(NamedTuple):
  """The two ends of a member's replay.

  Attributes:
    adder: takes timesteps.
    dataset: yields batches.
  """

  adder: gatherer.TrajectoryGatherer
  dataset: Iterator[samples.ReplaySample]


def choose(replay: str | None) -> str:
  """Returns the replay of a run.

  Args:
    replay: `reverb`, `functional`, or None for Reverb where it is installed.

  Raises:
    ImportError: Reverb is asked for and is not installed.
  """
  has_reverb = importlib.util.find_spec('reverb') is not None
  if replay is None:
    return 'reverb' if has_reverb else 'functional'
  if replay == 'reverb' and not has_reverb:
    raise ImportError(
      "replay ('reverb') must be installed, and dm-reverb is not: it needs"
      " Python 3.10; use that, or choose replay='functional'."
    )
  return replay


def make_replays(
  experiment: experiment_lib.ExperimentConfig,
  spec: types.EnvironmentSpec,
  policy: types.ActorCore,
  num_rows: int,
  key: types.Key,
  stack: contextlib.ExitStack,
) -> list[MemberReplay]:
  """Makes a replay for each member.

  Args:
    experiment: names the replay.
    spec: of one player.
    policy: of the members.
    num_rows: M, seats of a member.
    key: for what is drawn from them.
    stack: closes them.
  """
  num_members = experiment.population.num_members
  if choose(experiment.replay) == 'functional':
    made = experiment.builder.make_local_replays(
      list(jax.random.split(key, num_members)), spec, policy, num_rows
    )
    return [MemberReplay(replay, replay) for replay in made]
  return [
    _start_server(experiment, spec, policy, num_rows, member, stack)
    for member in range(num_members)
  ]


def _start_server(
  experiment: experiment_lib.ExperimentConfig,
  spec: types.EnvironmentSpec,
  policy: types.ActorCore,
  num_rows: int,
  member: int,
  stack: contextlib.ExitStack,
) -> MemberReplay:
  """Starts the Reverb server of a member."""
  from ftwax.replay.reverb import servers

  builder, port = experiment.builder, experiment.replay_port
  server = servers.make_server(
    builder.make_replay_tables(spec, policy),
    None if port is None else port + member,
  )
  stack.callback(server.stop)
  client = server.localhost_client()
  dataset = builder.make_dataset_iterator(client, spec, policy)
  stack.callback(dataset.close)
  adder = builder.make_adder(client, spec, policy, num_rows)
  stack.callback(adder.close)
  return MemberReplay(adder, dataset)
