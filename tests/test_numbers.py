"""Numbers of a record, or of a user: each is taken or refused, and at once."""

import contextlib
import math
import signal
import typing

import haiku as hk
import pytest

from ftwax import registry
from ftwax.agents import ftw, ppo
from ftwax.cli import launch
from ftwax.environments import catch, delays
from ftwax.networks import cores, entry_torsos, torsos
from ftwax.records import rebuilding
from ftwax.replay import replay_options
from ftwax.runtime import prepare

_NUMBERS = (0, -1, 2**31, 2**63 - 1, 2**63, 1e308, math.nan)
_LONG = [8] * 100_000

# Of a rule, the field of a population.
_RULES = {
  'rule.win_probability': 'select',
  'rule.truncation': 'select',
  'rule.perturb': 'explore',
  'rule.resample': 'explore',
  'rule.by_strength': 'matchmake',
}

# What a record must give beside a number.
_REST = {
  'any_game.game': {'library': 'mpe2', 'name': 'simple_tag'},
  'capture_the_flag.game': {'agent': 'ppo', 'game': 'duel'},
  'capture_the_flag.training': {'agent': 'ppo', 'game': 'duel'},
  'experiment': {
    'agent': {'__type__': 'agent.ppo'},
    'environment': {'__type__': 'catch.game'},
    'max_num_actor_steps': 1000,
  },
  'rule.population': {'num_members': 2},
}


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
      if kind == 'agent' and name not in ('agent.ftw', 'agent.ppo'):
        continue
      with _within(20), contextlib.suppress(ValueError):
        made = rebuilding.rebuild(plain)
        experiment = _place(base, name, made)
        if experiment is not None:
          prepare.prepare(experiment)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
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
