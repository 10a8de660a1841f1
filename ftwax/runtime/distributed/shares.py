"""Divides members, batches and actors among learner nodes.

Learner k reads the replay servers of replay node k. The actors of a single
member are assigned to replay nodes round-robin; the actors of several members
write to all replay nodes.
"""

import math

from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import settings as settings_lib


def check(
  experiment: experiment_lib.ExperimentConfig, settings: settings_lib.Settings
) -> None:
  """Raises a ValueError unless every learner node gets an equal share."""
  num_learners = settings.num_learners
  num_members = experiment.population.num_members
  if num_learners == 1:
    return
  if num_members > 1:
    if num_members % num_learners:
      fitting = [k for k in range(1, num_learners) if num_members % k == 0]
      raise ValueError(
        f'num_learners ({num_learners}) must divide num_members'
        f' ({num_members}), which are divided evenly; choose {fitting[-1]}.'
      )
    return
  batch_size = experiment.agent.batch_size
  rest = batch_size % num_learners
  if rest:
    raise ValueError(
      f'batch_size ({batch_size}) must divide by num_learners ({num_learners}),'
      f' over which it is split; choose {batch_size + num_learners - rest}.'
    )
  if settings.num_actors < num_learners:
    raise ValueError(
      f'num_actors ({settings.num_actors}) must be at least num_learners'
      f' ({num_learners}), since each learner has actors of its own; choose'
      f' {num_learners}.'
    )


def has_keeper(num_members: int, num_learners: int) -> bool:
  """Returns whether learners hold different members, overseen by a keeper."""
  return num_members > 1 and num_learners > 1


def learners_of(index: int, num_learners: int, num_members: int) -> list[int]:
  """Returns the indices of the learners for which an actor acts.

  Args:
    index: index of the actor.
    num_learners: number of learners in the program.
    num_members: size of the population.
  """
  if has_keeper(num_members, num_learners):
    return list(range(num_learners))
  return [index % num_learners]


def num_servers(num_learners: int, num_members: int) -> int:
  """Returns the number of replay servers per node: one per member it holds."""
  return max(num_members // num_learners, 1)


def replay_config(
  experiment: experiment_lib.ExperimentConfig, num_learners: int
) -> config_lib.ActorCriticConfig:
  """Returns the config of the agent for a replay server and its dataset.

  With a single member, each server's queue and batches are a learner's share.
  """
  config = experiment.agent
  num_shares = num_learners if experiment.population.num_members == 1 else 1
  return config.replace(
    batch_size=config.batch_size // num_shares,
    max_queue_size=math.ceil(config.max_queue_size / num_shares),
  )


def dependents(
  settings: settings_lib.Settings, num_members: int
) -> dict[str, list[str]]:
  """Returns the nodes that must be restarted together with a node that died.

  A stream from or to a replay server ends with the server, and a sampler whose
  server is gone does not return. Learners of a single member wait for each
  other in every update, so they all restart together.

  Args:
    settings: settings of the run.
    num_members: size of the population.

  Returns:
    Names of nodes, by the name of the node that died.
  """
  num_learners = settings.num_learners
  learners = node_names('learner', num_learners)
  replays = node_names('replay', num_learners)
  actors = [f'actor/{index}' for index in range(settings.num_actors)]
  if num_members > 1:
    return {
      replay: [learner, *actors]
      for replay, learner in zip(replays, learners, strict=True)
    }
  found = {
    replay: [*learners, *actors[index::num_learners]]
    for index, replay in enumerate(replays)
  }
  for learner in learners:
    found[learner] = [other for other in learners if other != learner]
  return found


def node_names(label: str, num_nodes: int) -> list[str]:
  """Returns the names of the nodes with a label; a single node has no index."""
  if num_nodes == 1:
    return [label]
  return [f'{label}/{index}' for index in range(num_nodes)]
