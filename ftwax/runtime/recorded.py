"""What an experiment learns from beside its games: records of others."""

import hashlib
import json
import pathlib
from typing import Any

import jax
import numpy as np

from ftwax import distributions, errors, import_guard, trees, types
from ftwax import parts as parts_lib
from ftwax.agents.actor_critic import actor_critic_config, auxiliary, frozen
from ftwax.environments import specified, validation
from ftwax.records import files, recorded_games, run_directory
from ftwax.replay import demonstrations, replay_options
from ftwax.runtime import memory_checks, prepare, saved_agents


def check(parts: prepare.Prepared) -> None:
  """Checks that agent and recorded games go together, before a training.

  Raises:
    ValueError: if one needs the other, which is not there; if they are of
      another game, or do not fit into memory.
  """
  agent, source = parts.experiment.agent, parts.experiment.demonstrations
  if parts.experiment.replay == replay_options.REVERB:
    check_reverb(parts)
  _read_frozen(parts)
  learns = auxiliary.DEMONSTRATIONS in auxiliary.sources(agent.all_tasks)
  if parts.experiment.offline:
    _check_offline(parts)
  if learns and source is None:
    raise ValueError(
      'demonstrations (None) must be a directory of recorded games for the task'
      ' clone; record some by ftwax record, or leave the task out.'
    )
  if source is None:
    return
  if not learns:
    raise ValueError(
      f'demonstrations ({source}) must be learned from by a task of the agent;'
      " choose --tasks=clone, in Python tasks=('clone',), or leave them out."
    )
  spec = parts.spec.environment
  recorded_games.check(source, spec)
  memory_checks.check_recorded(
    source,
    recorded_games.count_steps(source),
    (spec, recorded_games.read_game(source).environment),
    parts.replays.template,
  )


def check_reverb(parts: prepare.Prepared) -> None:
  """Raises a ValueError if a task learns from files, beside Reverb's tables."""
  gone = {task.name for task in parts.experiment.agent.all_tasks}
  gone -= {task.name for task in without(parts.experiment.agent).all_tasks}
  if gone:
    raise ValueError(
      f'tasks ({", ".join(sorted(gone))}) must learn from no files with'
      " replay='reverb'; leave them out, or choose replay='functional' and"
      " runtime='local'."
    )


def _check_offline(parts: prepare.Prepared) -> None:
  """Raises a ValueError if something needs games that are not played."""
  experiment = parts.experiment
  if experiment.demonstrations is None:
    raise ValueError(
      'demonstrations (None) must be a directory of recorded games, with'
      ' offline; record some by ftwax record, or leave offline out.'
    )
  for task in experiment.agent.all_tasks:
    if not getattr(task, 'learns_offline', True):
      raise ValueError(
        f'tasks ({task.name}) must learn from what is recorded, offline, and'
        ' needs games of its own; leave it out.'
      )
  if experiment.population.exploits:
    raise ValueError(
      'exploits (True) must be False offline, where members play no games that'
      ' would rank them; choose --set population.exploits=false.'
    )
  for name in ('curriculum', 'replay', 'stepping.processes'):
    if value := parts_lib.read(experiment, name):
      raise ValueError(
        f'{name} ({value!r}) must not be set offline, without training'
        ' environments; leave it out.'
      )
  if any(observer.sees_steps for observer in experiment.observers):
    raise ValueError(
      f'observers ({list(experiment.observers)!r}) must not observe steps'
      ' offline, where there are none; leave them out.'
    )


def pin(parts: prepare.Prepared, directory: pathlib.Path, resume: bool) -> None:
  """Writes what a run learns from, or checks it when the run is resumed.

  Raises:
    ValueError: if the run began with other games, or another frozen policy.
  """
  source = parts.experiment.demonstrations
  now = {f'tasks.{n}': _identify(p) for n, p in _read_frozen(parts).items()}
  if source is not None:
    now['demonstrations'] = recorded_games.identify(source)
  if not now:
    return
  path = directory / run_directory.SOURCES_FILE
  if not resume or not path.exists():
    files.write_atomically(path, json.dumps(now, indent=2) + '\n')
    return
  then = files.read_object(path)
  if then.get('demonstrations') != now.get('demonstrations'):
    raise ValueError(
      f'demonstrations ({source}) must be the games that the run in'
      f' {directory} began with, and are others, or more; give those, or start'
      ' a new run.'
    )
  for task in _frozen_tasks(parts):
    if then.get(f'tasks.{task.name}') != now[f'tasks.{task.name}']:
      raise ValueError(
        f'run ({task.run}) of {task.name} must have the frozen policy that the'
        f' run in {directory} began with, and has another; name its step, or'
        ' start a new run.'
      )


def _frozen_tasks(parts: prepare.Prepared) -> list[Any]:
  return [
    task
    for task in parts.experiment.agent.all_tasks
    if task.source == auxiliary.FROZEN
  ]


def _read_frozen(parts: prepare.Prepared) -> dict[str, frozen.FrozenPolicy]:
  """Reads the frozen policies by the names of their tasks."""
  return {task.name: _read_policy(task, parts) for task in _frozen_tasks(parts)}


def _read_policy(task: Any, parts: prepare.Prepared) -> frozen.FrozenPolicy:
  """Reads the frozen policy of a task, which may come from anybody.

  Raises:
    ValueError: if there is no such run or member, or it is of another game.
  """
  if not task.run:
    raise ValueError(
      f'run of {task.name} must be the directory of a run, and is not set;'
      f' choose --run=RUN, in Python tasks.{type(task).__name__}(run=...).'
    )
  try:
    with import_guard.guarded():
      directory = saved_agents.find(task.run)
      origin = saved_agents.read_origin(directory)
      last = len(origin.members) - 1
      if task.member > last:
        raise ValueError(
          f'member ({task.member}) must be from 0 to {last}; choose 0.'
        )
      variables = saved_agents.read_variables(directory, origin, task.step)
  except (ValueError, errors.UserError) as error:
    raise ValueError(f'run ({task.run}) of {task.name}: {error}') from None
  own, theirs = parts.spec.environment, origin.game_spec.environment
  if not theirs.is_played_like(own):
    name = next(
      name
      for name in types.EnvironmentSpec._fields
      if getattr(own.public, name) != getattr(theirs.public, name)
    )
    raise ValueError(
      f'run ({task.run}) of {task.name} must be of a game with the {name}'
      f' {getattr(own.public, name)}, and is of one with'
      f' {getattr(theirs.public, name)}; choose a run of this game.'
    )
  return frozen.make(origin.network, theirs, trees.take(variables, task.member))


def _identify(policy: frozen.FrozenPolicy) -> str:
  """Returns the SHA-256 of the variables of a policy."""
  found = hashlib.sha256()
  for leaf in jax.tree.leaves(policy.variables):
    found.update(np.asarray(leaf).tobytes())
  return found.hexdigest()


def without(
  agent: actor_critic_config.ActorCriticConfig,
) -> actor_critic_config.ActorCriticConfig:
  """Returns an agent without the tasks that learn from files."""
  of_files = (auxiliary.DEMONSTRATIONS, auxiliary.FROZEN)
  gone = tuple(
    f'tasks.{task.name}.' for task in agent.all_tasks if task.source in of_files
  )
  return agent.replace(
    tasks=tuple(
      task for task in agent.all_tasks if task.source not in of_files
    ),
    decay=agent.decay.replace(
      names=tuple(n for n in agent.decay.names if not n.startswith(gone))
    ),
    schedules=tuple(
      schedule
      for schedule in agent.schedules
      if not schedule.hyperparameter.startswith(gone)
    ),
  )


def load(parts: prepare.Prepared) -> types.Sources:
  """Returns what members learn from beside their own games, if anything.

  Raises:
    ValueError: if they are damaged, too short, or an action was not allowed.
  """
  source, spec = parts.experiment.demonstrations, parts.spec.environment
  policies = _read_frozen(parts)
  if source is None:
    return types.Sources(frozen=policies)
  recorded_spec = recorded_games.read_game(source).environment
  streams = []
  for stream in recorded_games.read(source, spec):
    _check_values(stream, recorded_spec, source)
    streams.append(_checked(stream, spec, source))
  return types.Sources(
    demonstrations.make_sequences(streams, parts.replays.template), policies
  )


def _check_values(
  stream: types.Streams, spec: types.EnvironmentSpec, source: str
) -> None:
  """Raises a ValueError unless timesteps and actions are what games give.

  Args:
    stream: leaves [L, K, ...].
    spec: specs of the game that was recorded.
    source: the folder, for the message.
  """
  fields = validation.make_fields(spec)
  demands = [(field, demand) for field in fields for demand in field.demands]
  first = jax.tree.map(lambda leaf: leaf[[0, 0]], stream.timestep)
  # A part may begin within games: nothing is known of the step before it.
  before = np.where(
    first.step_type[0] == types.FIRST, types.LAST, types.MID
  ).astype(np.int32)
  step_type = np.stack([before, first.step_type[1]])
  for part in (first._replace(step_type=step_type), stream.timestep):
    faults = np.argwhere(validation.find_faults(fields, part))
    if faults.size:
      field, demand = demands[faults[0, 1]]
      raise ValueError(
        f'{field.name} of demonstrations ({source}) must {demand.demand}, and'
        f' does not at step {faults[0, 0] + 1} of a part; record them again.'
      )
  # No action led to what begins, nor to `LAST` that fills up streams of seats
  # that were absent.
  step_type = stream.timestep.step_type
  is_led_to = step_type != types.FIRST
  is_led_to[1:] &= (step_type[1:] != types.LAST) | (
    step_type[:-1] != types.LAST
  )
  for action, part in zip(
    jax.tree.leaves(stream.previous_action),
    jax.tree.leaves(spec.actions),
    strict=True,
  ):
    num_choices = distributions.num_choices(part)
    if num_choices is None:
      is_action = np.isfinite(action).all(axis=-1)
    else:
      is_action = (action >= 0) & (action < num_choices) | ~is_led_to
    if not is_action.all():
      step, row = np.argwhere(~is_action)[0].tolist()
      raise ValueError(
        f'actions of demonstrations ({source}) must be of the spec {part!r},'
        f' and the one at step {step} of row {row} is not; record them again.'
      )


def _checked(
  stream: types.Streams, spec: types.EnvironmentSpec, source: str
) -> types.Streams:
  """Returns a stream with the specs, whose masks allow its actions.

  What a critic alone sees is zero where it was not recorded.
  """
  taken = jax.tree.map(lambda leaf: leaf[1:], stream.previous_action)
  step_type = stream.timestep.step_type
  counts = (step_type[:-1] != types.LAST) & (step_type[1:] != types.FIRST)
  allowed = distributions.is_allowed(
    spec.actions, taken, _mask(stream.timestep.observation)
  )
  if (bad := np.argwhere(counts & ~allowed)).size:
    step, row = bad[0].tolist()
    raise ValueError(
      f'demonstrations ({source}) must have actions that the game allows, and'
      f' the one at step {step} of row {row} is not; record them again.'
    )
  seen = types.see_public(stream.timestep.observation, spec.public.observations)
  if spec.public != spec:
    hidden = trees.zeros_like_spec(spec.observations, stream.shape)
    seen = {**hidden, **seen}
    if types.PRIVILEGED in specified.entries(stream.timestep.observation):
      seen = stream.timestep.observation
  timestep = stream.timestep._replace(observation=seen)
  # As the agent's own: before it is scaled to the bounds of the game.
  is_first = step_type == types.FIRST
  own = distributions.from_environment(spec.actions, stream.previous_action)
  none = distributions.no_action(spec.actions, stream.shape)
  own = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), own, none)
  action = trees.where_rows_on_host(is_first, none, own)
  return types.Streams(timestep, action)


def _mask(observation: Any) -> Any:
  """Returns the masks before the actions, leaves [L - 1, K, ...], if any."""
  if not isinstance(observation, dict) or types.ACTION_MASK not in observation:
    return None
  return jax.tree.map(lambda leaf: leaf[:-1], observation[types.ACTION_MASK])
