"""Fields that are changed by text: types, bounds, suggestions, TOML."""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import pytest

from ftwax import hyperparameters
from ftwax.records import config_changes


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
    changes = config_changes.merge(changes, config_changes.parse(text))
  return config_changes.apply(_Config(), changes)


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
    ('qqqq=9', r'qqqq is not a field; --print_config prints all'),
    ('function=len', r'function \(.len.\) must be .*Callable'),
    ('priors.rate=Normal(1)', r'must be a number or a prior'),
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
  path.write_text(config_changes.to_toml(config), 'utf-8')
  changes = config_changes.read_file(str(path))
  assert 'function' not in changes
  assert config_changes.apply(_Config(), changes) == config
  assert (
    config_changes.apply(config, config_changes.parse('number=7')) != config
  )
