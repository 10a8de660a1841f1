"""The acme pair composed by hand learns CartPole, in acme's loop."""

import pathlib

import documented_code
import pytest

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'how_to' / 'acme_by_hand.md'


@pytest.mark.slow  # tests/docs/test_pages.py runs a shorter form.
def test_the_pair_balances_the_pole(tmp_path):
  code = '\n'.join(documented_code.read_blocks(PAGE))
  printed = documented_code.run(code, tmp_path, timeout_s=900)
  score, tables = printed.splitlines()
  assert float(score) > 300  # Random actions: about 22. The most: 500.
  assert tables == "['queue', 'replay']"


def test_the_pair_takes_few_lines():
  by_hand, *_ = documented_code.read_blocks(PAGE)
  lines = [line for line in by_hand.splitlines() if line.strip()]
  assert len([line for line in lines if not line.startswith('#')]) <= 37
