"""The share of each learner node: its members, rows of a batch and actors.

Learner k reads the replay servers of replay node k. One member's actors take
turns among the replay nodes; the actors of several members write to all.
"""

import math

from ftwax.agents import builders
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import settings as settings_lib


def check(
  experiment: experiment_lib.ExperimentConfig, settings: settings_lib.Settings
) -> None:
  """Raises a ValueError unless there is a share for each learner node."""
  num_learners = settings.num_learners
  num_members = experiment.population.num_members
  if num_learners == 1:
    return
  if num_members > 1:
    if num_members % num_learners:
      fitting = [k for k in range(1, num_learners) if num_members % k == 0]
      raise ValueError(
        f'num_learners ({num_learners}) must divide num_members'
        f' ({num_members}), which are shared out evenly; choose {fitting[-1]}.'
      )
    return
  batch_size = experiment.builder.config.batch_size
  rest = batch_size % num_learners
  if rest:
    raise ValueError(
      f'batch_size ({batch_size}) must divide by num_learners'
      f' ({num_learners}), over which it is spread; choose'
      f' {batch_size + num_learners - rest}.'
    )
  if settings.num_actors < num_learners:
    raise ValueError(
      f'num_actors ({settings.num_actors}) must be at least num_learners'
      f' ({num_learners}), since each learner has actors of its own; choose'
      f' {num_learners}.'
    )


def has_keeper(num_members: int, num_learners: int) -> bool:
  """Returns whether learners hold different members, which a keeper keeps."""
  return num_members > 1 and num_learners > 1


def learners_of(index: int, num_learners: int, num_members: int) -> list[int]:
  """Returns the learners for which an actor acts.

  Args:
    index: of the actor.
    num_learners: of the program.
    num_members: of the population.
  """
  if has_keeper(num_members, num_learners):
    return list(range(num_learners))
  return [index % num_learners]


def num_servers(num_learners: int, num_members: int) -> int:
  """Returns the replay servers of a node: one for each member that it holds."""
  return max(num_members // num_learners, 1)


def replay_builder(
  experiment: experiment_lib.ExperimentConfig, num_learners: int
) -> builders.Builder:
  """Returns the builder of a replay server and of what reads it.

  Of one member, each server's queue and batches are a learner's share.
  """
  config = experiment.builder.config
  num_shares = num_learners if experiment.population.num_members == 1 else 1
  return experiment.builder.replace(
    config=config.replace(
      batch_size=config.batch_size // num_shares,
      max_queue_size=math.ceil(config.max_queue_size / num_shares),
    )
  )


def dependents(
  settings: settings_lib.Settings, num_members: int
) -> dict[str, list[str]]:
  """Returns the nodes that must be started anew with a node that died.

  A stream from or to a replay server ends with it, and a sampler whose server
  is gone does not return. Learners of one member, each of which waits for the
  others in every update, share one fate.

  Args:
    settings: of the run.
    num_members: of the population.

  Returns:
    Names of nodes by the name of the one that died.
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
  """Returns the names of nodes of a label: that itself if there is one."""
  if num_nodes == 1:
    return [label]
  return [f'{label}/{index}' for index in range(num_nodes)]
