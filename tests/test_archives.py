"""The archives that people install: a source archive and its wheel."""

import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

import ftwax

ROOT = pathlib.Path(__file__).parents[1]
_LINKS = ('agents', 'experiments', 'networks')
_BUILD = 'from setuptools import build_meta; build_meta.build_{}({!r})'


def _build(kind, tree, folder):
  subprocess.run(
    [sys.executable, '-c', _BUILD.format(kind, str(folder))],
    cwd=tree,
    env={name: x for name, x in os.environ.items() if name != 'PYTHONPATH'},
    check=True,
    capture_output=True,
    timeout=120,
  )


@pytest.fixture(scope='module')
def archives(tmp_path_factory):
  """Builds both; returns the unpacked source and the wheel."""
  pytest.importorskip('setuptools', reason='the extra dev is not there')
  folder = tmp_path_factory.mktemp('archives')
  # What is beside the sources in a folder that was worked in stays there.
  sources = [ROOT / name for name in ('ftwax', 'tests', 'docs', 'benchmarks')]
  tree = folder / 'tree'
  tree.mkdir()
  for source in sources:
    ignored = shutil.ignore_patterns('__pycache__')
    shutil.copytree(source, tree / source.name, ignore=ignored)
  for source in ROOT.iterdir():
    if source.is_file() and not source.is_symlink():
      shutil.copy(source, tree)
  for name in _LINKS:
    (tree / name).symlink_to(pathlib.Path('ftwax', name))
  _build('sdist', tree, folder)
  (sdist,) = folder.glob('*.tar.gz')
  with tarfile.open(sdist) as archive:
    archive.extractall(folder, filter='data')
  unpacked = folder / sdist.name.removesuffix('.tar.gz')
  _build('wheel', unpacked, folder)
  (wheel,) = folder.glob('*.whl')
  return unpacked, wheel


def _files(folder, pattern):
  return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


def test_the_source_archive_has_all_that_a_clone_has(archives):
  unpacked, _ = archives
  for name in _LINKS:
    assert (unpacked / name).is_symlink()
    assert (unpacked / name / '__init__.py').exists()
  for folder in ('tests', 'docs', 'benchmarks'):
    expected = _files(ROOT / folder, '*.py') | _files(ROOT / folder, '*.md')
    found = _files(unpacked / folder, '*.py')
    assert found | _files(unpacked / folder, '*.md') == expected
  assert {path.name for path in unpacked.iterdir()} >= {
    'CHANGELOG.md',
    'CITATION.cff',
    'LICENSE',
    'README.md',
    'constraints-acme.txt',
    'constraints.txt',
    'mkdocs.yml',
    'pyproject.toml',
  }


def test_the_wheel_has_the_package_alone(archives):
  _, wheel = archives
  names = zipfile.ZipFile(wheel).namelist()
  assert {name.partition('/')[0] for name in names} == {
    'ftwax',
    f'ftwax-{ftwax.__version__}.dist-info',
  }
  package = {name.removeprefix('ftwax/') for name in names}
  assert package >= _files(ROOT / 'ftwax', '*.py') | {'py.typed'}
  for folder in ('trained', 'web/static'):
    assert package >= {
      f'{folder}/{name}'
      for name in _files(ROOT / 'ftwax' / folder, '*')
      if (ROOT / 'ftwax' / folder / name).is_file()
    }


def test_the_wheel_says_whose_it_is_and_where_its_pages_are(archives):
  _, wheel = archives
  path = f'ftwax-{ftwax.__version__}.dist-info/METADATA'
  with zipfile.ZipFile(wheel) as archive:
    found = email.message_from_bytes(archive.read(path))
  assert found['License-Expression'] == 'Apache-2.0'
  assert found['Author'] and 'reinforcement learning' in found['Keywords']
  urls = dict(text.split(', ') for text in found.get_all('Project-URL'))
  assert set(urls) == {'Changelog', 'Documentation', 'Issues', 'Source'}
  # An index has no file beside the page.
  page = found.get_payload()
  links = re.findall(r'(?:src|srcset)="(.*?)"|\]\((.*?)\)', page)
  targets = [one or other for one, other in links]
  assert len(targets) > 10
  for target in targets:
    assert target.startswith(('https://', '#')), target


def test_the_wheel_works_where_it_is_installed(archives, tmp_path):
  _, wheel = archives
  subprocess.run(
    [sys.executable, '-m', 'venv', '--without-pip', str(tmp_path / 'venv')],
    check=True,
    timeout=60,
  )
  python = tmp_path / 'venv' / 'bin' / 'python'
  (site,) = (tmp_path / 'venv' / 'lib').glob('python*/site-packages')
  zipfile.ZipFile(wheel).extractall(site)
  # Dependencies are those of this environment, and nothing else of it.
  (site / 'dependencies.pth').write_text(sysconfig.get_path('purelib'))
  code = (
    'import importlib.metadata, ftwax\n'
    'from ftwax import agents, networks\n'
    "(made,) = importlib.metadata.distribution('ftwax').entry_points\n"
    "assert made.load()(['list']) == 0\n"
    'print(ftwax.__file__)'
  )
  ended = subprocess.run(
    [str(python), '-c', code],
    cwd=tmp_path,
    env={name: x for name, x in os.environ.items() if name != 'PYTHONPATH'},
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert ended.returncode == 0, ended.stderr
  assert ended.stdout.splitlines()[-1].startswith(str(site))
  for name in ('capture_the_flag', 'any_environment', 'impala', 'catch'):
    assert f'  {name} ' in ended.stdout
