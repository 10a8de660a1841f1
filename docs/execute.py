"""Executes tutorials and writes them, with their outputs, as notebooks.

    uv run --extra docs docs/execute.py              # all, some minutes
    uv run --extra docs docs/execute.py core loss

Fenced blocks are cells, also those of a shell, which would be executed: indent
commands that are only to be read.
"""

import pathlib
import re
import sys
import tempfile

import jupytext
import nbclient

TUTORIALS = pathlib.Path(__file__).parent / 'tutorials'
# The times of runs in the names of their directories would change each time.
_TIME = re.compile(r'\d{8}-\d{6}(?=-seed)')


def execute(page: pathlib.Path) -> None:
  """Writes the notebook of a page beside it."""
  notebook = jupytext.read(page)
  notebook.nbformat_minor = 4  # Later formats have random names of cells.
  notebook.metadata = {
    'kernelspec': {
      'name': 'python3',
      'display_name': 'Python 3',
      'language': 'python',
    }
  }
  for cell in notebook.cells:
    cell.pop('id', None)
  with tempfile.TemporaryDirectory() as directory:
    nbclient.NotebookClient(
      notebook,
      timeout=None,
      record_timing=False,
      coalesce_streams=True,
      resources={'metadata': {'path': directory}},
    ).execute()
  text = jupytext.writes(notebook, 'ipynb')
  page.with_suffix('.ipynb').write_text(_TIME.sub('20260101-120000', text))


if __name__ == '__main__':
  for name in sys.argv[1:] or sorted(
    path.stem for path in TUTORIALS.glob('*.md') if path.stem != 'index'
  ):
    execute(TUTORIALS / f'{name}.md')
