"""What a record may name: a list whose parts do no harm, whatever they get."""

import importlib
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import typing

import pytest

import ftwax
from ftwax import registry
from ftwax.agents import ppo
from ftwax.agents.actor_critic import optimization, tasks
from ftwax.networks import cores, torsos

_PACKAGE = pathlib.Path(registry.__file__).parent

# Tries each part that is registered, in a folder of an attacker's.
_ATTACK = """
  import itertools, json, os, pathlib, sys
  import ftwax
  from ftwax import registry
  from ftwax.environments import adapting, game_vectors
  from ftwax.records import rebuilding

  for home in registry._HOMES:
    try:
      registry.find(f'{home}.x')
    except ImportError:  # Of an extra that is not here.
      pass

  strings = [
    'os:system', 'game', 'game:build', 'game:Evil-v0', 'game.py', './game',
    '/etc/passwd', '../x', 'ran', '', 'none', 'NaN', 'touch ran', 'my-game:E',
    'GymV21Environment-v0', 'exit()', '__import__("game")', '\\0',
  ]
  plain = [
    *strings, 0, -1, 3, 2.5, True, None, [], {}, [3, [4]], {'a': {'b': 3}},
    *[[string] for string in strings], *[{s: s} for s in strings],
    *[{'__type__': string} for string in strings],
    *[{'__type__': name} for name in registry.names()][::3],
    {'__type__': 'array[int32]', 'values': [1]},
  ]
  deeds = []
  harmful = {
    'os.system', 'os.exec', 'os.posix_spawn', 'os.fork', 'os.forkpty',
    'os.remove', 'os.rename', 'os.mkdir', 'os.rmdir', 'os.link', 'os.symlink',
    'os.truncate', 'os.chmod', 'os.kill', 'subprocess.Popen', 'socket.connect',
    'socket.bind', 'shutil.rmtree', 'shutil.copyfile', 'shutil.move',
  }

  def hook(event, arguments):
    if event == 'open':
      path, mode, flags = arguments
      if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and path != os.devnull:
        deeds.append((event, str(path)))
    elif event in harmful:
      deeds.append((event, str(arguments)))
    elif event == 'import' and arguments[0].startswith(('game', 'my-game')):
      deeds.append((event, arguments[0]))

  def use(made):
    if callable(made) or isinstance(made, str):
      game_vectors.read_spec(adapting.make_factory(made), 'game')

  def misuse(made):
    # As a field of another kind would.
    for arguments in (('game:Evil-v0',), ('game', 'ran'), ([], {}, 'x')):
      try:
        made(*arguments)
      except Exception:
        pass

  made, tried = [], 0
  sys.addaudithook(hook)
  for name in registry.names():
    fields = registry.fields_of(registry.find(name))
    misuse(registry.find(name))
    for field, value in [(None, None), *itertools.product(fields, plain)]:
      tried += 1
      record = {'__type__': name} | ({field: value} if field else {})
      try:
        made.append(rebuilding.rebuild(json.loads(json.dumps(record))))
        # A rule of a population or a loss fails on a seed.
        use(made[-1])
      except Exception as error:
        assert '\\n' not in str(error) or 'key' not in str(error)
  for string in strings:
    try:
      use(string)
    except Exception:
      pass
  assert tried > 5_000 and len(made) > 1_000, (tried, len(made))
  assert not deeds, sorted(set(deeds))
"""


@pytest.mark.ci
def test_no_part_does_harm_whatever_it_gets(tmp_path):
  for name in ('game', 'my-game'):
    (tmp_path / f'{name}.py').write_text("open('ran', 'w')\n", 'utf-8')
  environment = {
    **os.environ,
    'PYTHONPATH': os.pathsep.join([str(tmp_path), str(_PACKAGE.parent)]),
    'PYTHONDONTWRITEBYTECODE': '1',
    'JAX_PLATFORMS': 'cpu',
    'JAX_ENABLE_COMPILATION_CACHE': 'false',  # It would write.
  }
  done = subprocess.run(
    [sys.executable, '-c', textwrap.dedent(_ATTACK)],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    timeout=900,
  )
  assert not done.returncode, done.stderr[-3000:]
  assert sorted(path.name for path in tmp_path.iterdir()) == (
    ['game.py', 'my-game.py']
  )


def _import_homes():
  for home, module in registry._HOMES.items():
    try:
      importlib.import_module(module)
    except ImportError:
      continue
    yield home


def test_each_home_registers_its_parts_and_each_part_has_a_home():
  homes = {*_import_homes()}
  assert homes >= {'agent', 'core', 'rule', 'capture_the_flag', 'catch'}
  own = {
    name
    for name in registry.names()
    if registry.path_of(registry.find(name)).startswith('ftwax.')
  }
  # What an experiment in an installed library registers is found by its name.
  assert {name.partition('.')[0] for name in own} == homes


def test_the_fields_of_each_part_are_annotated():
  list(_import_homes())
  for name in registry.names():
    part = registry.find(name)
    fields = registry.fields_of(part)
    if name.partition('.')[0] not in ('rule', 'loss') or isinstance(part, type):
      untyped = [key for key, kind in fields.items() if kind is typing.Any]
      assert not untyped, name


@pytest.mark.parametrize('name', ['os:system', 'Upper', '', 'a b', 'a\n', 3])
def test_a_name_is_no_path(name):
  with pytest.raises(ValueError, match=r'name \(.*must consist of'):
    ftwax.register(name)
  assert registry.find(name) is None


def test_a_name_is_registered_once():
  @ftwax.register('test.mine')
  def mine(size: int = 3):
    return size

  assert registry.find('test.mine') is mine
  assert registry.name_of(mine) == 'test.mine'
  ftwax.register('test.mine')(mine)
  with pytest.raises(
    ValueError, match=r'name \(test.mine\) must be registered'
  ):
    ftwax.register('test.mine')(len)
  with pytest.raises(
    ValueError, match=r'name \(agent.ppo\) must be registered'
  ):
    ftwax.register('agent.ppo')(mine)


def test_the_page_for_attackers_names_what_is_there():
  root = _PACKAGE.parent
  text = (root / 'docs' / 'internals.md').read_text('utf-8')
  section = text.partition('## What a foreign folder can do')[2]
  section = section.partition('\n## ')[0]
  named = set(re.findall(r'`([\w/]+\.py)`', section))
  assert len(named) > 15
  for name in named:
    assert (root / 'tests' / name).exists() or (_PACKAGE / name).exists(), name


# What a name says beyond the class of its part.
_SAID = {
  'rpth_dnc': {'memory': cores.Memory()},
  **{name: {'image': name} for name in torsos.NAMED},
}


@pytest.mark.parametrize('home', [cores, optimization, tasks, torsos])
def test_a_name_is_its_part_with_all_defaults(home):
  assert home.NAMED
  for name, part in home.NAMED.items():
    assert part == type(part)(**_SAID.get(name, {})), name
    assert home.find(name) is part


def test_agents_take_a_name_or_its_part_alike():
  for name, part in (('dnc', cores.DNC()), ('lru', cores.LRU())):
    by_name = ppo.PPOConfig(core=name).priors
    assert by_name == ppo.PPOConfig(core=part).priors
    assert cores.find(name) == part
