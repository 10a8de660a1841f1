"""The replays of an agent: in this process, on the device, or in Reverb."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax

from ftwax import extras, import_guard, types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary, tasks
from ftwax.replay import (
  auxiliary_replay,
  prioritized_replay,
  replay_options,
  trajectories,
)


class Size(NamedTuple):
  """Bytes of a member's replay.

  Attributes:
    total: all of it.
    observations: those of observations.
    states: those of recurrent states.
  """

  total: int
  observations: int
  states: int


@dataclasses.dataclass(frozen=True, eq=False)
class Replays:
  """Makes the replays of an agent; one in Reverb imports it when it is made.

  Attributes:
    config: the agent.
    environment_spec: specs of the environments.
    policy: the agent's policy, which gives the recurrent state that
      trajectories begin with.
  """

  config: config_lib.ActorCriticConfig
  environment_spec: types.EnvironmentSpec
  policy: types.ActorCore

  @functools.cached_property
  def options(self) -> replay_options.ReplayOptions:
    """Options of the replays that agent and auxiliary tasks learn from."""
    config = self.config
    replays = auxiliary.REPLAY in auxiliary.sources(config.all_tasks)
    # Tasks of such an agent learn from the sequences that it learns from.
    replays &= not config.learns_from_replay
    prioritized: Any = config.replay if config.learns_from_replay else None
    options = replay_options.ReplayOptions(
      replay_capacity=config.replay.capacity if replays else 0,
      delta_encodes=config.queue.delta_encode,
      prioritized=prioritized,
    )
    prediction = config.find_task(tasks.RewardPrediction)
    if prediction is None:
      return options
    return options._replace(
      reward_prediction_capacity=prediction.capacity,
      sequences=prediction.sequences,
    )

  @functools.cached_property
  def template(self) -> types.Trajectory:
    """A trajectory of zeros, as a template of shapes and dtypes."""
    state = jax.eval_shape(lambda: self.policy.init(jax.random.PRNGKey(0), 1))
    return trajectories.make_template(
      self.environment_spec, state.recurrent_state, self.config.sequence_length
    )

  @property
  def is_saved(self) -> bool:
    """Whether checkpoints hold the replay, which may be left out."""
    options: Any = self.config.replay
    return not self.config.learns_from_replay or bool(options.is_saved)

  @property
  def num_bytes(self) -> Size:
    """Size of the replay that the agent learns from; zeros without one."""
    if not self.config.learns_from_replay:
      return Size(0, 0, 0)

    def count(tree: types.ArrayTree) -> int:
      each = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
      return self.config.replay.capacity * each

    template = self.template
    return Size(
      count(template),
      count(template.timestep.observation),
      count(template.recurrent_state),
    )

  def make(
    self, num_environments: int
  ) -> auxiliary_replay.AuxiliaryReplay | None:
    """Returns the replay on the device: of the agent, or of auxiliary tasks.

    Args:
      num_environments: number of trajectories added at a time.

    Returns:
      The replay; None if neither needs one.

    Raises:
      ValueError: if it does not hold a sample of each environment.
    """
    if self.config.learns_from_replay:
      options: Any = self.config.replay
      return prioritized_replay.make_prioritized_replay(
        options,
        self.options,
        self.template,
        self.config.batch_size,
        num_environments,
      )
    return auxiliary_replay.make_auxiliary_replay(
      self.options, self.template, self.config.batch_size, num_environments
    )


def choose(replay: str | None, config: config_lib.ActorCriticConfig) -> str:
  """Chooses the kind of replay.

  Args:
    replay: `reverb`, or `functional`, which None stands for.
    config: the agent.

  Raises:
    ImportError: if Reverb is requested but not installed.
  """
  chosen = replay or replay_options.FUNCTIONAL
  if chosen == replay_options.REVERB and not import_guard.is_installed(
    'reverb'
  ):
    raise ImportError(
      "replay ('reverb') needs dm-reverb, which is not installed and needs"
      f' Python 3.10; there, run {extras.install("acme")}, or choose'
      " replay='functional'."
    )
  return chosen
