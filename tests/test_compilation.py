"""What is told while something takes time."""

import io

from ftwax import compilation


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_spinner_tells_what_is_compiled(monkeypatch):
  terminal = _Terminal()
  monkeypatch.setenv('TERM', 'xterm')
  monkeypatch.setattr('sys.stdout', terminal)
  with compilation.shown('a run: compiling'):
    pass
  assert 'a run: compiling' in terminal.getvalue()
  assert 'took' not in terminal.getvalue()


def test_elsewhere_a_line_tells_how_long_it_took(capsys):
  with compilation.shown('a run: compiling'):
    pass
  out = capsys.readouterr().out
  assert out.startswith('a run: compiling took ') and out.count('\n') == 1
