"""Configs from plain data: types, bounds, suggestions, and no foreign code."""

import copy
import dataclasses
import functools
import json
import pickle
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest

import ftwax
from ftwax import hyperparameters, registry
from ftwax.agents import ppo
from ftwax.networks import cores, entry_torsos
from ftwax.population import population_config
from ftwax.records import config_files, rebuilding

_Function = Callable[[int], Any]


class _Priors(NamedTuple):
  rate: hyperparameters.Prior = hyperparameters.Constant(0.5)
  period: hyperparameters.Prior = hyperparameters.UniformInteger(2, 8)


@dataclasses.dataclass(frozen=True)
class _Inner:
  size: int = 4
  limit: int = 8

  def __post_init__(self):
    if self.size > self.limit:
      raise ValueError(f'size ({self.size}) must not be above limit; lower it.')


@dataclasses.dataclass(frozen=True)
class _Config:
  number: int = 1
  scale: float = 1.0
  flag: bool = False
  name: str | None = None
  mode: Literal['a', 'b'] = 'a'
  pair: tuple[int, int] | None = None
  sizes: tuple[int, ...] = (1,)
  table: dict[str, str] = dataclasses.field(default_factory=dict)
  inner: _Inner = _Inner()
  priors: _Priors = _Priors()
  function: Callable[[], int] = len


def _change(*texts):
  changes = {}
  for text in texts:
    changes = config_files.merge(changes, config_files.parse(text))
  return rebuilding.rebuild(changes, _Config, '', _Config())


@pytest.mark.parametrize(
  ('text', 'field', 'value'),
  [
    ('number=1e3', 'number', 1000),
    ('scale=2', 'scale', 2.0),
    ('scale=inf', 'scale', float('inf')),
    ('flag=true', 'flag', True),
    ('name=some text', 'name', 'some text'),
    ('name="none"', 'name', None),
    ('mode=b', 'mode', 'b'),
    ('pair=[1, 2]', 'pair', (1, 2)),
    ('sizes=[]', 'sizes', ()),
    ('table.camera=deep', 'table', {'camera': 'deep'}),
    ('inner.size=2', 'inner', _Inner(2)),
    (
      'priors.rate=LogUniform(1e-3, 0.1)',
      'priors',
      _Priors(hyperparameters.LogUniform(1e-3, 0.1)),
    ),
    ('priors.rate=2', 'priors', _Priors(hyperparameters.Constant(2.0))),
  ],
)
def test_values_have_the_type_of_the_field(text, field, value):
  changed = getattr(_change(text), field)
  assert changed == value and type(changed) is type(value)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('number=1.5', r'number \(1.5\) must be int, but is float'),
    ('number=true', r'number \(True\) must be int, but is bool'),
    ('flag=1', r'flag \(1\) must be bool'),
    ('mode=c', r"mode \('c'\) must be .*'a', 'b'"),
    ('pair=[1]', r'pair \(\[1\]\) must be tuple\[int, int\]'),
    (
      'inner=3',
      r'inner \(3\) must be set field by field; choose one of size, limit',
    ),
    ('inner.size=9', r'inner: size \(9\) must not be above limit'),
    ('inner.sise=9', r'inner.sise is not a field; did you mean inner.size\?'),
    ('size=9', r'size is not a field; did you mean inner.size\?'),
    ('qqqq=9', r'qqqq is not a field; .*--print_config prints all'),
    ('function=len', r'function \(.len.\) must be a registered name'),
    ('priors.rate=Normal(1)', r'must be a number or a prior'),
    ('priors.rate=fast', r'must be a number or a prior \(is neither\)'),
    ('priors.rate=a.b(1)', r'must be a number or a prior \(is neither\)'),
    (
      'priors.rate=Uniform(2, 1)',
      r'priors.rate .* must be a number or a prior',
    ),
    ('a b=1', r'must be KEY=VALUE'),
  ],
)
def test_a_wrong_value_is_told(text, message):
  with pytest.raises(ValueError, match=message):
    _change(text)


def test_changes_of_an_object_are_checked_together():
  assert _change('inner.size=16', 'inner.limit=32').inner == _Inner(16, 32)
  assert _change('number=2', 'number=3').number == 3


def test_toml_comes_back(tmp_path):
  config = _change(
    'sizes=[3, 4]', 'name=x"y', 'pair=[1, 2]', 'table.a=b', 'scale=inf',
    'priors.rate=LogUniform(0.1, 1.0)',
  )  # fmt: skip
  path = tmp_path / 'config.toml'
  path.write_text(config_files.to_toml(config_files.to_json(config)), 'utf-8')
  changes = config_files.read_toml(str(path))
  assert rebuilding.rebuild(changes, _Config, '', config) == config
  del changes['function']  # Of Python, and the one that is there.
  assert rebuilding.rebuild(changes, _Config, '', _Config()) == config
  seven = config_files.parse('number=7')
  assert rebuilding.rebuild(seven, _Config, '', config).number == 7


AGENT = 'agent.ppo'


@pytest.mark.parametrize(
  ('plain', 'kind', 'message'),
  [
    *(
      ({'__type__': name}, kind, r'key \(.*\) must be a registered name')
      for name in (
        'os:system',
        'ftwax.agents.ppo:PPOConfig',
        'ftwax.records.files:read',
        'ftwax.nowhere:Config',
        'agent.nowhere',
        'agent.ppo\n',
        'agent',
        'functools:partial',
        '',
        3,
        [],
        {},
      )
      for kind in (object, Any, _Function, str | type)
    ),
    ('game:make', _Function, r"key \('game:make'\) must .*pass the code"),
    ('agent.ppo', _Inner, r"key \('agent.ppo'\) must be _Inner, but is str"),
    ({'__type__': 'catch.game', 'rows': 'x'}, Any, r"rows \('x'\) must be int"),
    ({'__type__': 'catch.game', 'seed': 3}, Any, 'seed is not a field'),
    ({'__type__': 'catch.game'}, int, r'\(catch.game\) must be int; give one'),
    (
      {'__type__': 'copying.game', 'length': {'__type__': 'os:system'}},
      Any,
      'length .*must be a registered name',
    ),
    (
      {'__type__': AGENT, 'batch_sise': 3},
      Any,
      r'key.batch_sise is not a field; did you mean key.batch_size\?',
    ),
    ({'__type__': AGENT, 'qqqqq': 3}, Any, r'another version may have written'),
    ({'__type__': AGENT, 'batch_size': None}, Any, r'batch_size \(None\) must'),
    ({'__type__': AGENT, 'batch_size': 0}, Any, r'\(0\) must be at least 1'),
    (None, hyperparameters.Prior, r'key \(None\) must be a number or a prior'),
    ('(' * 9999, hyperparameters.Prior, r'must be a number or a prior'),
    ({'__type__': AGENT}, _Inner, r'must be _Inner; give one of that type'),
    ({'__type__': 'array[S999999999]', 'values': ['']}, Any, 'registered name'),
    ({'__type__': 'array[object]', 'values': ['']}, Any, 'registered name'),
  ],
)
def test_data_of_others_is_told(plain, kind, message):
  with pytest.raises(ValueError, match=message) as info:
    rebuilding.rebuild(plain, kind, 'key')
  assert '\n' not in str(info.value)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'{"a": 1, "a": 2}', r"the key 'a' stands there twice"),
    (b'{"a": "\xff"}', r'UnicodeDecodeError'),
    (b'[' * 100_000, r'RecursionError'),
    (b'{"a": ' * 100_000, r'RecursionError'),
    (b'[1]', r'it is a list, not an object'),
    (b'{"a":', r'JSONDecodeError'),
    (b'{}', r'agent.batch_size is missing; the run may be of another version'),
    (b'{"agent": null}', r'agent.batch_size is missing'),
    (
      b'{"agent": {"batch_size": "x"}}',
      r"agent.batch_size \('x'\) must be int",
    ),
  ],
)
def test_a_damaged_file_is_named(tmp_path, content, message):
  path = tmp_path / 'config.json'
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as info:
    rebuilding.read_parts(tmp_path, {'agent.batch_size': int})
  assert str(path) in str(info.value) and '\n' not in str(info.value)


def test_functions_come_back():
  copying = registry.find('copying.game')
  bound = {'length': 4, 'num_symbols': 2}
  for function, fields in (
    (copying, {}),
    (functools.partial(copying, 4, num_symbols=2), bound),
    (functools.partial(copying, 4, 3), bound | {'num_symbols': 3}),
    (functools.partial(entry_torsos.FTWTorso, 8), {'num_features': 8}),
    (entry_torsos.A3CTorso, {}),
  ):
    plain = json.loads(json.dumps(config_files.to_json(function)))
    assert plain.pop('__type__') and plain == fields
    plain = config_files.to_json(function)
    again = rebuilding.rebuild(plain, _Function)
    assert config_files.to_json(again) == plain


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      lambda: ppo.PPOConfig(batch_sise=4),
      "PPOConfig has no field 'batch_sise'; did you mean batch_size",
    ),
    (
      lambda: cores.GRU().replace(hiden_size=4),
      "GRU has no field 'hiden_size'; did you mean hidden_size",
    ),
    (
      lambda: population_config.PopulationConfig(members=4),
      "no field 'members'; did you mean num_members",
    ),
    (
      lambda: ftwax.ExperimentConfig(qqqq=1),
      "ExperimentConfig has no field 'qqqq'; leave it out",
    ),
  ],
)
def test_a_misspelt_field_in_python_is_told(make, message):
  with pytest.raises(TypeError, match=message):
    make()


def test_configs_are_copied_and_pickled():
  config = ppo.PPOConfig(core=cores.LSTM(8))
  assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config
