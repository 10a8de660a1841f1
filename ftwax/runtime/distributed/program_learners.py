"""Adds the learners to a program, and the keeper of their members."""

import functools
from collections.abc import Sequence
from typing import Any

import launchpad as lp
from launchpad.nodes import base

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  counter,
  courier_nodes,
  follower_node,
  keeper,
  learner_node,
  member_learner,
  replay_node,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

# Seconds after which a call has failed.
CALL_TIMEOUT_S = 20.0

# Requests of actors that died may occupy threads of a server for a while.
_SPARE_THREADS = 16


def num_threads(
  experiment: experiment_lib.ExperimentConfig, settings: settings_lib.Settings
) -> int:
  """Returns the number of threads of a server that serves all actors.

  Each request of an actor occupies a thread until it gets a reply.
  """
  num_members = experiment.population.num_members
  return settings.num_actors * num_members + _SPARE_THREADS


def client_of(node: lp.CourierNode, timeout_s: float) -> lp.CourierHandle:
  """Returns a handle whose client fails at once if the node is away."""
  handle = node.create_handle()
  handle.set_client_kwargs(call_timeout=timeout_s, wait_for_ready=False)
  return handle


def add(
  program: lp.Program,
  experiment: experiment_lib.ExperimentConfig,
  directory: str,
  settings: settings_lib.Settings,
  replays: Sequence[base.Handle],
  counter_client: lp.CourierHandle,
) -> tuple[list[lp.CourierNode], lp.CourierNode]:
  """Adds the learners, and a keeper if they hold different members.

  Args:
    program: program to which the nodes are added.
    experiment: an agent or a population, and its task.
    directory: directory of the run.
    settings: settings of the run.
    replays: one for each learner; becomes the addresses of its replay servers.
    counter_client: client of the counter.

  Returns:
    The learners, and the node that seats members: the keeper or the first
    learner.
  """
  args = experiment, settings, replays, counter_client
  if shares.has_keeper(experiment.population.num_members, len(replays)):
    keeper_node = courier_nodes.CourierNode(
      experiment.expose,
      keeper.Keeper,
      experiment,
      directory,
      settings,
      counter_client,
      courier_kwargs={
        'thread_pool_size': settings.num_actors + len(replays) + _SPARE_THREADS
      },
    )
    program.add_node(keeper_node, label=counter.KEEPER)
    learners = _make_of_members(*args, directory, keeper_node)
  else:
    learners = _make_of_one(*args, directory)
    keeper_node = learners[0]
  with program.group('learner'):
    for learner in learners:
      program.add_node(learner)
  return learners, keeper_node


def _make_of_members(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  replays: Sequence[base.Handle],
  counter_client: Any,
  directory: str,
  keeper_node: lp.CourierNode,
) -> list[lp.CourierNode]:
  """Returns learners that hold some members each and call each other."""
  options = {'thread_pool_size': num_threads(experiment, settings)}
  # Made before they are configured, since each gets clients of all.
  learners = [
    courier_nodes.CourierNode(
      experiment.expose, member_learner.MemberLearner, courier_kwargs=options
    )
    for _ in replays
  ]
  for index, learner in enumerate(learners):
    learner.configure(
      experiment,
      directory,
      settings,
      replays[index],
      counter_client,
      index,
      client_of(keeper_node, CALL_TIMEOUT_S),
      [client_of(peer, CALL_TIMEOUT_S) for peer in learners],
    )
  return learners


def _make_of_one(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  replays: Sequence[base.Handle],
  counter_client: Any,
  directory: str,
) -> list[lp.CourierNode]:
  """Returns the learner of all members, or learners that update as one."""
  node = functools.partial(
    courier_nodes.CourierNode,
    experiment.expose,
    courier_kwargs={'thread_pool_size': num_threads(experiment, settings)},
  )
  addresses = [lp.Address('coordinator')] if len(replays) > 1 else []
  coordinator = replay_node.AddressesHandle(addresses)
  first = node(
    learner_node.Learner,
    experiment,
    directory,
    settings,
    replays[0],
    counter_client,
    0,
    coordinator,
  )
  for address in addresses:
    first.allocate_address(address)
  others = [
    node(
      follower_node.Follower,
      experiment,
      settings,
      replay,
      counter_client,
      index,
      coordinator,
    )
    for index, replay in enumerate(replays[1:], 1)
  ]
  return [first, *others]
