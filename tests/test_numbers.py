"""Numbers of a record, or of a user: each is taken or refused, and at once."""

import contextlib
import dataclasses
import math
import signal
import typing

import haiku as hk
import jax
import pytest

from ftwax import registry
from ftwax.agents import ftw, ppo, r2d2
from ftwax.cli import launch
from ftwax.environments import capture_the_flag, catch, delays
from ftwax.environments.capture_the_flag import rays
from ftwax.networks import cores, entry_torsos, torsos
from ftwax.records import rebuilding
from ftwax.replay import replay_options
from ftwax.runtime import prepare

_NUMBERS = (0, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 1e308, math.nan)
_LONG = [8] * 100_000

# Of a rule, the field of a population.
_RULES = {
  'rule.win_probability': 'select',
  'rule.truncation': 'select',
  'rule.perturb': 'explore',
  'rule.resample': 'explore',
  'rule.by_strength': 'matchmake',
}

# Agents whose numbers differ from those of others.
_AGENTS = ('agent.ftw', 'agent.ppo', 'agent.pqn', 'agent.r2d2')

# Of agents that learn action values, by kind or name: the field.
_OF_ACTION_VALUES = {
  'exploration': 'exploration',
  'heads.action_values': 'heads',
  'replay.prioritized': 'replay',
  'target': 'target',
}

# What a record must give beside a number.
_REST = {
  'any_game.game': {'library': 'mpe2', 'name': 'simple_tag'},
  'capture_the_flag.game': {'agent': 'small', 'game': 'first_person'},
  'capture_the_flag.training': {'agent': 'small', 'game': 'first_person'},
  'experiment': {
    'agent': {'__type__': 'agent.ppo'},
    'environment': {'__type__': 'catch.game'},
    'max_num_actor_steps': 1000,
  },
  'rule.population': {'num_members': 2},
}


_rules = capture_the_flag.CaptureTheFlagConfig


@contextlib.contextmanager
def _within(seconds):
  """Raises a TimeoutError in code that hangs."""

  def stop(number, frame):
    del number, frame
    raise TimeoutError

  before = signal.signal(signal.SIGALRM, stop)
  signal.alarm(seconds)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope='module')
def base():
  return launch.find('catch', ['--runtime=device']).build()


def _place(base, name, part):
  """Returns an experiment with a part, or None if it is in none."""
  kind = name.partition('.')[0]
  agent, population = base.agent, base.population
  if kind in registry._ENVIRONMENT_HOMES:
    return None if 'vector' in kind else base.replace(environment=part)
  if name in _RULES:
    rule = {_RULES[name]: part}
    return base.replace(population=population.replace(num_members=2, **rule))
  if kind in ('experiment', 'stepping', 'checkpointing', 'evaluation'):
    return part if kind == 'experiment' else base.replace(**{kind: part})
  if kind == 'curriculum':
    return base.replace(curriculum=part)
  if field := _OF_ACTION_VALUES.get(name, _OF_ACTION_VALUES.get(kind)):
    changes = {field: part}
    return base.replace(agent=r2d2.R2D2Config(**changes))
  if name == 'rule.population':
    return base.replace(population=part)
  if kind == 'agent':
    return base.replace(agent=part)
  changes = {
    'core': {'core': part},
    'heads': {'heads': part},
    'optimizer': {'optimizer': part},
    'schedule': {'decay': part},
    'task': {'tasks': (part,)},
    'torso': {'torso': part},
  }.get(kind, {})
  if name == 'core.memory':
    changes = {'core': cores.DNC(memory=part)}
  if name == 'replay.uniform':
    changes = {'replay': part, 'tasks': ('value_replay',)}
  if name == 'replay.queue':
    changes = {'queue': part}
  if not changes:
    return None
  return base.replace(agent=agent.replace(**changes))


def _fields():
  """Yields each numeric field of each part, with values to try."""
  for home in registry._HOMES:
    with contextlib.suppress(ImportError):
      registry.find(f'{home}.x')
  for name in registry.names():
    part = registry.find(name)
    if not registry.path_of(part).startswith('ftwax.'):
      continue
    for field, kind in registry.fields_of(part).items():
      choices = rebuilding._choices(kind)
      values = []
      if {int, float} & {*choices}:
        values += _NUMBERS
      if any(typing.get_origin(choice) is tuple for choice in choices) or (
        'Sequence' in str(kind)
      ):
        values += [*([number] for number in _NUMBERS), _LONG]
      if values:
        yield name, field, values


_FIELDS = {(name, field): values for name, field, values in _fields()}


def test_all_parts_have_numbers_that_are_tried():
  kinds = {name.partition('.')[0] for name, _ in _FIELDS}
  assert kinds >= {
    'agent', 'catch', 'checkpointing', 'copying', 'core', 'experiment',
    'optimizer', 'replay', 'rule', 'schedule', 'stepping', 'task', 'torso',
  }  # fmt: skip
  assert len(_FIELDS) > 150


@pytest.mark.slow
@pytest.mark.parametrize(
  'kind', sorted({name.partition('.')[0] for name, _ in _FIELDS})
)
def test_each_number_is_taken_or_refused_at_once(base, kind):
  for (name, field), values in _FIELDS.items():
    for value in values if name.partition('.')[0] == kind else ():
      plain = {'__type__': name, **_REST.get(name, {}), field: value}
      # Only an agent that differs from others has other numbers.
      if kind == 'agent' and name not in _AGENTS:
        continue
      with _within(20), contextlib.suppress(ValueError):
        made = rebuilding.rebuild(plain)
        experiment = _place(base, name, made)
        if experiment is not None:
          prepare.prepare(experiment)


_SIZES = {
  each.name: each.default
  for each in dataclasses.fields(capture_the_flag.CaptureTheFlagConfig)
  if type(each.default) in (int, float)
}


@pytest.mark.parametrize('name', _SIZES)
def test_each_rule_of_a_record_is_taken_or_refused_at_once(name):
  for value in _NUMBERS:
    rules = {name: value, 'observation': 'rays'}
    with _within(20), contextlib.suppress(ValueError):
      game = capture_the_flag.make(_rules(**rules))
      jax.eval_shape(game.reset, jax.random.PRNGKey(0))


def test_the_largest_first_person_game_fits_into_memory():
  config = capture_the_flag.CaptureTheFlagConfig(
    height=255, width=255, observation='rays', num_rays=768, view_angle=170
  )
  tables = [*rays._walls(config), rays._things(config)]
  assert sum(table.nbytes for table in tables) < 2**29


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: cores.GTrXL(window=2**31 - 1), r'window .* at most 65536'),
    (lambda: _rules(height=2**31 - 1), r'height .* from 7 to 255'),
    (lambda: _rules(width=100_001), r'width .* from 11 to 255'),
    (lambda: _rules(view_size=2**31 - 1), r'view_size .* from 3 to 63'),
    (lambda: _rules(tile_size=10**6), r'tile_size .* at most 64'),
    (lambda: _rules(tag_range=2**31 - 1), r'tag_range .* at most 255'),
    (lambda: _rules(num_rays=2**14), r'num_rays .* at most 768'),
    (lambda: cores.RPTH(num_levels=10**8), r'num_levels .* at most 64'),
    (lambda: cores.LRU(num_layers=10**9), r'num_layers .* at most 64'),
    (lambda: cores.GTrXL(num_layers=10**9), r'num_layers .* at most 64'),
    (lambda: cores.Memory(num_reads=10**7), r'num_reads .* at most 64'),
    (lambda: cores.Memory(num_writes=10**7), r'num_writes .* at most 64'),
    (lambda: cores.Memory(num_slots=2**31), r'num_slots .* at most 2147483647'),
    (
      lambda: torsos.Torso(hidden_sizes=_LONG),
      r'hidden_sizes \(100,000 entries\) of Torso must have at most 64',
    ),
    (
      lambda: cores.StackedLSTM(tuple(_LONG)),
      r'hidden_sizes \(100,000 entries\) of StackedLSTM must have',
    ),
    (lambda: delays.make(catch.make(), 10**8), r'max_delay .* at most 4096'),
    (lambda: catch.make(rows=2**31), r'rows \(2147483648\) must be at most'),
    (lambda: ftw.FTWConfig(num_epochs=10**9), r'num_epochs .* at most 1024'),
    (
      lambda: cores.RPTH(slow_period=2**31),
      r'slow_period .* must lie in \[\d+, 2.14748e\+09\]',
    ),
  ],
)
def test_numbers_that_would_hang_are_refused(make, message):
  with _within(10), pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: entry_torsos.MLPTorso([0]), r'hidden_sizes .* from 1 to'),
    (lambda: entry_torsos.MLPTorso(_LONG), r'at most 64 layers'),
    (lambda: entry_torsos.DeepTorso([-1]), r'num_channels .* from 1 to'),
    (lambda: entry_torsos.DeepTorso(num_blocks=10**9), r'num_blocks .* at mo'),
    (lambda: entry_torsos.FTWTorso(2**40), r'num_features .* from 1 to'),
  ],
)
def test_sizes_of_torsos_are_checked(make, message):
  with _within(10), pytest.raises(ValueError, match=message):
    hk.transform(make).init(None)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'batch_size': 10**9}, r'batch_size \(1,000,000,000 trajectories'),
    (
      {
        'replay': replay_options.Replay(capacity=10**9),
        'tasks': ('value_replay',),
      },
      r'replay.capacity \(1,000,000,000 trajectories',
    ),
  ],
)
def test_what_becomes_an_array_must_fit_into_memory(base, changes, message):
  experiment = base.replace(agent=ppo.PPOConfig(**changes))
  with (
    _within(20),
    pytest.raises(ValueError, match=f'{message}.* must fit into memory.*choo'),
  ):
    prepare.prepare(experiment)
