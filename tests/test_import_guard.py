"""What lies beside a program is never taken for a package by this library."""

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import types
from concurrent import futures

import pytest

from ftwax import extras, import_guard, registry
from ftwax.cli import commands, launch
from ftwax.environments import jax_adapters
from ftwax.records import rebuilding

_PACKAGE = pathlib.Path(import_guard.__file__).parent
_GUARDS = ('extras.required', 'import_guard.guarded', 'guarded')
_IMPORTERS = {
  '__import__', 'exec_module', 'find_loader', 'find_spec', 'import_module',
  'load_module', 'reload', 'run_module', 'run_path',
}  # fmt: skip

# Functions that import what the user names on the command line, or the
# library's own modules by names that a test below reads.
_NAMED = {
  ('__init__.py', '__getattr__'),
  ('cli/launch.py', '_check_environment'),
  ('cli/launch.py', '_import'),
  ('experiments/any_environment.py', '_find'),
  ('registry.py', 'find'),
  ('runtime/runs.py', '_prepare_run'),
  ('runtime/runs.py', 'run_experiment'),
  ('submodules.py', 'get'),  # Of a package of the library itself.
}


def _unguarded(tree, functions=(), is_guarded=False):
  """Yields the imports in functions, and calls that import, outside guards."""
  for node in ast.iter_child_nodes(tree):
    inside, guarded = functions, is_guarded
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      inside, guarded = (*functions, node.name), False
    if isinstance(node, ast.With):
      calls = [item.context_expr for item in node.items]
      guarded |= any(
        isinstance(call, ast.Call) and ast.unparse(call.func) in _GUARDS
        for call in calls
      )
    if functions and not guarded:
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        names = [node.module]
      else:
        names = []
      for name in names:
        if name.partition('.')[0] != 'ftwax':
          yield functions, name
    if isinstance(node, ast.Call) and not guarded:
      name = ast.unparse(node.func).rpartition('.')[2]
      argument = ast.unparse(node.args[0]) if node.args else ''
      if name in _IMPORTERS and not argument.lstrip('f').startswith("'ftwax."):
        yield functions, argument
    yield from _unguarded(node, inside, guarded)


def test_every_import_in_a_function_is_guarded():
  found = set()
  for path in sorted(_PACKAGE.rglob('*.py')):
    file = path.relative_to(_PACKAGE).as_posix()
    if file == 'import_guard.py':  # It is the guard.
      continue
    for functions, name in _unguarded(ast.parse(path.read_text('utf-8'))):
      place = (file, functions[-1] if functions else '')
      assert place in _NAMED, f'{place} imports {name} without a guard'
      found.add(place)
  assert found == _NAMED


def test_the_reader_of_imports_finds_them():
  code = """
    import os
    def f():
      import json
      with extras.required('a'):
        import a
        def g():
          from b import c
      importlib.import_module('ftwax.x')
      return importlib.import_module(name)
  """
  found = [name for _, name in _unguarded(ast.parse(textwrap.dedent(code)))]
  assert found == ['json', 'b', 'name']


def test_modules_that_are_imported_by_names_are_the_librarys():
  for module in registry._HOMES.values():
    assert module.startswith('ftwax.')
  from ftwax.runtime import runs

  assert all(module.startswith('ftwax.') for module in runs._RUNTIMES.values())


@pytest.fixture
def beside(tmp_path, monkeypatch):
  """A folder that comes first in the path, as that of a script does."""
  monkeypatch.syspath_prepend(str(tmp_path))
  before = {*sys.modules}
  yield tmp_path
  for name in {*sys.modules} - before:
    if name.startswith('beside'):
      del sys.modules[name]


def _write(folder, name, text=''):
  path = folder / name
  path.mkdir(parents=True)
  (path / '__init__.py').write_text(text, 'utf-8')
  return path


def test_a_package_beside_the_program_is_refused_by_name(beside):
  _write(beside, 'beside_it')
  with pytest.raises(
    ImportError,
    match=rf'beside_it must be installed, and lies in {beside}.*where no'
    r' packages are installed.*run pip install beside_it.*import it before',
  ):
    with extras.required('beside_it'):
      importlib.import_module('beside_it')
  assert not import_guard.is_installed('beside_it')
  import beside_it  # Outside, imports are as they were.

  with import_guard.guarded():  # What the program has chosen is taken.
    assert importlib.import_module('beside_it') is beside_it


@pytest.mark.parametrize('name', ['beside_folder', 'beside_folder.inner'])
def test_a_folder_without_a_file_is_no_package(beside, name):
  _write(beside / 'beside_folder', 'inner')
  with import_guard.guarded(), pytest.raises(ModuleNotFoundError):
    importlib.import_module(name)


def test_a_namespace_does_not_grow_by_folders_beside(beside, monkeypatch):
  installed = beside / 'site-packages'
  _write(installed / 'beside_spaces', 'good')
  _write(beside / 'beside_spaces', 'bad')
  monkeypatch.syspath_prepend(str(installed))
  with import_guard.guarded():
    importlib.import_module('beside_spaces.good')
    importlib.invalidate_caches()
    sys.path.append(str(beside))
    with pytest.raises(ModuleNotFoundError):
      importlib.import_module('beside_spaces.bad')


def test_what_an_installed_package_imports_must_be_installed(
  beside, monkeypatch
):
  installed = beside / 'site-packages'
  _write(installed, 'beside_first', 'import beside_second')
  _write(installed, 'beside_optional', 'try:\n  import beside_second\n'
         'except ImportError: found = False')  # fmt: skip
  _write(beside, 'beside_second')
  monkeypatch.syspath_prepend(str(installed))
  with import_guard.guarded():
    with pytest.raises(ImportError, match='beside_second must be installed'):
      importlib.import_module('beside_first')
    assert not importlib.import_module('beside_optional').found


def test_a_shadowed_package_is_taken_from_where_it_is_installed(
  beside, monkeypatch
):
  monkeypatch.setattr(import_guard, '_shadows', set())
  installed = _write(beside / 'site-packages', 'beside_both')
  _write(beside, 'beside_both', 'raise AssertionError')
  monkeypatch.syspath_prepend(str(beside / 'site-packages'))
  monkeypatch.syspath_prepend(str(beside))
  with (
    import_guard.guarded(),
    pytest.warns(
      import_guard.ShadowedPackageWarning,
      match='beside_both is that of .*site-packages.*and not',
    ),
  ):
    module = importlib.import_module('beside_both')
  assert pathlib.Path(module.__file__).parent == installed


def test_an_editable_install_counts_for_its_own_packages(beside, monkeypatch):
  # As `pip install -e` leaves it: a path, which a `.pth` file names.
  project = beside / 'my pröject'
  _write(project, 'beside_own')
  _write(project, 'beside_foreign')
  about = beside / 'site-packages' / 'beside_own-1.0.dist-info'
  about.mkdir(parents=True)
  about.joinpath('direct_url.json').write_text(
    json.dumps({'url': project.as_uri(), 'dir_info': {'editable': True}}),
    'utf-8',
  )
  (beside / 'site-packages' / 'beside_own.pth').write_text(
    f'{project}\n', 'utf-8'
  )
  # Below the project lie runs, of which one has the name of the project.
  _write(project / 'runs', 'beside_own', 'raise AssertionError')
  monkeypatch.syspath_prepend(str(beside / 'site-packages'))
  monkeypatch.syspath_prepend(str(project))
  monkeypatch.syspath_prepend(str(project / 'runs'))
  with import_guard.guarded():
    with pytest.warns(import_guard.ShadowedPackageWarning):
      own = importlib.import_module('beside_own')
    with pytest.raises(ImportError, match='beside_foreign must be installed'):
      importlib.import_module('beside_foreign')
  assert pathlib.Path(own.__file__).parent.parent == project


def test_a_folder_called_like_that_of_packages_is_none(beside, monkeypatch):
  folder = beside / 'site-packages'
  _write(folder, 'beside_packages')
  monkeypatch.syspath_prepend(str(folder))
  with import_guard.guarded():
    assert import_guard.is_installed('beside_packages')
    monkeypatch.chdir(folder)  # It was sent with a notebook in it.
    with pytest.raises(ImportError, match='beside_packages must be installed'):
      importlib.import_module('beside_packages')


def test_plug_ins_are_those_of_installed_packages(beside, monkeypatch):
  for folder, name in ((beside, 'bad'), (beside / 'site-packages', 'good')):
    about = folder / f'beside_{name}-1.0.dist-info'
    about.mkdir(parents=True)
    (about / 'METADATA').write_text(f'Name: beside-{name}\nVersion: 1.0\n')
    (about / 'entry_points.txt').write_text(f'[beside]\n{name} = this\n')
  monkeypatch.syspath_prepend(str(beside / 'site-packages'))

  def find():
    return {
      each.name for each in importlib.metadata.entry_points(group='beside')
    }

  assert find() == {'bad', 'good'}  # Of the program, nothing has changed.
  with import_guard.guarded():
    assert find() == {'good'}
    with pytest.raises(importlib.metadata.PackageNotFoundError):
      importlib.metadata.version('beside-bad')


def test_a_guard_of_all_threads_holds_where_none_is_set(beside):
  _write(beside, 'beside_thread')

  def tries(block=contextlib.nullcontext):
    with block():
      return importlib.util.find_spec('beside_thread') is not None

  def find(*block):
    with futures.ThreadPoolExecutor(1) as thread:
      try:
        return thread.submit(tries, *block).result()
      except ImportError:
        return False

  with import_guard.guarded():
    assert find()
  with import_guard.guarded(all_threads=True):
    assert not find()
    assert not find(import_guard.guarded)
    import_guard.release()
    assert find() and tries()
    assert not find(import_guard.guarded)
  assert find() and tries()


def test_other_finders_are_heard_unless_they_read_the_path(beside, monkeypatch):
  machinery = importlib.machinery

  class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
      if name == 'beside_mapped':  # As an editable install may do.
        file = beside / 'elsewhere' / 'x.py'
        return importlib.util.spec_from_file_location(name, file)
      if name == 'beside_path':  # As what rewrites sources does.
        return machinery.PathFinder.find_spec(name, path, target)
      return None

  _write(beside, 'beside_path')
  _write(beside, 'elsewhere')
  (beside / 'elsewhere' / 'x.py').write_text('')
  monkeypatch.setattr(sys, 'meta_path', [*sys.meta_path, Finder])
  with import_guard.guarded():
    importlib.import_module('beside_mapped')
    with pytest.raises(ImportError, match='beside_path must be installed'):
      importlib.import_module('beside_path')


@pytest.mark.parametrize('entry', ['', '.', 'site-packages'])
def test_a_relative_entry_of_the_path_is_none_of_packages(
  beside, monkeypatch, entry
):
  _write(beside, 'beside_relative')
  _write(beside / 'site-packages', 'beside_relative')
  monkeypatch.chdir(beside)
  sys.path.remove(str(beside))
  monkeypatch.syspath_prepend(entry)
  with import_guard.guarded(), pytest.raises(ImportError):
    importlib.import_module('beside_relative')


def test_a_class_of_the_program_may_import_when_it_is_used(monkeypatch):
  class Own:
    env = None

  module = types.ModuleType('of_a_package')
  file = os.path.join(os.path.dirname(pytest.__file__), 'x.py')
  module.__file__ = file
  monkeypatch.setitem(sys.modules, 'of_a_package', module)
  made = type('Made', (), {'__module__': 'of_a_package'})()
  assert import_guard.around(made) is import_guard.guarded
  assert import_guard.around('of_a_package') is import_guard.guarded
  assert import_guard.around('not_imported') is import_guard.guarded
  made.env = Own()  # A wrapper of a package around what is the program's.
  assert import_guard.around(made) is not import_guard.guarded


def test_guards_are_nested_and_released():
  is_guarding = import_guard._is_guarding
  assert not is_guarding()
  with import_guard.guarded():
    with import_guard.guarded():
      assert is_guarding()
    import_guard.release()
    assert not is_guarding()
    with import_guard.guarded():
      assert is_guarding()
    assert not is_guarding()
  assert not is_guarding()


def test_a_command_guards_all_threads(monkeypatch):
  from ftwax.cli import list_command

  def run(options):
    del options
    with futures.ThreadPoolExecutor(1) as thread:
      return int(thread.submit(import_guard._is_guarding).result())

  monkeypatch.setattr(list_command, 'run', run)
  assert commands.main(['list']) == 1


# A folder for each name that an import in this process could name, beside a
# program that reads foreign records. Each notes that it ran.
_DECOY = "open({marker!r}, 'a').write({name!r} + chr(10))\n"

# What an attacker's folder may be called: all that is installed, all of the
# standard library, and what the library could import if it were installed.
_OPTIONAL = [
  'Box2D', 'acme', 'craftax', 'cupy', 'gym', 'jax2onnx', 'jax_plugins',
  'jaxmarl', 'launchpad', 'libtpu', 'minari', 'mpe2', 'mujoco',
  'mujoco_playground', 'onnx', 'onnxruntime', 'pgx', 'reverb', 'shimmy',
  'tensorflow', 'torch', 'wandb', *jax_adapters.LIBRARIES,
]  # fmt: skip


def _names():
  found = {*importlib.metadata.packages_distributions(), *_OPTIONAL}
  found |= sys.stdlib_module_names
  # Python itself imports these before a program begins; Python 3.13 more for
  # one that is given by -c.
  found -= {'ftwax', '__main__', 'site', 'sitecustomize', 'usercustomize'}
  begun = subprocess.run(
    [sys.executable, '-c', 'import sys; print(*sys.modules)'],
    capture_output=True,
    text=True,
    check=True,
  )
  found -= {*begun.stdout.split()}
  assert {'json', 'numpy', 'jax'} <= found
  return sorted(name for name in found if name.isidentifier())


@pytest.fixture(scope='module')
def decoys(tmp_path_factory):
  folder = tmp_path_factory.mktemp('decoys')
  for name in _names():
    text = _DECOY.format(marker=str(folder / 'ran'), name=name)
    _write(folder, name, text)
  return folder


def _run(folder, code, how='script', timeout=900, argv=()):
  """Runs code where Python would import from the folder first."""
  program = [sys.executable, '-W', 'ignore']
  code = textwrap.dedent(code)
  if how == 'script':
    (folder / 'use_it.py').write_text(code, 'utf-8')
    program += [str(folder / 'use_it.py')]
  elif how == '-c':
    program += ['-c', code]
  else:  # As a kernel does, whose folder is that of the notebook.
    program += ['-c', f"import sys; sys.path[0] = ''\n{code}"]
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  environment.pop('PYTHONPATH', None)
  done = subprocess.run(
    [*program, *argv],
    cwd=folder,
    env=environment,
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  marker = folder / 'ran'
  ran = marker.read_text('utf-8').split() if marker.exists() else []
  marker.unlink(missing_ok=True)
  assert not ran, ran
  return done


# Reads a record, and makes whatever records can name.
_MAKE_ALL = """
import sys
sys.dont_write_bytecode = True
import ftwax
import os
deeds = []

def hook(event, arguments):
  if event == 'import' and arguments[1]:
    deeds.append(arguments[1])
  elif event == 'exec':
    deeds.append(getattr(arguments[0], 'co_filename', ''))

agent = ftwax.load('capture_the_flag')
sys.addaudithook(hook)
agent = ftwax.load('capture_the_flag')
from ftwax import registry
from ftwax.environments import adapting, game_vectors, jax_adapters
from ftwax.records import rebuilding

made = []
kind = ftwax.ExperimentConfig.__dataclass_fields__['environment'].type
for home in registry._HOMES:
  try:
    registry.find(f'{home}.x')
  except ImportError as error:
    made.append(error)
names = ['{}:x'.format(name) for name in jax_adapters.LIBRARIES]
names += ['CartPole-v1', 'LunarLander-v3', 'GymV21Environment-v0', 'Ant-v5']
names += [
  {'__type__': 'any_game.game', 'library': library, 'name': name}
  for library, name in (
    ('jaxmarl', 'overcooked'), ('mpe2', 'simple_tag'), ('brax', 'ant')
  )
]
names += [{'__type__': 'pgx.game', 'name': 'kuhn_poker'}]
names += [{'__type__': 'atari.game', 'name': 'pong'}]
for plain in names:
  try:
    part = rebuilding.rebuild(plain, kind, 'environment')
    game = adapting.make_factory(part)(0)
    made.append(game)
    game.reset()
  except Exception as error:
    made.append(error)
print(len(made), [deed for deed in deeds if os.getcwd() in deed])
"""


def test_no_name_of_a_record_imports_what_lies_beside_a_script(decoys):
  done = _run(decoys, _MAKE_ALL)
  assert not done.returncode, done.stderr[-3000:]
  count, _, deeds = done.stdout.splitlines()[-1].partition(' ')
  assert int(count) > 14
  allowed = {str(decoys / 'use_it.py')}
  assert {*ast.literal_eval(deeds)} <= allowed


_COMMANDS = """
import sys
import ftwax
from ftwax.cli import commands

for argv in {argvs}:
  try:
    print(argv[0], commands.main(argv))
  except SystemExit as error:
    print(argv[0], error)
  except ImportError as error:
    print(argv[0], error)
"""


def _argvs(run, tmp_path):
  run = str(run)
  return {
    'evaluate': [['evaluate', run, '--num_episodes=2']],
    'film': [['film', run, '--num_episodes=1']],
    'record': [['record', run, '--games=1', f'--out={tmp_path / "games"}']],
    'report': [['report', run]],
    'export': [
      ['export', run, '--format=stablehlo', f'--out={tmp_path / "out"}']
    ],
    'exploit': [['exploit', run, '--steps=100']],
    'resume': [
      ['train', 'catch', '--run_dir', run, '--resume', '--runtime=device',
       '--max_num_actor_steps=4000'],
    ],
    'sweep': [
      ['sweep', 'catch', '--max_num_actor_steps=500', '--seeds=1',
       f'--run_dir={tmp_path / "sweep"}'],
    ],
    # Both end with the standard input, which is closed.
    'watch': [['watch', run, '--port=0', '--end_with_input']],
    'play': [['play', run, '--port=0', '--help']],
  }  # fmt: skip


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of catch, by which games of other libraries are named."""
  path = tmp_path_factory.mktemp('runs') / 'run'
  with pytest.raises(SystemExit) as end:
    commands.main(
      ['train', 'catch', '--runtime=device', '--max_num_actor_steps=2000',
       f'--run_dir={path}']
    )  # fmt: skip
  assert end.value.code == 0
  return path


_NAMED_BY_RECORDS = [
  None,
  {'__type__': 'any_game.game', 'library': 'jaxmarl', 'name': 'overcooked'},
  {'__type__': 'any_game.game', 'library': 'mpe2', 'name': 'simple_tag'},
  {'__type__': 'pgx.game', 'name': 'kuhn_poker'},
  {'__type__': 'atari.game', 'name': 'pong'},
  'CartPole-v1',
  'Ant-v5',
  *[f'{library}:x' for library in jax_adapters.LIBRARIES],
]


@pytest.mark.slow
@pytest.mark.parametrize('how', ['script', '-c', 'notebook'])
@pytest.mark.parametrize(
  'command',
  ['load', 'evaluate', 'film', 'record', 'report', 'watch', 'play', 'export',
   'exploit', 'resume', 'sweep'],
)  # fmt: skip
def test_no_command_imports_what_lies_beside(
  decoys, run, tmp_path, how, command
):
  for index, environment in enumerate(_NAMED_BY_RECORDS):
    named = tmp_path / str(index)
    subprocess.run(['cp', '-r', str(run), str(named)], check=True)
    if environment is not None:
      config = json.loads((named / 'config.json').read_text('utf-8'))
      config['environment'] = environment
      (named / 'config.json').write_text(json.dumps(config), 'utf-8')
    if command == 'load':
      code = f'import ftwax\nagent = ftwax.load({str(named)!r})\nprint(agent)'
    else:
      argvs = _argvs(named, tmp_path)[command]
      code = _COMMANDS.format(argvs=argvs)
    done = _run(decoys, code, how)
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]
    if command in ('sweep', 'exploit') and environment is None:
      break


def test_loading_needs_no_environment(run, tmp_path):
  named = tmp_path / 'jaxmarl'
  subprocess.run(['cp', '-r', str(run), str(named)], check=True)
  config = json.loads((named / 'config.json').read_text('utf-8'))
  config['environment'] = {
    '__type__': 'any_game.game', 'library': 'jaxmarl', 'name': 'overcooked'
  }  # fmt: skip
  (named / 'config.json').write_text(json.dumps(config), 'utf-8')
  (named / '__init__.py').write_text("open('ran', 'w')\n", 'utf-8')
  done = _run(
    tmp_path,
    'import ftwax\nprint(ftwax.load("jaxmarl"))\n'
    'import sys\nassert "jaxmarl" not in sys.modules',
  )
  assert 'LoadedAgent' in done.stdout, done.stderr


def test_each_field_takes_the_parts_of_its_kind():
  for home in registry._HOMES:
    try:
      registry.find(f'{home}.x')
    except ImportError:
      continue
  names = [
    name
    for name in registry.names()
    if registry.path_of(registry.find(name)).startswith('ftwax.')
  ]
  games = {*registry._ENVIRONMENT_HOMES}
  # The starts of the names that a field takes, by its own name.
  expected = {
    'agent': {'agent'},
    'checkpointing': {'checkpointing'},
    'config': {'atari'},
    'core': {'core'},
    'decay': {'schedule'},
    'environment': games,
    'evaluation': {'evaluation'},
    'exploration': {'exploration'},
    'explore': {'rule'},
    'heads': {'heads'},
    'image': {'torso'},
    'layer': {'core'},
    'level': {'core'},
    'loss': {'loss'},
    'make': {'vector', 'atari_vector'},
    'matchmake': {'rule'},
    'memory': {'core'},
    'optimizer': {'optimizer'},
    'population': {'rule'},
    'queue': {'replay'},
    'replay': {'replay'},
    'select': {'rule'},
    'stepping': {'stepping'},
    'target': {'target'},
    'torso': {'torso'},
    'value_core': {'core'},
  }
  tried = set()
  for owner in names:
    if owner == 'rule.uniform_player':  # Its spec is given by who calls it.
      continue
    for field, kind in registry.fields_of(registry.find(owner)).items():
      taken = {
        name.partition('.')[0]
        for name in names
        if rebuilding._fits(registry.find(name), rebuilding._choices(kind))
      }
      assert taken <= expected.get(field, set()), (owner, field, taken)
      tried |= {field} if taken else set()
  assert tried >= {*expected} - {'config', 'make'}


@pytest.mark.parametrize(
  ('field', 'part'),
  [
    ('agent.network', {'__type__': 'any_game.game', 'library': 'jaxmarl'}),
    ('agent.network', {'__type__': 'pgx.game', 'name': 'go_9x9'}),
    ('agent.core', {'__type__': 'agent.ppo'}),
    ('opponents', {'x': {'__type__': 'any_game.game', 'library': 'jaxmarl'}}),
    ('opponents', {'x': {'__type__': 'catch.game'}}),
    ('environment', {'__type__': 'loss.ppo'}),
  ],
)
def test_a_part_of_another_kind_is_refused(field, part):
  experiment = launch.find('catch', ['--runtime=device']).build()
  changes = part
  for name in reversed(field.split('.')):
    changes = {name: changes}
  with pytest.raises(ValueError, match=rf'{field}.*must be'):
    launch.change(experiment, changes)
