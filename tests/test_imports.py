"""The rules of design: which room may import which, and what imports cost."""

import ast
import functools
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

from ftwax import import_guard

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'ftwax'

HEAVY = {
  'tensorflow',
  'tensorflow_probability',
  'reverb',
  'launchpad',
  'acme',
  'rlax',
  'distrax',
}

# By what is installed: on Python 3.10 it is an extra.
HAS_REVERB = import_guard.is_installed('reverb')

# Rooms in which no file may load the heavy half, at any depth.
FUNCTIONAL = [
  'types.py',
  'scans.py',
  'shapes.py',
  'trees.py',
  'hyperparameters.py',
  'distributions.py',
  'continuous.py',
  'encodings.py',
  'internal_rewards.py',
  'losses',
  'networks',
  'population',
  'replay/functional',
  'replay/trajectories.py',
  'replay/auxiliary_replay.py',
  'runtime/device',
  'runtime/local/acting.py',
  'runtime/local/arena.py',
  'runtime/local/evaluations.py',
  'runtime/local/learning.py',
  'runtime/local/run.py',
  'runtime/generations.py',
  'runtime/rounds.py',
  'environments',
  'reporting',
]

# Files that all rooms share.
SHARED = {
  'types',
  'scans',
  'shapes',
  'trees',
  'compilation',
  'hyperparameters',
  'internal_rewards',
  'parts',
  'distributions',
  'continuous',
  'encodings',
  'errors',
  'extras',
  'import_guard',
  'registry',
  'submodules',
  'suggestions',
  'version',
}

# The rooms that each room may import, itself and the shared files aside. The
# table in docs/internals.md says the same.
MAY_IMPORT = {
  **{f'{name}.py': set() for name in sorted(SHARED)},
  'losses': set(),
  'networks': set(),
  'environments': set(),
  'population': set(),
  'replay': set(),
  'records': {'environments'},
  'agents': {'losses', 'networks', 'population', 'replay', 'records'},
  'acme': {'agents', 'records', 'replay'},
  'reporting': {'population', 'records'},
  'runtime': {
    'acme',
    'agents',
    'environments',
    'losses',
    'networks',
    'population',
    'records',
    'replay',
    'reporting',
  },
  'inference': {
    'agents',
    'environments',
    'losses',
    'networks',
    'population',
    'records',
    'reporting',
    'runtime',
  },
  'web': {'inference', 'records', 'reporting', 'runtime'},
  'experiments': {
    'agents',
    'cli',
    'environments',
    'inference',
    'networks',
    'population',
    'records',
    'replay',
    'reporting',
    'runtime',
  },
  'cli': {
    'agents',
    'environments',
    'inference',
    'records',
    'reporting',
    'runtime',
    'web',
  },
  '__main__.py': {'cli'},
  '__init__.py': {
    'acme',
    'agents',
    'environments',
    'inference',
    'losses',
    'networks',
    'population',
    'records',
    'replay',
    'reporting',
    'runtime',
  },
}


@functools.cache
def _import_nodes(path):
  """Returns the import statements of a file, at any depth of its code."""
  nodes = ast.walk(ast.parse(path.read_text('utf-8')))
  return [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]


def _imports(path):
  """Yields every module that a file imports."""
  for node in _import_nodes(path):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    else:
      assert node.level == 0, f'{path} imports relatively'
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def _files(room):
  """Returns the Python files of a room, a folder or a file; at least one."""
  path = PACKAGE / room
  files = [path] if path.suffix else sorted(path.rglob('*.py'))
  assert files and all(file.is_file() for file in files), f'no room {room}'
  return files


def test_every_room_has_its_arrows():
  rooms = {path.relative_to(PACKAGE).parts[0] for path in _files('.')}
  assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize('room', FUNCTIONAL)
def test_functional_rooms_import_nothing_heavy(room):
  for path in _files(room):
    heavy = {name.split('.')[0] for name in _imports(path)} & HEAVY
    if path.name == 'lazy_rlax.py':  # Loads it where a loss is traced.
      heavy -= {'rlax'}
    assert not heavy, f'{path} imports {heavy}'


@pytest.mark.parametrize('room', MAY_IMPORT)
def test_arrows_run_down(room):
  allowed = MAY_IMPORT[room] | SHARED | {room.removesuffix('.py')}
  for path in _files(room):
    assert not (set(_imports(path)) & {'experiments', 'tests', 'benchmarks'})
    for name in _imports(path):
      package, _, module = name.partition('.')
      if package == 'ftwax' and module:
        target = module.partition('.')[0]
        assert target in allowed, f'{path} imports {name}'


_ON_FIRST_USE = (
  '__getattr__, __dir__ = submodules.on_first_use(__name__)'  # Its one line.
)


def _check_first_use(path, lazy, imported):
  """Checks that names of a package are those that type checkers see there."""
  (line,) = lazy
  call = line.value
  names = {} if len(call.args) < 2 else ast.literal_eval(call.args[1])
  call.args = call.args[:1]
  (wanted,) = ast.parse(_ON_FIRST_USE).body
  assert ast.dump(line) == ast.dump(wanted), path
  package = '.'.join(path.relative_to(ROOT).parent.parts)
  seen = {
    alias.asname or alias.name: f'{node.module}.{alias.name}'
    for node in imported
    for alias in node.names
    if node.module != package  # Else it is a submodule.
  }
  assert {name: f'{package}.{target}' for name, target in names.items()} == seen


def test_packages_only_re_export():
  """An `__init__.py` has imports and names, but no code of its own.

  Apart from that of the library itself, which has shortcuts. What a package
  imports on first use is imported for types alone.
  """
  for path in _files('.'):
    if path.name != '__init__.py' or path.parent == PACKAGE:
      continue
    document, *body = ast.parse(path.read_text('utf-8')).body
    assert isinstance(document, ast.Expr)
    for node in body:
      if isinstance(node, ast.Assign):
        assert [ast.unparse(name) for name in node.targets] == ['__all__']
      elif isinstance(node, ast.Expr):  # Other Pythons get a clear error.
        assert ast.unparse(node) == 'compatibility.require_python_310(__name__)'
      elif isinstance(node, ast.If):
        lazy = node.orelse if node.orelse else node.body
        _check_first_use(path, lazy, node.body if node.orelse else [])
        assert ast.unparse(node.test).endswith('TYPE_CHECKING')
        for each in node.body if node.orelse else ():
          assert isinstance(each, ast.ImportFrom), f'{path}'
      else:
        assert isinstance(node, ast.Import | ast.ImportFrom), f'{path}'


def test_modules_are_imported_not_names():
  """`from ftwax.x import y` brings a module y, never a name in a module.

  Only an `__init__.py` re-exports names.
  """
  for path in _files('.'):
    if path.name == '__init__.py':
      continue
    for node in _import_nodes(path):
      if isinstance(node, ast.ImportFrom) and node.module.startswith('ftwax'):
        folder = ROOT / node.module.replace('.', '/')
        for alias in node.names:
          module = (folder / alias.name).with_suffix('.py')
          package = folder / alias.name / '__init__.py'
          assert module.exists() or package.exists(), f'{path}: {alias.name}'


def test_the_laboratory_uses_what_the_library_has():
  for path in (
    *(ROOT / 'benchmarks').rglob('*.py'), *(ROOT / 'research').rglob('*.py')
  ):  # fmt: skip
    modules = {
      alias.asname or alias.name: f'{node.module}.{alias.name}'
      for node in _import_nodes(path)
      if isinstance(node, ast.ImportFrom)
      and node.module.partition('.')[0] == 'ftwax'
      for alias in node.names
    }
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
      if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = modules.get(node.value.id)
        if name is not None and (HAS_REVERB or '.acme' not in name):
          module = importlib.import_module(name)
          assert hasattr(module, node.attr), f'{path}: {name}.{node.attr}'


def test_the_links_show_the_rooms():
  for link in ('agents', 'experiments', 'networks'):
    assert (ROOT / link).is_symlink()
    assert (ROOT / link).resolve() == PACKAGE / link


def _python(code):
  return subprocess.run(
    [sys.executable, '-c', code],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


LIGHT = [
  'ftwax',
  'ftwax.types',
  'ftwax.hyperparameters',
  'ftwax.losses.v_trace',
  'ftwax.networks.recurrent',
  'ftwax.agents.impala',
  'ftwax.agents.actor_critic.learning',
  'ftwax.runtime.experiment',
]


def test_light_rooms_load_nothing_heavy():
  result = _python(
    f'import sys, importlib\n'
    f'for name in {LIGHT}: importlib.import_module(name)\n'
    f'print(sorted(set(sys.modules) & {HEAVY}))'
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip() == '[]'


# Traces the rollouts, losses and updates of a training.
TRAINING = """
import sys
import jax
import ftwax
from ftwax.agents import ppo
from ftwax.environments import catch

experiment = ftwax.ExperimentConfig(
  agent=ppo.PPOConfig(), environment=catch.make(), max_num_actor_steps=10_000
)
init, train = ftwax.make_train(experiment)
jax.eval_shape(train, jax.eval_shape(init, jax.random.PRNGKey(0)))
"""


@pytest.mark.ci
def test_a_training_loads_nothing_heavy():
  result = _python(f'{TRAINING}print(sorted(set(sys.modules) & {HEAVY}))')
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip() == '[]'


REVERB_LAST = ['ftwax.agents.impala', 'ftwax.runtime.local.run']


@pytest.mark.python_310
@pytest.mark.parametrize(
  'order', ['ftwax first', pytest.param('reverb first', marks=pytest.mark.slow)]
)
def test_both_import_orders_work(order):
  names = [*LIGHT, *REVERB_LAST]
  names = [*names, 'reverb'] if order == 'ftwax first' else ['reverb', *names]
  result = _python(
    f'import importlib, sys\n'
    f'for name in {names}: importlib.import_module(name)\n'
    f'print("tensorflow_probability" in sys.modules)\n'
    f'import ftwax.acme\n'
    f'import tensorflow\n'
    f'print(tensorflow.__version__)\n'
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.split() == ['False', '2.8.4']


@pytest.mark.skipif(HAS_REVERB, reason='These rooms work')
def test_those_without_acme_are_told_what_it_needs():
  message = r'needs Python 3.10, as dm-acme'
  if sys.version_info < (3, 11):
    message = r'needs acme, launchpad, .* which the extra acme installs; run'
  with pytest.raises(ImportError, match=message):
    importlib.import_module('ftwax.acme')


# All others get the parts of an experiment; see `runtime.prepare`.
NAME_EXPERIMENTS = {
  '__init__.py',
  'cli',
  'experiments',
  'inference',
  'runtime/__init__.py',
  'runtime/comparison.py',
  'runtime/device/train.py',
  'runtime/distributed/launchpad_program.py',
  'runtime/distributed/run.py',
  'runtime/distributed/runner.py',
  'runtime/experiment.py',
  'runtime/memory_checks.py',
  'runtime/prepare.py',
  'runtime/runs.py',
  'runtime/sweeps.py',
}


def test_few_files_name_the_config_of_an_experiment():
  rooms = [PACKAGE / name for name in NAME_EXPERIMENTS]
  for path in _files('.'):
    if 'ExperimentConfig' in path.read_text('utf-8'):
      assert any(path.is_relative_to(room) for room in rooms), path


def _packages():
  """Returns the packages with names for users, by their paths."""
  rooms = {path.parent for path in _files('.') if path.name == '__init__.py'}
  commands = {PACKAGE / name for name in ('cli', 'experiments', 'web')}
  return sorted(rooms - commands)


@pytest.mark.parametrize(
  'folder', _packages(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_packages_import_what_is_missing_on_first_use(folder):
  text = (folder / '__init__.py').read_text('utf-8')
  assert re.search(r'submodules\.on_first_use\(\s*__name__[,)]', text)


def test_names_of_a_package_are_imported_at_once_or_for_types():
  """Type checkers and editors see each name in `__all__`."""
  for folder in _packages():
    names = {
      alias.asname or alias.name
      for node in _import_nodes(folder / '__init__.py')
      for alias in node.names
    }
    tree = ast.parse((folder / '__init__.py').read_text('utf-8'))
    for node in tree.body:
      if ast.unparse(node).startswith('__all__ = '):
        missing = set(ast.literal_eval(node.value)) - names
        assert not missing, f'{folder}: {missing}'


FIRST_USE = """
import sys
import ftwax
assert not {'jax', 'numpy', 'gymnasium'} & set(sys.modules)
import ftwax.environments
assert 'ftwax.environments.gymnasium_adapter' not in sys.modules
assert not {'gymnasium', 'ale_py', 'pettingzoo'} & set(sys.modules)
assert {'atari', 'pgx_adapter'} <= set(dir(ftwax.environments))
assert 'ftwax.environments.atari' not in sys.modules
ftwax.environments.atari.AtariConfig, ftwax.networks.rpth_level.Level
from ftwax.environments import pgx_adapter
try:
  ftwax.environments.atri
except AttributeError as error:
  assert error.name == 'atri' and error.obj is ftwax.environments
  print(error)
"""


def test_submodules_are_imported_on_first_use():
  pytest.importorskip('ale_py', reason='the extra envs is not there')
  result = _python(FIRST_USE)
  assert result.returncode == 0, result.stderr
  expected = "module 'ftwax.environments' has no attribute 'atri'"
  assert result.stdout.strip() == expected


def test_a_submodule_that_lacks_a_package_says_which(tmp_path):
  (tmp_path / 'it').mkdir()
  (tmp_path / 'it' / '__init__.py').write_text(
    'from ftwax import submodules\n' + _ON_FIRST_USE
  )
  (tmp_path / 'it' / 'one.py').write_text('import no_such_package')
  result = _python(
    f'import sys; sys.path.insert(0, {str(tmp_path)!r}); import it; it.one'
  )
  assert "No module named 'no_such_package'" in result.stderr
