"""Commands on runs that have ended: evaluate, report."""

import json
import pathlib
import re
import shutil

import own_experiment
import pytest

import ftwax
from ftwax.agents import ppo
from ftwax.cli import commands, evaluate_command, launch, past_runs, sources
from ftwax.environments import game_vectors
from ftwax.inference import playable
from ftwax.networks import cores
from ftwax.records import config_files, loggers


def _builds(name):
  path = pathlib.Path(launch.__file__).parents[1] / 'experiments' / f'{name}.py'
  return 'def build(' in path.read_text('utf-8')


MY_FILE = own_experiment.make_text(
  'impala',
  "IMPALAConfig(core='feed_forward', batch_size=2, sequence_length=4)",
  'max_num_actor_steps=200, num_environments=2',
)


@pytest.fixture(scope='module', name='my_run')
def fixture_my_run(tmp_path_factory):
  """Returns a run, and the experiment that it is of."""
  folder = tmp_path_factory.mktemp('mine')
  path = folder / 'mine.py'
  path.write_text(MY_FILE, 'utf-8')
  run_dir = folder / 'run'
  with pytest.raises(SystemExit) as end:
    commands.main(
      ['train', f'{path}:build', '--runtime=device', f'--run_dir={run_dir}']
    )
  assert not end.value.code
  return str(run_dir), f'{path}:build'


def _write_run(directory, returns, **config):
  directory.mkdir(parents=True)
  config = {'name': 'catch', **config}
  (directory / 'config.json').write_text(json.dumps(config), 'utf-8')
  path = loggers.log_path(directory, 'train')
  path.parent.mkdir(parents=True, exist_ok=True)
  rows = [
    {
      'episode_return': value,
      'num_episodes': 100,
      'actor_steps': 1000 * (index + 1),
      'seconds': 2.0,
    }
    for index, value in enumerate(returns)
  ]
  path.write_text('\n'.join(map(json.dumps, rows)) + '\n', 'utf-8')
  return str(directory)


def test_several_runs_are_compared_by_a_table_and_a_page(tmp_path, capsys):
  run_dirs = [
    _write_run(tmp_path / f'{rate}{seed}', [0.0, value], seed=seed,
               agent={'rate': rate}, max_num_actor_steps=2000)
    for rate, values in ((1, (0.5, 0.6, 0.7)), (2, (0.25,)))
    for seed, value in enumerate(values)
  ]  # fmt: skip
  page = tmp_path / 'page.html'
  assert commands.main(['report', run_dirs[0], f'--page={page}']) == 0
  assert not page.exists()
  capsys.readouterr()
  assert commands.main(['report', *run_dirs, f'--page={page}']) == 0
  *_, _, first, second, last = capsys.readouterr().out.splitlines()
  # The interval of three seeds is their range.
  assert re.split('  +', first) == [
    'rate=1', '0.6 (0.5 to 0.7)', '3', '0.3 (0.25 to 0.35)', '2,000', '2',
    '0.5 0.6 0.7',
  ]  # fmt: skip
  assert re.split('  +', second) == [
    'rate=2', '0.25', '1', '0.125', '2,000', '2', '0.25',
  ]  # fmt: skip
  assert last == str(page)
  assert 'Returns in training' in page.read_text('utf-8')


def test_the_experiment_of_a_run_is_rebuilt(tmp_path):
  arguments = ['--agent=ppo', '--seed=3', '--runtime=device']
  experiment = launch.find('catch', arguments).build()
  plain = config_files.to_json(experiment)
  assert plain['environment'] == {'__type__': 'catch.game'}
  (tmp_path / 'config.json').write_text(json.dumps(plain), 'utf-8')
  again = past_runs.rebuild(str(tmp_path), None)
  assert again.seed == 3 and again.agent == experiment.agent
  assert config_files.to_json(again) == plain
  spec = game_vectors.read_spec(again.environment_factory, 'catch')
  assert spec.environment.observations.shape == (10, 5)


def test_no_record_names_a_folder_to_read(tmp_path):
  experiment = launch.find('catch', ['--agent=ppo', '--tasks=clone']).build()
  folders = {
    'demonstrations': str(tmp_path / 'games'),
    'init_from': str(tmp_path / 'other'),
  }
  plain = config_files.to_json(experiment.replace(**folders))
  assert folders.items() <= plain.items()
  (tmp_path / 'config.json').write_text(json.dumps(plain), 'utf-8')
  again = past_runs.rebuild(str(tmp_path), None)
  assert again.demonstrations is None and again.init_from is None
  assert again.agent == experiment.agent


@pytest.mark.parametrize(
  'name', [n for n in sources.experiments() if _builds(n)]
)
def test_every_experiment_is_rebuilt(tmp_path, name):
  if name == 'atari':
    pytest.importorskip('ale_py', reason='the extra envs is not there')
  for arguments in ([], ['--runtime=device']):
    experiment = launch.find(name, arguments).build()
    plain = config_files.to_json(experiment)
    (tmp_path / 'config.json').write_text(json.dumps(plain), 'utf-8')
    again = past_runs.rebuild(str(tmp_path), None)
    assert config_files.to_json(again) == plain


@pytest.mark.slow
@pytest.mark.slow
def test_a_run_in_first_person_is_loaded_played_and_filmed(
  tmp_path,
):
  run_dir = tmp_path / 'run'
  made = launch.find('capture_the_flag', ['--game=first_person']).build()
  ftwax.run(
    made.replace(
      agent=made.agent.replace(core=cores.GRU(8)),
      population=made.population.replace(num_members=1, exploits=False),
      num_environments=4,
      max_num_actor_steps=4_800,
    ),
    runtime='device',
    run_dir=run_dir,
  )
  agent = ftwax.load(run_dir)
  assert agent.game_spec.environment.observations.name == 'rays'
  # With its experiment, and by its specs alone.
  found = past_runs.find_game(str(run_dir))
  by_specs = playable.find(str(run_dir))
  for game in (found.game, by_specs.game):
    assert game.spec == agent.game_spec.environment
  path = tmp_path / 'a.gif'
  commands.main(
    ['film', str(run_dir), '--seat=1', '--steps=3', f'--out={path}']
  )
  assert path.exists()


def test_what_cannot_be_exploited_is_told(my_run):
  run_dir, experiment = my_run
  with pytest.raises(SystemExit, match=r'teams \(0,\) of the game must be two'):
    commands.main(['exploit', run_dir, '--experiment', experiment])
  with pytest.raises(SystemExit, match=r'--steps \(0\) must be at least 1'):
    commands.main(['exploit', run_dir, '--steps=0'])
  with pytest.raises(SystemExit, match=r'member \(9\) must be from 0 to'):
    commands.main(['exploit', 'capture_the_flag', '--member=9'])
  with pytest.raises(SystemExit, match=r'must be the game of the run'):
    commands.main(['exploit', 'capture_the_flag', '--experiment', experiment])
  with pytest.raises(SystemExit, match='there is no nothing; give the'):
    commands.main(['exploit', 'nothing'])


def test_numbers_of_an_evaluation_have_names():
  row = {
    'episode_return': 0.5, 'episode_return_std': 1.5, 'episode_length': 9.0,
    'num_episodes': 12, 'member_returns': [0.25, 0.75],
    'scores/random': 0.91, 'scores/tactician': 0.4,
    'member_scores': [[0.82, 0.4], [1.0, 0.4]], 'member_games': [[3, 3]] * 2,
    'elo': 101.5, 'member_elo': [90.4, 112.6],
  }  # fmt: skip
  first, second, _, head, *members = evaluate_command.describe(row).split('\n')
  assert first == (
    '12 episodes of 9 steps: mean return 0.5, standard deviation 1.5'
  )
  assert second == 'mean Elo above random: 101.5'
  assert re.split('  +', head.strip()) == [
    'return', 'Elo', 'score against random', 'score against tactician',
  ]  # fmt: skip
  assert [re.split('  +', line) for line in members] == [
    ['member 0', '0.25', '90', '0.82', '0.4'],
    ['member 1', '0.75', '113', '1', '0.4'],
  ]
  alone = {'cross_returns': [[1.0, 2.0], [3.0, 4.0]], 'self_play': 2.5}
  *_, head, one, two = evaluate_command.describe({**row, **alone}).split('\n')
  assert head.endswith('return beside member 0  return beside member 1')
  assert one.split()[-2:] == ['1', '2'] and two.split()[-2:] == ['3', '4']


@pytest.mark.slow
def test_a_run_is_evaluated(my_run, capsys):
  run_dir, experiment = my_run
  argv = ['evaluate', run_dir, '--experiment', experiment, '--episodes=3']
  assert commands.main([*argv, '--json']) == 0
  row = json.loads(capsys.readouterr().out)
  assert row['num_episodes'] >= 3 and -1.0 <= row['episode_return'] <= 1.0
  assert commands.main(argv) == 0
  text = capsys.readouterr().out
  assert re.match(r'\d+ episodes of 9 steps: mean return -?\d', text)
  film = f'{run_dir}/film.gif'
  argv = ['film', run_dir, '--experiment', experiment, '--out', film]
  assert commands.main([*argv, '--steps=5']) == 0
  assert pathlib.Path(film).read_bytes().startswith(b'GIF')
  assert commands.main(['report', run_dir]) == 0
  assert 'report.html' in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_began_in_python_is_evaluated(tmp_path, capsys):
  experiment = ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(core=cores.LSTM(8), batch_size=8, sequence_length=8),
    environment='CartPole-v1',
    max_num_actor_steps=200,
    num_environments=2,
    replay='functional',
  )
  run_dir = str(ftwax.run(experiment, run_dir=tmp_path / 'run').run_dir)
  capsys.readouterr()
  assert commands.main(['evaluate', run_dir, '--episodes=2', '--json']) == 0
  assert json.loads(capsys.readouterr().out)['num_episodes'] >= 2
  assert commands.main(['film', run_dir, '--steps=5']) == 0
  assert pathlib.Path(capsys.readouterr().out.strip()).exists()
  with pytest.raises(SystemExit, match='must be a game of teams, or an env'):
    commands.main(['play', run_dir])
  assert ftwax.load(run_dir).game_spec.teams == (0,)


@pytest.mark.slow
def test_games_of_a_run_are_recorded(my_run, capsys):
  run_dir, experiment = my_run
  assert past_runs.find_game(run_dir).name == 'catch'  # Told by its records.
  commands.main(['report', run_dir, '--match', '0', '--experiment', experiment])
  assert run_dir in capsys.readouterr().out
  (path,) = (pathlib.Path(run_dir) / 'games').iterdir()
  record = json.loads(path.read_text())
  assert record['game'] == 'mine' and len(record['states']) == 10
  assert [seat['name'] for seat in record['seats']] == ['member 0']
  report = (pathlib.Path(run_dir) / 'report.html').read_text('utf-8')
  assert 'ftwax.games.catch' in report
  with pytest.raises(SystemExit, match=r"match \(\['member 7'\]\) must name"):
    commands.main(['report', run_dir, '--match', '7'])


@pytest.mark.slow
def test_a_run_of_an_older_layout_is_refused(my_run, tmp_path):
  run_dir, experiment = my_run
  copy = tmp_path / 'old'
  shutil.copytree(run_dir, copy)
  versions = json.loads((copy / 'versions.json').read_text())
  (copy / 'versions.json').write_text(json.dumps({**versions, 'layout': 2}))
  for flags in ([], [f'--experiment={experiment}']):
    with pytest.raises(SystemExit, match=r'has layout 2, that of an older'):
      commands.main(['evaluate', str(copy), *flags])
