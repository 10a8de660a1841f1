"""Runs experiments by their files: the library's, by name, and users' own.

An experiment file has a function `build(options)` that returns an
`ExperimentConfig`. The dataclass that annotates `options` defines its flags,
usually a subclass of `Options` with further fields and other defaults. The file
may also have

  finish(experiment, result, options) called after the run
  main(options)                       in place of `build`, a script of its own
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
from absl import logging

from ftwax import import_guard, parts, suggestions
from ftwax.cli import commands, flags, sources, tasks
from ftwax.environments import jax_adapters, process_games
from ftwax.records import checkpoints, config_files, rebuilding
from ftwax.reporting import outcome
from ftwax.runtime import devices, evaluation, runs
from ftwax.runtime import experiment as experiment_lib

# The experiment of environments that have none of their own.
_ANY = 'any_environment'


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of all experiments."""

  max_num_actor_steps: int = flags.flag(
    100_000, 'Environment steps of the whole run.'
  )
  num_environments: int = flags.flag(
    8, 'Environments that each actor steps at a time.'
  )
  seed: int = flags.flag(0, 'Random seed of the run.')
  eval_every: int = flags.flag(
    0, 'Steps or episodes between evaluations; 0: none.'
  )
  eval_unit: str = flags.flag(
    'steps', 'What --eval_every counts.', tuple(evaluation.UNITS)
  )
  num_eval_episodes: int = flags.flag(20, 'Episodes per evaluation.')
  run_dir: str | None = flags.flag(
    None, 'Run directory; by default a new one in runs/.'
  )
  resume: bool = flags.flag(False, 'Resume --run_dir, or the newest run.')
  init_from: str | None = flags.flag(
    None, 'Run directory to take initial parameters from.'
  )
  demonstrations: str | None = flags.flag(
    None, 'Recorded games to learn from, by --tasks=clone.'
  )
  offline: bool = flags.flag(False, 'Learn from recorded games alone.')
  held_out: tuple[str, ...] = flags.flag((), sources.HELD_OUT_HELP)
  save_every_seconds: float = flags.flag(
    checkpoints.CheckpointingConfig.save_every_seconds,
    'Seconds between checkpoints.',
  )
  watch: bool = flags.flag(False, 'Serve a web page that follows the run.')
  runtime: str = flags.flag(runs.AUTO, 'Where to run it.', runs.RUNTIMES)
  num_actors: int | None = flags.flag(
    None, 'Actor processes, with --runtime=distributed.'
  )
  num_learners: int | None = flags.flag(
    None, 'Learner processes, with --runtime=distributed.'
  )
  cluster: str | None = flags.flag(
    None,
    'Ray cluster to run on (auto or ray://HOST:PORT).',
  )
  resources: tuple[str, ...] = flags.flag(
    (), 'Ray resources of a node, e.g. learner.GPU=1.'
  )
  num_devices: int = flags.flag(
    1, 'Devices, or CPU cores, that share the work.'
  )
  environment_processes: int = flags.flag(
    0, 'Processes that step environments; 0 for none.'
  )
  replay: str | None = flags.flag(
    None,
    'For --runtime=local; functional by default.',
    ['reverb', 'functional'],
  )
  expose: bool = flags.flag(False, 'Accept connections from other machines.')
  set: tuple[str, ...] = flags.flag(
    (), 'Change a field, such as agent.batch_size=32.'
  )
  config: str | None = flags.flag(None, 'TOML file of fields to change.')
  print_config: bool = flags.flag(False, 'Print all fields as TOML and exit.')

  def defaults(self) -> dict[str, Any]:
    """Returns the defaults of flags that depend on other flags."""
    return {}

  def rules(self) -> Any:
    """Returns the config of the experiment's game, if it has one.

    Its fields are those of `environment` for `--set`, and flags by their names;
    it has the changes already.
    """
    return None

  def fields(self) -> dict[str, Any]:
    """Returns the fields of an `ExperimentConfig` that flags set."""
    checkpointing = checkpoints.CheckpointingConfig(self.save_every_seconds)
    values = {name: getattr(self, name) for name in _FIELDS}
    stepping = process_games.Stepping(self.environment_processes)
    if self.held_out:
      values['held_out'] = find_held_out(self.held_out)
    return {**values, 'checkpointing': checkpointing, 'stepping': stepping}

  def changes(self) -> dict[str, Any]:
    """Returns the changes of `--config` and `--set`."""
    changes = config_files.read_toml(self.config) if self.config else {}
    for text in self.set:
      changes = config_files.merge(changes, config_files.parse(text))
    return changes

  def configure(self, config: Any) -> Any:
    """Applies the changes of `--config` and `--set` to an agent's config.

    Only needed if an experiment computes something from the config: the changes
    are always applied to what `build` returns.
    """
    changes = self.changes().get('agent', {})
    return rebuilding.rebuild(changes, type(config), 'agent', config)


# Flags that are fields of an `ExperimentConfig`.
_FIELDS = (
  'max_num_actor_steps',
  'num_environments',
  'seed',
  'replay',
  'expose',
  'init_from',
  'demonstrations',
  'offline',
  'watch',
)

# A field of the population, on which sizes of the agent depend.
_NUM_MEMBERS = 'num_members'


class Experiment(NamedTuple):
  """An experiment file with its options.

  Attributes:
    module: the module of the file.
    function: its `build` or `main`, or the one that the user names.
    options: the options; None if the function takes none.
    given: names of the options that are set.
  """

  module: types.ModuleType
  function: Callable[..., Any]
  options: Any
  given: frozenset[str] = frozenset()

  def build(self, options: Any = None) -> experiment_lib.ExperimentConfig:
    """Builds the experiment, with the changes of `--config` and `--set`."""
    options = options or self.options
    if _options_class(self.function) is None:
      made, fields = self.function(), self.options.fields()
      # The rest of its stepping stays.
      fields['stepping'] = made.stepping.replace(
        processes=self.options.environment_processes
      )
      names = {
        'save_every_seconds': 'checkpointing',
        'environment_processes': 'stepping',
      }
      given = {names.get(name, name) for name in self.given}
      experiment = made.replace(
        **{name: value for name, value in fields.items() if name in given}
      )
    else:
      experiment = self.function(options)
    changes = {
      name: value
      for name, value in options.changes().items()
      if name not in _FIELDS
    }
    if options.rules() is not None and is_rules(changes.get('environment')):
      del changes['environment']  # The experiment has applied them.
    if _NUM_MEMBERS in _by_flag(changes) and hasattr(options, _NUM_MEMBERS):
      # The flag may override the file.
      size = {_NUM_MEMBERS: options.num_members}
      changes['population'] = {**changes['population'], **size}
    return change(experiment, changes)


def is_rules(changes: Any) -> bool:
  """Returns whether changes of `environment` are to fields of its rules."""
  return isinstance(changes, Mapping) and config_files.TYPE not in changes


def change(
  experiment: experiment_lib.ExperimentConfig, changes: Mapping[str, Any]
) -> experiment_lib.ExperimentConfig:
  """Returns an experiment with some fields changed."""
  made: experiment_lib.ExperimentConfig = rebuilding.rebuild(
    changes, type(experiment), '', experiment
  )
  return made


def find_held_out(words: Sequence[str]) -> dict[str, Any]:
  """Returns opponents of evaluations alone, by name: loads RUN@MEMBER.

  Others are names of scripts. Agents sample actions, as they did in training.

  Raises:
    ValueError: if there is no such run or member.
  """
  from ftwax.inference import loading  # Slow import.

  found: dict[str, Any] = {}
  for word in words:
    run, at, member = word.rpartition('@')
    if at and not member.isdecimal():
      raise ValueError(
        f'held_out ({word}) must end in the number of a member after the @;'
        f' choose {run}@0.'
      )
    found[word] = (
      loading.load(run, int(member), greedy=False).player if at else word
    )
  return found


def find_name(source: str) -> Any:
  """Returns what FILE.py:NAME names.

  Raises:
    ValueError: if there is no such file or name.
  """
  file, _, name = source.partition(':')
  module = _import(pathlib.Path(file), source)
  if not hasattr(module, name):
    raise ValueError(
      f'{source} must name a part of {file}, and there is no'
      f' {name}{suggestions.suggest(name, vars(module))}'
    )
  return getattr(module, name)


def find(
  source: str,
  argv: Sequence[str] = (),
  command: str = 'train',
  extra: type | None = None,
) -> Experiment:
  """Finds an experiment and parses its options.

  Args:
    source: name of an experiment of the library, the path of an experiment
      file, FILE.py:FUNCTION, or an environment: a Gymnasium id, FILE.py:NAME,
      MODULE:NAME or LIBRARY:NAME.
    argv: flags of the experiment, and its fields by their last names.
    command: the command that they belong to, for messages.
    extra: dataclass of further flags, whose defaults take precedence.

  Raises:
    SystemExit: after `--help`, or with status 2 after an invalid flag.
    ValueError: if there is no such experiment.
  """
  typed = source
  file, _, name = source.partition(':')
  path = pathlib.Path(file)
  if path.suffix != '.py':
    if source not in sources.experiments():
      _check_environment(source)
      argv = [f'--environment={source}', *argv]
      source = _ANY
    path, name = sources.EXPERIMENTS / f'{source}.py', ''
  module = _import(path, source)
  if name and _is_environment(getattr(module, name, None)):
    argv = [f'--environment={source}', *argv]
    path, name = sources.EXPERIMENTS / f'{_ANY}.py', ''
    module = _import(path, source)
  function = getattr(module, name or 'build', None)
  if function is None and not name:
    function = getattr(module, 'main', None)
  if not callable(function):
    raise ValueError(
      f'experiment ({source!r}) must name a function of {file} that returns an'
      f' ExperimentConfig, and there is no {name or "build"}; write'
      f' {file}:FUNCTION.'
    )
  words = f'ftwax {command} {typed}'
  description = (module.__doc__ or '').strip().partition('\n')[0]
  if source == _ANY != typed:
    description = f'Trains in {typed}.'
  elif not name and path.stem != source:
    words = file  # It is run itself.
  kind = _options_class(function) or Options
  if extra is not None:
    kind = dataclasses.make_dataclass(
      'Both', [], bases=(extra, kind), frozen=True
    )
  introduce = getattr(module, 'introduce', lambda options: '')
  has_defaults = issubclass(kind, Options)
  parsed = flags.parse(
    kind,
    argv,
    words,
    (lambda options: f'{description}\n\n{introduce(options)}'.strip())
    if has_defaults
    else description,
    keeps_unknown=has_defaults,
  )
  found = Experiment(
    module, function, *_set_fields(parsed.options, parsed.given)
  )
  return _set_by_last_name(found, parsed.unknown, words)


def _set_by_last_name(
  found: Experiment, unknown: Mapping[str, str], command: str
) -> Experiment:
  """Sets fields of the experiment, such as `--learning_rate=1e-3`.

  Args:
    found: the experiment.
    unknown: values of flags that are none of its options.
    command: the command, for messages.

  Raises:
    SystemExit: with status 2, if no field has this last name, or several have.
  """
  own = [field.name for field in dataclasses.fields(found.options)]
  own += [f'no{name}' for name in own if _is_bool(found.options, name)]
  by_flags: tuple[str, ...] = ()
  for flag, value in unknown.items():
    # Built anew, since a flag before it may have brought the part.
    try:
      experiment = found.build()
    except ValueError:  # Or `--set` changes a part that a flag brings.
      experiment = found.build(dataclasses.replace(found.options, set=by_flags))
    paths = _paths_by_last_name(experiment)
    rules = found.options.rules()
    for field in dataclasses.fields(rules) if rules is not None else ():
      paths.setdefault(field.name, []).append(f'environment.{field.name}')
    name = flag.lstrip('-')
    if name not in paths and name.startswith('no') and name[2:] in paths:
      name, value = name[2:], 'false'
    matches = paths.get(name, [])
    if len(matches) > 1:
      choices = ' or '.join(f'--set {path}={value}' for path in matches)
      message = f'{flag} names {len(matches)} fields; choose {choices}.'
      flags.error(command, message)
    if not matches:
      known = [f'--{one}' for one in (*own, *paths, 'help')]
      meant = suggestions.suggest(flag, known)
      flags.error(command, f'there is no flag {flag}{meant}')
    is_of_rules = matches[0].startswith('environment.')
    if not is_of_rules and isinstance(
      parts.read(experiment, matches[0]), tuple
    ):
      value = _to_list(value)
    text = f'{matches[0]}={value}'
    by_flags = (*by_flags, text)
    changed = (*found.options.set, text)
    options = dataclasses.replace(found.options, set=changed)
    found = found._replace(options=options)
  return found


def _is_bool(options: Any, name: str) -> bool:
  return isinstance(getattr(options, name), bool)


def _to_list(words: str) -> str:
  """Returns a list as `--set` reads it, of words or numbers with commas."""
  if words.startswith('['):
    return words
  numbers = f'[{words}]'
  is_list = isinstance(config_files.parse(f'value={numbers}')['value'], list)
  return numbers if is_list else json.dumps(words.split(','))


# Fields of an experiment with fields that are no options.
_OTHERS = ('environment', 'opponents', 'held_out')


def _paths_by_last_name(config: Any, path: str = '') -> dict[str, list[str]]:
  """Returns the paths of fields, and of fields of parts, by last names."""
  paths: dict[str, list[str]] = {}
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    paths.setdefault(field.name, []).append(f'{path}{field.name}')
    for part in value if isinstance(value, tuple) else (value,):
      if dataclasses.is_dataclass(part) and field.name not in _OTHERS:
        within = f'{path}{field.name}.'
        if isinstance(value, tuple):
          within += f'{getattr(part, "name", "")}.'
        below = _paths_by_last_name(part, within)
        for last, found in below.items():
          paths.setdefault(last, []).extend(found)
  return paths


def _check_environment(source: str) -> None:
  """Raises a ValueError if a name can be no environment either."""
  sources.check_experiment(source, tasks.TASKS)
  module, colon, _ = source.partition(':')
  known = {
    *jax_adapters.LIBRARIES,
    *(task.partition(':')[0] for task in tasks.TASKS),
  }
  if not colon or module in known:
    return  # Without the library, what makes its environments says so.
  import_guard.release()
  sys.path.append('')  # As `python -m` does.
  if not importlib.util.find_spec(module.partition('.')[0]):
    raise ValueError(
      f'experiment ({source!r}) must be a name listed by `ftwax list`, the id'
      ' of a Gymnasium environment, FILE.py:NAME or'
      f' MODULE:NAME{suggestions.suggest(source, tasks.TASKS)}'
    )


def _is_environment(function: Any) -> bool:
  """Returns whether a part of a user's file makes an environment."""
  if isinstance(function, type):
    return True
  if not callable(function) or _options_class(function) is not None:
    return False
  if inspect.signature(function).parameters:
    return True
  hints: dict[str, Any] = {}
  with contextlib.suppress(NameError):  # Of what type checkers alone import.
    hints = typing.get_type_hints(function)
  if hints.get('return') is experiment_lib.ExperimentConfig:
    return False  # It is not built twice.
  return not isinstance(function(), experiment_lib.ExperimentConfig)


def _import(path: pathlib.Path, source: str) -> types.ModuleType:
  """Imports an experiment file, the library's as part of its package."""
  if not path.is_file():
    raise ValueError(
      f'{source!r} must name a file, and there is no {path}; give its path.'
    )
  if path.resolve().parent == sources.EXPERIMENTS.resolve():
    return importlib.import_module(f'ftwax.experiments.{path.stem}')
  sys.path.insert(0, str(path.resolve().parent))
  import_guard.release()
  try:
    module = importlib.import_module(path.stem)
  except SyntaxError as error:
    text = (error.text or '').strip()
    raise ValueError(
      f'{error.filename}, line {error.lineno} ({text}) must be Python, but:'
      f' {error.msg}; correct that line.'
    ) from None
  finally:
    del sys.path[0]
  # Pickled by value, since other processes may not find the file.
  cloudpickle.register_pickle_by_value(module)
  return module


def _options_class(function: Callable[..., Any]) -> Any:
  """Returns the annotation of `options`; None if there is no such argument."""
  if 'options' not in inspect.signature(function).parameters:
    return None
  return typing.get_type_hints(function).get('options')


def _set_fields(
  options: Any, given: frozenset[str]
) -> tuple[Any, frozenset[str]]:
  """Sets options to the values of their fields in `--config` and `--set`.

  What an experiment computes from options thus follows the changes. A flag
  overrides the file, and `--set` overrides the flag.
  """
  if not isinstance(options, Options):
    return options, given
  defaults = options.defaults()
  options = dataclasses.replace(
    options, **{name: defaults[name] for name in defaults.keys() - given}
  )
  hints = typing.get_type_hints(experiment_lib.ExperimentConfig)
  fields = {name: hints[name] for name in _FIELDS}
  if hasattr(options, _NUM_MEMBERS):
    fields[_NUM_MEMBERS] = int
  typed = _by_flag(dataclasses.replace(options, config=None).changes())
  changed = {
    name: rebuilding.rebuild(value, fields[name], name)
    for name, value in _by_flag(options.changes()).items()
    if name in fields and (name in typed or name not in given)
  }
  return dataclasses.replace(options, **changed), given | changed.keys()


def _by_flag(changes: Mapping[str, Any]) -> dict[str, Any]:
  """Returns changes with the size of the population as flags name it."""
  population = changes.get('population')
  if not isinstance(population, Mapping) or _NUM_MEMBERS not in population:
    return dict(changes)
  return {**changes, _NUM_MEMBERS: population[_NUM_MEMBERS]}


def main(source: str, argv: Sequence[str] | None = None) -> None:
  """Parses the command line, runs the experiment and exits.

  The exit status is 0; 1 after an error, whose message is printed; 2 after an
  invalid flag; or 130 after Ctrl-C or another signal that ends a run.

  Args:
    source: see `find`; an experiment file passes its `__file__`.
    argv: flags of the experiment; by default those of the process.
  """
  logging.use_absl_handler()
  with commands.errors_told():
    found = find(source, sys.argv[1:] if argv is None else argv)
    options = found.options
    if found.function.__name__ == 'main':
      devices.keep_compiled_functions()
      found.function(options)
    elif options.print_config:
      print(config_files.to_toml(config_files.to_json(found.build())))
    else:
      devices.prepare(options.runtime, options.num_devices)
      introduce = getattr(found.module, 'introduce', None)
      if introduce is not None and (lines := introduce(options)):
        print(lines)
      experiment = found.build()
      result = _run(experiment, options, found.given)
      if hasattr(found.module, 'finish'):
        found.module.finish(experiment, result, options)
  raise SystemExit(0)


def _run(
  experiment: experiment_lib.ExperimentConfig,
  options: Options,
  given: frozenset[str],
) -> runs.RunResult:
  period = f'{options.eval_every} {options.eval_unit}'
  result = runs.run_experiment(
    experiment,
    period if options.eval_every else None,
    options.num_eval_episodes,
    runtime=options.runtime,
    run_dir=options.run_dir,
    resume=options.resume,
    **_runtime_options(options, given, experiment.population.num_members),
  )
  counts = result.counts
  steps_per_second = counts.actor_steps / max(counts.seconds, 1e-9)
  # From the log, as on all pages.
  reached = outcome.describe_episodes(result.run_dir)
  if not reached and result.num_recent:  # It has loggers of its own.
    reached = outcome.describe_return(
      result.mean_return, result.num_recent, counts.episodes
    )
  unit, end = 'steps', f': {reached or "no episode has ended"}.'
  if experiment.offline:
    unit, end = 'recorded steps', '.'
  print(
    f'{counts.actor_steps:,} {unit} and {counts.learner_steps:,} updates in'
    f' {counts.seconds:.0f} s ({steps_per_second:,.0f} {unit}/s){end}'
    f' See {result.run_dir}'
  )
  return result


def _runtime_options(
  options: Options, given: frozenset[str], num_members: int
) -> dict[str, Any]:
  """Returns the runtime-specific options that flags set.

  Args:
    options: the options.
    given: names of the options that are set.
    num_members: size of the population, whose members may share devices.
  """
  names = ('num_actors', 'num_learners', 'cluster')
  own = {name: getattr(options, name) for name in names if name in given}
  if options.resources:
    own['resources'] = _read_resources(options.resources)
  if options.runtime != 'distributed':
    for name, value in own.items():
      raise ValueError(
        f'--{name} ({value}) needs --runtime=distributed, and the runtime is'
        f' {options.runtime}; leave it out, or choose --runtime=distributed.'
      )
    is_given = 'num_devices' in given
    return {
      'devices': devices.choose(options.num_devices, is_given, num_members)
    }
  from ftwax.runtime.distributed import settings  # Slow import.

  if 'num_devices' in given:
    own['num_devices'] = options.num_devices
  return {'settings': settings.Settings(**own)}


def _read_resources(texts: Sequence[str]) -> dict[str, dict[str, float]]:
  """Parses the resources of nodes from texts such as 'learner.GPU=1'."""
  resources: dict[str, dict[str, float]] = {}
  for text in texts:
    name, _, value = text.partition('=')
    label, _, resource = name.partition('.')
    try:
      resources.setdefault(label, {})[resource] = float(value)
    except ValueError:
      resource = ''
    if not (label and resource):
      raise ValueError(
        f'resources ({text}) must be LABEL.RESOURCE=NUMBER; choose e.g.'
        ' learner.GPU=1.'
      )
  return resources
