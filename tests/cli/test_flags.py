"""Command lines from dataclasses."""

import dataclasses

import pytest

from ftwax.cli import flags


@dataclasses.dataclass(frozen=True)
class _Lists:
  """Flags of lists."""

  players: tuple[str, ...] = flags.flag((), 'Players.')
  seeds: tuple[int, ...] = flags.flag((), 'Seeds.')
  match: tuple[tuple[str, ...], ...] = flags.flag((), 'Matches.')


@dataclasses.dataclass(frozen=True)
class _Options(_Lists):
  """Arguments, too."""

  runs: tuple[str, ...] = flags.argument('Directories.', default=())


def _parse(*argv):
  return flags.parse(_Options, argv, 'test', 'Tests.').options


@pytest.mark.parametrize(
  'argv',
  [
    ['--players', 'a', 'b'],
    ['--players=a,b'],
    ['--players=a', '--players=b'],
    ['--players', 'a,b'],
  ],
)
def test_a_list_is_words_or_has_commas(argv):
  assert _parse(*argv).players == ('a', 'b')


def test_lists_keep_their_types_and_groups():
  assert _parse('--seeds=1,2', '--seeds', '3').seeds == (1, 2, 3)
  matches = _parse('--match=0,a', '--match', '1', '2').match
  assert matches == (('0', 'a'), ('1', '2'))


def test_paths_and_changes_keep_their_commas():
  options = _parse('x,y', '--players=agent.tasks=["a","b"]')
  assert options.runs == ('x,y',)
  assert options.players == ('agent.tasks=["a","b"]',)


def test_a_word_behind_a_list_gets_a_suggestion(capsys):
  with pytest.raises(SystemExit):
    flags.parse(_Lists, ['--players=a', 'b'], 'test', 'Tests.')
  assert 'did you mean --players=a,b?' in capsys.readouterr().err
  with pytest.raises(SystemExit):
    flags.parse(_Lists, ['b', '--players=a'], 'test', 'Tests.')
  assert 'did you mean' not in capsys.readouterr().err


def test_unknown_flags_take_several_words():
  argv = ['--sizes', '3', '4', '--is_on', '--rate=.1', '--empty=']
  unknown = flags.parse(_Lists, argv, 'test', 'Tests.', keeps_unknown=True)
  assert unknown.unknown == {
    '--sizes': '3,4', '--is_on': 'true', '--rate': '.1', '--empty': '',
  }  # fmt: skip
  with pytest.raises(SystemExit):
    flags.parse(_Lists, [*argv, 'x'], 'test', 'Tests.', keeps_unknown=True)
