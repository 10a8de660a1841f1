"""A whole training as a pure function, for users' own loops.

`make_train` gives two functions that can be compiled and mapped, over seeds or
over values of hyperparameters. The device runtime calls the same functions of
`loop` piece by piece, to log and save in between.
"""

import sys
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ftwax import compilation, types
from ftwax import hyperparameters as hyperparameters_lib
from ftwax.agents.actor_critic import auxiliary
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import prepare
from ftwax.runtime.device import compiled_arena
from ftwax.runtime.device import loop as loop_lib
from ftwax.runtime.device import sizes as sizes_lib


class Init(Protocol):
  """Returns the state before training."""

  def __call__(
    self, key: types.Key, **hyperparameters: types.Array | float
  ) -> loop_lib.LoopState:
    """Returns the initial state.

    Args:
      key: random key of everything that is random in the training.
      **hyperparameters: values by name, such as `learning_rate` or
        `**{'core.slow_period': 8}`, a scalar for all members or [N]; they
        replace what the priors would give.

    Raises:
      ValueError: if the agent has no hyperparameter of a name.
    """


class Train(Protocol):
  """Trains to the end; see `make_train`."""

  def __call__(
    self, state: loop_lib.LoopState
  ) -> tuple[loop_lib.LoopState, types.Metrics]:
    """Returns the state after training, and metrics, leaves [I, ...]."""


def make_train(
  experiment: experiment_lib.ExperimentConfig,
) -> tuple[Init, Train]:
  """Makes a training of agent and environment as two pure functions.

      init, train = ftwax.make_train(experiment)
      states, metrics = jax.jit(jax.vmap(train))(jax.vmap(init)(keys))

  Both may be compiled, and mapped over seeds as above or over values:
  `jax.vmap(lambda x: init(key, learning_rate=x))`. A training has rounds,
  ratings and evolution as in the device runtime. It evaluates, logs and saves
  nothing, and the fields of the experiment on these are not read. On a CPU,
  XLA is slow at gradients of convolutions in loops; `ftwax.run` avoids those.

  An iteration is rollouts with one policy, then updates. Their number I is
  static: the smallest for which `max_num_actor_steps` steps are taken, steps
  that reset an environment included. Metrics have leaves [I, N] for N members,
  unless noted:

  - `episode_return` and `episode_length`: means over the `num_episodes`
    training episodes that ended in the iteration; NaN without any.
  - `num_steps` [I]: number of actions of all members.
  - `rating`: Elo; `parent`: the member that each one copied at the end of the
    iteration, itself for no copy.
  - `is_valid` [I]: whether all timesteps fit the specs.
  - `metrics/NAME`: means of what the environment measures at the ends of
    episodes, NaN without any, in tasks of one player.
  - the metrics of the learner, means over the updates.

  Args:
    experiment: an agent or a population, and an environment or game in JAX.

  Returns:
    `init(key) -> state` and `train(state) -> (state, metrics)`. The learners'
    states are `state.training`, leaves [N, ...].

  Raises:
    TypeError: if the environment is not written in JAX.
    ValueError: if the experiment has what only a run can do.
  """
  for field in ('init_from', 'demonstrations', 'observers', 'curriculum'):
    if value := getattr(experiment, field):
      raise ValueError(
        f'{field} ({value!r}) must not be set for make_train, which reads no'
        ' files and calls no Python; leave it out, or use ftwax.run.'
      )
  for task in experiment.agent.all_tasks:
    if task.source == auxiliary.FROZEN:
      raise ValueError(
        f'tasks ({task.name}) must need no files for make_train, which reads'
        ' none; leave it out, or use ftwax.run.'
      )
  compilation.check_settings()
  with compilation.usual_settings():
    parts = prepare.prepare(experiment)
    loop = make_loop(parts)
  per_round = loop.sizes.iterations_per_round(parts.experiment.steps_per_round)
  steps_per_iteration = loop.sizes.steps_per_iteration
  num_iterations = -(
    -parts.experiment.max_num_actor_steps // steps_per_iteration
  )

  def start(key: types.Key, hyperparameters: Any) -> loop_lib.LoopState:
    state = loop.init(key)
    members = _replace(state.training, hyperparameters)
    return state._replace(population=state.population._replace(members=members))

  compiled: Any = compilation.jit_unoptimized(start)

  @compilation.usual_settings()
  def init(
    key: types.Key, **hyperparameters: types.Array | float
  ) -> loop_lib.LoopState:
    # Within the user's own `jax.jit` this is a part of another program.
    is_part = isinstance(jnp.zeros(()), jax.core.Tracer)
    return (start if is_part else compiled)(key, hyperparameters)

  @compilation.usual_settings()
  def train(
    state: loop_lib.LoopState,
  ) -> tuple[loop_lib.LoopState, types.Metrics]:
    # Only while JAX traces, after which it compiles. The user owns the output.
    text = f'{parts.experiment.name}: compiling a whole training...'
    print(text, file=sys.stderr, flush=True)

    def step(
      state: loop_lib.LoopState, number: types.Array
    ) -> tuple[loop_lib.LoopState, types.Metrics]:
      state, report = loop.call(1, state)
      metrics = loop.summarize(state, report)
      # Not a leaf that `vmap` maps: only the branch that is taken runs.
      ends_round = (number % per_round == 0) | (number == num_iterations)
      state, parent = jax.lax.cond(
        ends_round, loop.next_round, loop.same_round, state
      )
      return state, {**metrics, 'parent': parent}

    return jax.lax.scan(step, state, jnp.arange(1, num_iterations + 1))

  return init, train


def make_loop(parts: prepare.Prepared) -> loop_lib.Loop:
  """Makes the functions of a run on the device.

  Raises:
    TypeError: if an environment is not written in JAX.
  """
  if parts.game is None or parts.evaluation_game is None:
    raise types.InvalidTypeError(
      'environment must make a functional.FunctionalEnvironment or'
      ' FunctionalGame to be compiled, but made one in Python; return one that'
      " is written in JAX, or choose runtime='local'."
    )
  sizes = sizes_lib.make_sizes(parts)
  return loop_lib.Loop(
    arena=compiled_arena.make_arena(
      parts.game, parts.seating, list(parts.opponents.values())
    ),
    actor=parts.policy,
    learner=parts.learner,
    replay=parts.replays.make(sizes.num_rows),
    config=parts.experiment.population,
    sizes=sizes,
    evolve=parts.evolve if parts.experiment.population.exploits else None,
  )


def _replace(
  members: types.TrainingState, values: dict[str, Any]
) -> types.TrainingState:
  """Returns members [N, ...] with values of some hyperparameters replaced."""

  def setter(new: Any) -> Callable[[types.Array], types.Array]:
    return lambda old: jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape)

  return members._replace(
    hyperparameters=hyperparameters_lib.update(
      members.hyperparameters,
      {name: setter(value) for name, value in values.items()},
    )
  )
