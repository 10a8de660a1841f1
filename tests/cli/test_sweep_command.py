"""`ftwax sweep` turns its flags into cells."""

import pytest

from ftwax.cli import commands
from ftwax.networks import cores
from ftwax.runtime import sweeps


@pytest.fixture
def asked(monkeypatch):
  asked = []
  monkeypatch.setattr(sweeps, 'run', lambda *args: asked.append(args))
  return asked


def _sweep(*words):
  return commands.main(['sweep', 'catch', *words])


def test_values_are_those_of_the_fields(asked):
  grid = 'agent.learning_rate=1e-3,2', 'agent.core=lstm,gru'
  assert (
    _sweep('--grid', *grid, '--seed=5', '--seeds=2', '--objective=-metrics/gap')
    == 0
  )
  ((experiment, cells, seeds, run_dir, objective),) = asked
  assert objective == '-metrics/gap'
  assert cells == [
    {'agent.learning_rate': rate, 'agent.core': core}
    for rate in (1e-3, 2.0)
    for core in (cores.LSTM(), cores.GRU())
  ]
  assert list(seeds) == [5, 6] and run_dir is None
  assert experiment.environment.__module__ == 'ftwax.environments.catch'


def test_priors_are_drawn(asked):
  grid = 'agent.learning_rate=LogUniform(1e-5, 1e-1)', 'num_environments=8,16'
  assert _sweep('--grid', *grid, '--draws=3', '--num_environments=4') == 0
  cells = asked[0][1]
  assert [cell['num_environments'] for cell in cells] == 3 * [8] + 3 * [16]
  rates = [cell['agent.learning_rate'] for cell in cells]
  assert rates[:3] == rates[3:] and len(set(rates)) == 3


@pytest.mark.parametrize(
  ('word', 'text'),
  [
    ('--runtime=local', r'--runtime \(local\)'),
    ('--resume', '--resume'),
    ('--eval_every=10', r'--eval_every \(10\)'),
    ('--seeds=0', r'--seeds \(0\)'),
    ('--grid=agent.lerning_rate=1', 'learning_rate'),
  ],
)
def test_flags_that_do_not_fit_are_refused(asked, capsys, word, text):
  with pytest.raises(SystemExit, match=text):
    _sweep(word)
  assert not asked


def test_help_has_the_flags_of_both(capsys):
  with pytest.raises(SystemExit):
    _sweep('--help')
  printed = capsys.readouterr().out
  assert '--grid' in printed and '--agent=impala' in printed
