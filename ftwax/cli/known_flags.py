"""Names that flags of `ftwax train` may have, read from source without JAX.

A name that no option, field or hyperparameter of the library has is refused
within a fraction of a second. What passes is checked by `launch`, which knows
the fields of the experiment itself.
"""

import pathlib
import re
from collections.abc import Iterable, Sequence

from ftwax import suggestions
from ftwax.cli import flags, sources

_PACKAGE = pathlib.Path(__file__).parents[1]

# Rooms with options and fields, which experiments may combine.
_ROOMS = ('agents', 'cli', 'environments', 'experiments', 'losses', 'networks')
_MORE = ('population', 'records', 'replay', 'runtime')

# What an experiment usually has, from which a hint is chosen.
_USUAL = (
  'cli/launch.py',
  'runtime/experiment.py',
  'agents/actor_critic/actor_critic_config.py',
)
_ANY = 'any_environment'

_FIELD = re.compile(r'  (\w+): (bool\b)?')


def check(experiment: str, words: Sequence[str]) -> None:
  """Ends the program if a flag has a name that nothing in the library has.

  Args:
    experiment: name of an experiment or an environment, as typed.
    words: the words after it.

  Raises:
    SystemExit: with status 2, after a message.
  """
  if pathlib.Path(experiment.partition(':')[0]).suffix == '.py':
    return  # It may have options of its own.
  typed = [word for word in words if word.startswith('--')]
  names = {word: word[2:].partition('=')[0].replace('-', '_') for word in typed}
  if not names or 'help' in names.values():
    return
  rooms = [_PACKAGE / name for name in (*_ROOMS, *_MORE)]
  files = [path for room in rooms for path in room.rglob('*.py')]
  known = {'steps', 'verbosity', *_fields([*files, *_PACKAGE.glob('*.py')])}
  for name in names.values():
    if name not in known and name.removeprefix('no') not in known:
      usual = [_PACKAGE / file for file in _USUAL]
      usual.append(_find_page(experiment))
      usual.append(_PACKAGE / 'agents' / f'{_find_agent(names)}.py')
      hints = [f'--{one}' for one in (*_fields(usual), 'help')]
      meant = suggestions.suggest(f'--{name}', hints)
      flags.error(
        f'ftwax train {experiment}', f'there is no flag --{name}{meant}'
      )


def _find_page(experiment: str) -> pathlib.Path:
  page = sources.EXPERIMENTS / f'{experiment}.py'
  return page if page.is_file() else sources.EXPERIMENTS / f'{_ANY}.py'


def _find_agent(words: Iterable[str]) -> str:
  """Returns the agent that the words name, else PPO."""
  agents = [word.partition('=')[2] for word in words if '--agent=' in word]
  is_known = agents and (_PACKAGE / 'agents' / f'{agents[-1]}.py').is_file()
  return agents[-1] if is_known else 'ppo'


def _fields(files: Iterable[pathlib.Path]) -> dict[str, None]:
  """Returns the names of fields of classes, and how to say no to them."""
  found: dict[str, None] = {}
  for path in files:
    in_class = False
    for line in path.read_text('utf-8').splitlines():
      if line[:1].strip():
        in_class = line.startswith('class ') or (in_class and line[0] == ')')
      elif in_class and (match := _FIELD.match(line)):
        found[match[1]] = None
        if match[2]:
          found[f'no{match[1]}'] = None
  return found
