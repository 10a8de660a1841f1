"""The files between an experiment and its gradient, as the docs list them."""

import pathlib
import re
import runpy
import sys

import pytest

import ftwax
from ftwax.agents.actor_critic import joint_loss

_ROOT = pathlib.Path(ftwax.__file__).parent
_PAGE = _ROOT.parent / 'docs' / 'internals.md'


class _ReachedError(Exception):
  """Ends a run at its first gradient."""


def _documented(runtime):
  page = _PAGE.read_text('utf-8').partition('## The path of an experiment')[2]
  page = page.partition('## ')[0]
  path = re.findall(r'^\d\. `(?:ftwax/)?([^`]+)`', page, re.MULTILINE)
  if runtime == 'local':
    fourth, fifth = re.findall(r'`ftwax/([^`]+)` (?:replaces|the)', page)
    path[3:5] = fourth, fifth
  return path


@pytest.mark.parametrize(
  'runtime', [pytest.param('local', marks=pytest.mark.ci), 'device']
)
def test_the_docs_list_the_files_before_the_gradient(
  runtime, tmp_path, monkeypatch
):
  files = []

  def stop(*args):
    frame = sys._getframe(1)
    while frame is not None:
      path = pathlib.Path(frame.f_code.co_filename)
      if path.is_relative_to(_ROOT):
        files.insert(0, path.relative_to(_ROOT).as_posix())
      frame = frame.f_back
    raise _ReachedError

  monkeypatch.setattr(joint_loss, 'joint_loss', stop)
  arguments = ['--max_num_actor_steps=1000', f'--run_dir={tmp_path / "run"}']
  monkeypatch.setattr(
    'sys.argv', ['catch.py', f'--runtime={runtime}', *arguments]
  )
  with pytest.raises(_ReachedError):
    runpy.run_path(str(_ROOT / 'experiments/catch.py'), run_name='__main__')
  assert list(dict.fromkeys(files)) == _documented(runtime)
