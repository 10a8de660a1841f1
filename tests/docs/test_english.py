"""The manual is written in the field's words."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = [
  *(ROOT / f'{name}.md' for name in ('CONTRIBUTING', 'README', 'SECURITY')),
  *sorted((ROOT / 'docs').rglob('*.md')),
]

# Turns that read as if translated, and what to write instead.
TURNS = {
  r'tells?|told': '"prints", "reports", "shows" or "says"',
  r'those of': 'the noun again, or a genitive',
  r'whose': 'two sentences, or "with"',
  r'(is|are) due to': '"because", or the verb of the cause',
  r'which no test covers': '"untested"',
  r'from here on': '"then", or nothing',
  r'what (they|it) brings?': 'the noun: "gain", "effect"',
  r'so many': 'the number',
  r'of (her|his) own': '"your own", or nothing',
}

_CODE = re.compile(r'^```.*?^```$|`[^`\n]*`', re.DOTALL | re.MULTILINE)


def _find_turns(text):
  """Returns the turns in the prose of a document, with their remedies."""
  prose = ' '.join(_CODE.sub(' ', text).split())
  return [
    f'{match[0]!r} in {prose[max(0, match.start() - 40) : match.end() + 40]!r};'
    f' write {remedy}'
    for turn, remedy in TURNS.items()
    for match in re.finditer(rf'\b({turn})\b', prose, re.IGNORECASE)
  ]


@pytest.mark.parametrize(
  'document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_prose_has_no_turn_of_another_language(document):
  assert not _find_turns(document.read_text('utf-8'))


def test_a_turn_is_found_in_prose_alone():
  (found,) = _find_turns('A run\ntells more.\n\n```sh\necho told\n```\n`tell`')
  assert "'tells' in 'A run tells more." in found and '"prints"' in found
