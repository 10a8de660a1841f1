"""Experiments with populations, by the command that a user types."""

import re

import experiment_commands as commands
import pytest

from ftwax.cli import launch, tasks
from ftwax.records import tournament_files
from ftwax.reporting import history


def test_games_of_other_libraries_have_settings_of_their_own():
  settings = tasks.find('jaxmarl:overcooked')
  assert settings.flags['max_num_actor_steps'] == 1_500_000
  assert settings.fields['agent.torso.entries'] == {'': 'mlp'}
  pytest.importorskip('mpe2', reason='the extra envs is not there')
  game = ['--set', 'agent.num_epochs=1']
  experiment = launch.find('mpe2:simple_spread', game).build()
  assert experiment.name == 'ppo_mpe2_simple_spread'
  assert experiment.population.num_members == 1
  config = experiment.agent
  assert (config.discount, config.batch_size, config.num_epochs) == (
    0.95,
    96,
    1,
  )


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['local', 'distributed'])
def test_the_main_job_runs_with_replay_servers(tmp_path, kind):
  run_dir = tmp_path / 'run'
  arguments = [
    'capture_the_flag.py',
    '--runtime=local',
    '--core=lstm',
    '--num_members=2',
    '--num_environments=4',
    '--games_per_pair=2',
    '--max_num_actor_steps=8000',  # One game on each seat takes 4,800.
  ]
  if kind == 'distributed':
    arguments += ['--runtime=distributed', '--num_actors=1']
  result = commands.run(arguments, run_dir)
  assert result.returncode == 0, result.stderr
  assert f'Report: {run_dir}/report.html' in result.stdout
  assert history.read(run_dir).games[-1] > 0


@pytest.mark.slow
def test_the_first_command_learns(tmp_path):
  """On six seeds scores were at least .96, and from .14 to .55."""
  result = commands.run(
    ['capture_the_flag.py', '--seed=6', '--games_per_pair=104'],
    tmp_path,
    timeout=840,
  )
  assert result.returncode == 0, result.stderr
  scores = tournament_files.member_scores(tournament_files.read(tmp_path))
  assert scores.pop('tactician') > 0.1
  assert list(scores) == ['random', 'wanderer', 'attacker']
  assert min(scores.values()) > 0.93


@pytest.mark.slow
def test_population_based_training_is_compared_with_random_search(tmp_path):
  result = commands.run(
    ['research/pbt_catch.py', '--seed=3', '--max_num_actor_steps=40000'],
    tmp_path,
  )
  assert result.returncode == 0, result.stderr
  rows = result.stdout.splitlines()[-3:]
  assert rows[0].split() == ['seed', 'best', 'median', 'mean', 'seconds']
  assert re.match(r'random search +3 +-?\d\.\d{3} ', rows[1])
  assert re.match(r'population +3 +-?\d\.\d{3} ', rows[2])
  assert (tmp_path / 'population_3' / 'report.html').exists()


def test_the_main_job_has_a_first_person_game():
  first, standard, paper = (
    launch.find('capture_the_flag', flags).build()
    for flags in (
      ['--game=first_person'],
      [],
      ['--game=first_person', '--agent=paper'],
    )
  )
  spec = first.environment_factory(0).spec
  assert spec.observations.name == 'rays'
  # The same game in all else: settings, rewards and actions.
  assert spec.actions == standard.environment_factory(0).spec.actions
  assert first.agent.replace(torso=standard.agent.torso) == standard.agent
  assert first.population == standard.population
  # A picture, as the paper's agent sees.
  assert paper.environment_factory(0).spec.observations.shape == (48, 72, 3)


def test_the_main_job_has_games_for_memories():
  games = {
    name: launch.find('capture_the_flag', flags).build()
    for name, flags in {
      'standard': [],
      'small_cue': ['--game=small_cue'],
      'paper': ['--game=cue', '--agent=paper'],
    }.items()
  }
  shapes = {
    name: experiment.environment_factory(0).spec.observations.shape
    for name, experiment in games.items()
  }
  assert shapes['small_cue'][0] == shapes['standard'][0] + 1  # The cue.
  assert shapes['paper'] == (21, 21, 3)
  assert games['paper'].steps_per_round == 600
  assert not games['small_cue'].population.exploits  # It has one member.


@pytest.mark.parametrize(
  ('flags', 'batch_size'),
  [
    ([], 64),
    (['--num_environments=2048'], 4096),
    (['--num_members=8'], 32),
    (['--game=small_cue'], 128),
  ],
)
def test_updates_of_the_main_job_take_rollouts_of_all_seats(flags, batch_size):
  experiment = launch.find('capture_the_flag', flags).build()
  assert experiment.agent.batch_size == batch_size
  assert experiment.agent.queue.max_size == 2 * batch_size
