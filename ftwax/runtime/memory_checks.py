"""Checks that the data of a run fits into memory before it is allocated."""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import (
  actor_critic_config,
  auxiliary,
  replays,
  tasks,
)
from ftwax.environments import games
from ftwax.runtime import experiment as experiment_lib

_GIB = 2**30
_NUM_COPIES = 4


def check_fits(
  experiment: experiment_lib.ExperimentConfig, spec: games.GameSpec
) -> None:
  """Raises a ValueError if trajectories do not fit.

  These are one of each environment, a batch, and those that are replayed.
  """
  agent, population = experiment.agent, experiment.population
  num_environments = experiment.num_environments
  num_bytes = _observation_bytes(spec.environment)
  num_bytes *= (agent.sequence_length + 1) * spec.num_players
  available = _available_bytes()
  needed = num_environments * num_bytes
  if needed > available:
    raise ValueError(
      f'num_environments ({num_environments}) must fit into memory,'
      f' where their trajectories take {needed / _GIB:.1f} GiB or more and'
      f' {available / _GIB:.1f} GiB are available; choose'
      f' {max(available // num_bytes // 4, 1)} or fewer.'
    )
  num_bytes //= spec.num_players
  for name, count in {
    'batch_size': agent.batch_size * population.num_members,
    **_capacities(agent, population.num_members),
  }.items():
    if count * num_bytes > available:
      raise ValueError(
        f'{name} ({count:,} trajectories of all members) must fit into memory,'
        f' where they take {count * num_bytes / _GIB:.1f} GiB or more and'
        f' {available / _GIB:.1f} GiB are available; choose'
        f' {max(available // num_bytes // 4 // population.num_members, 1)} or'
        ' fewer.'
      )


def _capacities(
  agent: actor_critic_config.ActorCriticConfig, num_members: int
) -> dict[str, int]:
  """Returns the trajectories that replays of tasks keep, by option."""
  kept = {}
  if auxiliary.REPLAY in auxiliary.sources(agent.all_tasks):
    kept['replay.capacity'] = agent.replay.capacity * num_members
  prediction = agent.find_task(tasks.RewardPrediction)
  if prediction is not None:
    steps = prediction.capacity * prediction.sequences.num_frames
    num_trajectories = -(-steps // agent.sequence_length) * num_members
    kept[f'tasks.{prediction.name}.capacity'] = num_trajectories
  return kept


def check_network(
  network: types.RecurrentNetwork,
  experiment: experiment_lib.ExperimentConfig,
  spec: games.GameSpec,
) -> None:
  """Raises a ValueError if the network of all members does not fit."""
  sizes = [
    sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(make)))
    for make in (
      lambda: network.init(jax.random.PRNGKey(0)),
      lambda: network.initial_state(1),
    )
  ]
  # A gradient and the moments of the optimizer have the size of parameters.
  needed = _NUM_COPIES * experiment.population.num_members * sizes[0]
  needed += experiment.num_environments * spec.num_players * sizes[1]
  needed, available = 4 * needed, _available_bytes()
  if needed > available:
    raise ValueError(
      f'network ({sizes[0]:,} parameters, {sizes[1]:,} numbers of a state) must'
      f' fit into memory, where it takes {needed / _GIB:.1f} GiB or more and'
      f' {available / _GIB:.1f} GiB are available; choose smaller sizes, as'
      ' of hidden_size.'
    )


def check_replay(size: replays.Size, num_members: int, capacity: int) -> None:
  """Raises a ValueError if what members learn from does not fit.

  Args:
    size: of the replay of a member.
    num_members: N.
    capacity: its number of trajectories.
  """
  needed, available = size.total * num_members, _available_bytes()
  if needed > available:
    each = max(needed // capacity, 1)
    remedy = ''
    if 2 * size.states > size.total:
      remedy = ', or a core with a smaller state'
    raise ValueError(
      f'replay.capacity ({capacity:,} trajectories of each member) must fit'
      f' into memory, where they take {needed / _GIB:.1f} GiB, of which'
      f' observations are {size.observations / size.total:.0%} and recurrent'
      f' states {size.states / size.total:.0%}, and {available / _GIB:.1f} GiB'
      f' are available; choose {max(available // each // 2, 1)} or'
      f' fewer{remedy}.'
    )


def check_recorded(
  source: str,
  num_steps: int,
  specs: Sequence[types.EnvironmentSpec],
  template: types.Trajectory,
) -> None:
  """Raises a ValueError if recorded games do not fit, also while read.

  Args:
    source: their directory.
    num_steps: their number of steps.
    specs: of the game that was recorded and of the one that learns; either may
      have entries for a critic that the other has not.
    template: a sequence of the learner, with the state of its core.
  """
  rest = (template.logits, template.recurrent_state, template.seed)
  num_sequences = num_steps // (len(template.timestep.step_type) - 1)
  needed = num_steps * max(map(_observation_bytes, specs))
  needed += num_sequences * sum(leaf.nbytes for leaf in jax.tree.leaves(rest))
  available = _available_bytes()
  if 3 * needed > available:
    raise ValueError(
      f'demonstrations ({source}, {num_steps:,} steps) must fit into memory,'
      f' where they take {3 * needed / _GIB:.1f} GiB while they are read and'
      f' {available / _GIB:.1f} GiB are available; record at most'
      f' {num_steps * available // (3 * needed):,} steps.'
    )


def _observation_bytes(spec: types.EnvironmentSpec) -> int:
  """Returns the size of an observation, a reward and an action in bytes."""
  leaves = jax.tree.leaves((spec.observations, spec.rewards, spec.actions))
  return sum(
    math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves
  )


def _available_bytes() -> int:
  """Returns the memory of the first JAX device, or free host memory."""
  device = jax.devices()[0]
  if device.platform != 'cpu':
    return int((device.memory_stats() or {}).get('bytes_limit', 1 << 62))
  try:
    with open('/proc/meminfo', encoding='ascii') as file:
      fields = dict(line.split(':') for line in file)
    return int(fields['MemAvailable'].split()[0]) * 1024
  except (OSError, KeyError):
    if not hasattr(os, 'sysconf'):  # Windows does not say it here.
      return 1 << 62
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
