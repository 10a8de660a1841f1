"""What `sizes` counts, on small packages."""

import pathlib

import pytest
import sizes


@pytest.fixture
def package(tmp_path):
  def write(**sources):
    for name, source in sources.items():
      path = tmp_path / 'ftwax' / f'{name.replace("__", "/")}.py'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(source)
    return tmp_path

  return write


def test_circles_are_found_through_several_files(package):
  root = package(
    losses__a='from ftwax.losses import b\n',
    losses__b='def f():\n  import ftwax.losses.c\n',
    losses__c='from ftwax.losses import a\n',
    losses__d='from ftwax.losses import a\n',
  )
  numbers = sizes.measure(root)
  assert numbers['import circles'] == 1
  assert numbers['files in them'] == 3
  assert numbers['lines of the library'] == 5
  assert numbers['its statements'] == 5


def test_arrows_up_are_found_in_imports_and_strings(package):
  root = package(
    losses__a='from ftwax.agents import ppo\n',
    losses__b="name = 'ftwax.agents.ppo'\nother = 'ftwax.agents.none'\n",
    agents__ppo='from ftwax.losses import a\n',
  )
  assert sizes.measure(root)['imports of a room above'] == 2


def test_words_of_the_manual_are_counted(package):
  root = package(types='')
  (root / 'docs').mkdir()
  (root / 'docs' / 'page.md').write_text('three short words')
  assert sizes.measure(root)['words of the manual'] == 3


@pytest.mark.ci
def test_it_prints_today_beside_a_commit(capsys):
  if not (pathlib.Path(sizes.ROOT) / '.git').exists():
    pytest.skip('not a clone')
  sizes.main(['HEAD'])
  lines = capsys.readouterr().out.splitlines()
  assert 'at HEAD' in lines[0]
  assert len(lines) == 1 + len(sizes.measure(sizes.ROOT))
