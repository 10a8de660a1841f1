"""`ftwax train`: flags, names, files of a user's own, and configurations."""

import json
import re
import sys

import jax
import own_experiment
import pytest

from ftwax.agents import impala, ppo
from ftwax.agents.actor_critic import tasks as tasks_lib
from ftwax.cli import commands, launch, past_runs, sources, tasks
from ftwax.environments import process_games
from ftwax.networks import cores
from ftwax.records import config_files
from ftwax.runtime import prepare, runs

MY_FILE = own_experiment.make_text(
  'ppo',
  "PPOConfig(batch_size=16, core='lstm')",
  'max_num_actor_steps=5000, seed=3',
)


@pytest.fixture(name='my_file')
def fixture_my_file(tmp_path, monkeypatch):
  path = tmp_path / 'my_file.py'
  path.write_text(MY_FILE, 'utf-8')
  monkeypatch.delitem(sys.modules, 'my_file', raising=False)
  return f'{path}:build'


def _train(capsys, *argv):
  """Returns the exit status, standard output and the message."""
  with pytest.raises(SystemExit) as end:
    commands.main(['train', *argv])
  captured = capsys.readouterr()
  code = end.value.code
  if isinstance(code, str):
    return 1, captured.out, code
  return code or 0, captured.out, captured.err


@pytest.mark.parametrize('name', sources.experiments())
def test_every_experiment_has_a_help_of_one_screen(capsys, name):
  if name == 'atari':
    pytest.importorskip('ale_py', reason='the extra envs is not there')
  status, text, _ = _train(capsys, name, '--help')
  lines = text.splitlines()
  assert status == 0
  assert re.fullmatch(rf'usage: ftwax train {name} (RUN )?\[flags\]', lines[0])
  assert lines[2].endswith('.')
  assert len(lines) <= 48 and max(map(len, lines)) <= 80
  assert 'chex' not in text and 'helpfull' not in text
  for flag in ('seed', 'runtime', 'resume', 'set', 'config'):
    assert f'  --{flag}' in text


COMMON = ('--agent=ppo', '--core=gru', '--num_members=1', '--steps=70')


@pytest.mark.parametrize('task', tasks.TASKS)
def test_every_task_takes_the_same_flags_and_has_its_settings(task):
  library = task.partition(':')[0] if ':' in task else 'gymnasium'
  if task == 'Hopper-v5':
    library = 'mujoco'
  pytest.importorskip(library.replace('playground', 'mujoco_playground'))
  settings = tasks.find(task, is_continuous=task == 'Hopper-v5')
  options = launch.find(task, ['--seed=3']).options
  assert options.seed == 3
  for name, value in settings.flags.items():
    assert getattr(options, name) == value
  found = launch.find(task, COMMON)
  assert found.options.max_num_actor_steps == 70
  agent = found.build().agent
  assert agent.core == cores.GRU() and agent.skip_connection
  own = launch.find(task).build().agent
  for path, value in settings.fields.items():
    name = path.removeprefix('agent.')
    if name in ('discount', 'gae_lambda', 'num_epochs', 'sequence_length'):
      assert getattr(own, name) == value


def test_settings_of_vector_actions_go_by_the_kind_of_the_space():
  agent = launch.find('MountainCarContinuous-v0').build().agent
  assert agent == ppo.PPOConfig.continuous()
  pendulum = launch.find('Pendulum-v1').build()
  assert pendulum.agent == ppo.PPOConfig.continuous(discount=0.9)
  # Of any version.
  swimmer = tasks.find('Swimmer-v4', is_continuous=True)
  assert swimmer.fields['agent.discount'] == 0.9999
  impala_s = launch.find('Pendulum-v1', ['--agent=impala']).build().agent
  assert impala_s == impala.IMPALAConfig()
  assert not launch.find('MountainCar-v0').build().agent.separate_value
  with pytest.raises(ValueError, match=r'did you mean Pendulum-v1\?'):
    launch.find('Pendulm-v1')


def test_settings_are_for_ppo_alone():
  agent = launch.find('CartPole-v1', ['--agent=impala']).build().agent
  assert agent == impala.IMPALAConfig()


def test_a_task_shows_its_settings(capsys):
  _, text, _ = _train(capsys, 'CartPole-v1', '--help')
  assert text.startswith(
    'usage: ftwax train CartPole-v1 [flags]\n\nTrains in CartPole-v1.\n\n'
    'Settings that suit CartPole-v1:\n  --max_num_actor_steps=500000,'
  )
  assert '  --max_num_actor_steps=500000' in text
  assert "agent.decay.names=['learning_rate', 'clip_epsilon']" in text
  _, text, _ = _train(capsys, 'MountainCar-v0', '--help')
  assert 'Settings' not in text
  _, text, _ = _train(capsys, 'MountainCarContinuous-v0', '--help')
  assert '  PPOConfig.continuous(), --num_environments=16\n' in text


@pytest.mark.parametrize(
  ('argv', 'line'),
  [
    (['--learning-rate', '3e-4'], 'learning_rate = 0.0003'),
    (['--learning_rate=3e-4'], 'learning_rate = 0.0003'),
    (['--hidden-size=16'], 'hidden_size = 16'),
    (['--hidden_sizes=16,8'], 'hidden_sizes = [16, 8]'),
    (['--loggers=wandb'], 'loggers = ["wandb"]'),
    (['--nonormalize_advantages'], 'normalize_advantages = false'),
    (['--normalize-returns'], 'normalize_returns = true'),
    (['--max_to_keep', '7'], 'max_to_keep = 7'),
    (['--tasks=value_replay', '--cost=0.3'], '"cost" = 0.3'),
  ],
)
def test_every_field_is_a_flag_by_its_last_name(capsys, argv, line):
  status, text, error = _train(capsys, 'catch', *argv, '--print_config')
  assert status == 0, error
  assert line in text


def test_flags_of_fields_come_after_the_settings_of_a_task(capsys):
  arguments = ['CartPole-v1', '--discount=0.5', '--batch_size=64']
  _, text, _ = _train(capsys, *arguments, '--print_config')
  assert 'discount = 0.5\n' in text and 'batch_size = 64\n' in text


@pytest.mark.parametrize('name', sources.experiments())
def test_help_shows_defaults_that_other_flags_choose(capsys, name):
  if name == 'atari':
    pytest.importorskip('ale_py', reason='the extra envs is not there')
  _, text, _ = _train(capsys, name, '--help')
  assert '  --seed=0' in text
  if name == 'capture_the_flag':
    _, text, _ = _train(capsys, name, '--long', '--help')
    assert '  --num_members=8' in text


def test_any_environment_is_trained_in(tmp_path, monkeypatch):
  options = launch.find('MountainCar-v0', ['--core=gru', '--steps=70']).options
  assert options.max_num_actor_steps == 70
  experiment = launch.find('MountainCar-v0', ['--core=gru']).build()
  assert experiment.name == 'ppo_MountainCar-v0'
  assert experiment.agent.core == cores.GRU()
  (tmp_path / 'their_env.py').write_text(
    'import gymnasium\n\n\nclass Mine(gymnasium.Wrapper):\n'
    '  def __init__(self):\n'
    "    super().__init__(gymnasium.make('CartPole-v1'))\n\n\n"
    "def make():\n  return gymnasium.make('Acrobot-v1')\n\n\n"
    "def make_seeded(seed):\n  return gymnasium.make('Acrobot-v1')\n"
  )
  monkeypatch.chdir(tmp_path)
  monkeypatch.delitem(sys.modules, 'their_env', raising=False)
  for source, size in {
    'their_env.py:Mine': 4,
    'their_env.py:make': 6,
    'their_env:make': 6,
    'their_env.py:make_seeded': 6,
  }.items():
    experiment = launch.find(source, ['--agent=a2c']).build()
    spec = prepare.prepare(experiment).spec.environment
    assert spec.observations.shape == (size,), source
    assert experiment.agent.name == 'a2c'


@pytest.mark.parametrize(
  ('argv', 'status', 'message'),
  [
    (['ctch'], 1, r"'ctch'.*did you mean catch\?"),
    (['catch', '--sed=1'], 2, r'no flag --sed; did you mean --seed\?'),
    (['catch', '--lr=1'], 2, r'flag --lr; did you mean --learning_rate\?'),
    (['catch', '--ent-coef=1'], 2, r'did you mean --entropy_cost\?'),
    (['catch', '--track'], 2, r'did you mean --loggers=wandb\?'),
    (['catch', '--env=x'], 2, r'did you mean ftwax train ENVIRONMENT\?'),
    (['catch', '--policy_kwargs=x'], 2, r'mean --hidden_sizes=.* --core=lstm'),
    (['MountainCar-v0', '--algo=ppo'], 2, r'did you mean --agent\?'),
    (
      ['catch', 'agent.learning_rate=1e-3'],
      2,
      r'must be none; did you mean --set agent.learning_rate=1e-3\?',
    ),
    (
      ['catch', '--tasks=pixel_control,value_replay', '--cost=1'],
      2,
      r'--cost names 2 fields; choose --set agent.tasks.pixel_control.cost=1'
      r' or --set agent.tasks.value_replay.cost=1\.',
    ),
    (['catch', '--num_envs=1'], 2, r'did you mean --num_environments\?'),
    (['MountanCar-v0'], 1, r'did you mean MountainCar-v0\?'),
    (
      ['CartPole-v1', '--team_critic'],
      1,
      r"CartPole-v1\) must tell a critic more .* entry 'privileged_state', or",
    ),
    (
      ['CartPole-v1', '--team-critic', '--agent=impala'],
      1,
      r'agent \(impala\) must be ppo with --team_critic; leave one',
    ),
    (['no_such_module:make'], 1, 'must be a name listed .* MODULE:NAME'),
    (
      ['catch', '--runtime=foo'],
      2,
      r"'foo' \(choose from '?auto'?, '?local'?, '?device'?, '?dist",
    ),
    (
      ['catch', 'more'],
      2,
      r"arguments besides flags \(\['more'\]\) must be none",
    ),
    (['ftw_catch', '--noauxilary'], 2, r'did you mean --noauxiliary\?'),
    (['nothing.py:build'], 1, r'there is no nothing.py'),
    (['catch', '--set=agent.batch_sise=2'], 1, r'mean agent.batch_size\?'),
    (['catch', '--set=learning_rate=2'], 1, r'agent.learning_rate\?'),
    (['catch', '--set=agent.lr=2'], 1, r'mean agent.learning_rate\?'),
    (['catch', '--set=agent.batch_size=x'], 1, r"\('x'\) must be int"),
    (['catch', '--set=agent.batch_size=0'], 1, r'\(0\) must be at least 1'),
    (['catch', '--set=seed'], 1, r'must be KEY=VALUE'),
    (['catch', '--config=none.toml'], 1, r'none.toml\) must be a TOML file'),
  ],
)
def test_a_wrong_value_ends_in_one_message(capsys, argv, status, message):
  ended, _, error = _train(capsys, *argv)
  assert ended == status
  assert re.search(message, error), error


@pytest.mark.parametrize(
  ('task', 'module'),
  [('jaxmarl:smax_3m', 'jaxmarl'), ('mpe2:simple_tag', 'mpe2.simple_tag_v3')],
)
def test_a_library_that_is_not_installed_is_named(
  capsys, monkeypatch, task, module
):
  monkeypatch.setitem(sys.modules, module, None)
  ended, _, error = _train(capsys, task)
  assert ended == 1
  library = task.partition(':')[0]
  assert re.search(f'{library} must be installed .*; run ', error), error


def test_a_long_run_has_wide_internal_rewards(capsys):
  """Only events that change the score have a sign."""
  _, short, _ = _train(capsys, 'capture_the_flag', '--print_config')
  _, text, _ = _train(capsys, 'capture_the_flag', '--long', '--print_config')
  assert text.count('Uniform(low=-1.0, high=1.0,') == 10 > short.count('low=-1')
  for line in (
    'max_num_actor_steps = 160000000', 'num_environments = 64',
    'num_members = 8', 'burn_in_games = 2000', 'crossover_probability = 0.3',
  ):  # fmt: skip
    assert line in text.splitlines()
    assert line not in short.splitlines()
  _, text, _ = _train(
    capsys, 'capture_the_flag', '--long', '--max_num_actor_steps=5000',
    '--print_config',
  )  # fmt: skip
  assert 'max_num_actor_steps = 5000' in text


def test_sizes_for_a_gpu(capsys):
  _, text, _ = _train(
    capsys, 'capture_the_flag', '--gpu', '--agent=paper', '--seed=3',
    '--num_environments=512', '--print_config',
  )  # fmt: skip
  for line in (
    'max_num_actor_steps = 85000000', 'num_environments = 512',
    'num_members = 4', 'burn_in_games = 6000',
  ):  # fmt: skip
    assert line in text.splitlines()


def test_flags_change_what_a_users_function_builds(capsys, my_file):
  _, text, _ = _train(
    capsys, my_file, '--num_environments=2', '--set=agent.core.hidden_size=4',
    '--print_config',
  )  # fmt: skip
  for line in (
    'seed = 3', 'num_environments = 2', 'max_num_actor_steps = 5000',
    'hidden_size = 4', 'batch_size = 16',
  ):  # fmt: skip
    assert line in text.splitlines()
  status, text, _ = _train(capsys, my_file, '--help')
  assert status == 0 and "An experiment of one's own." in text
  status, _, error = _train(capsys, my_file.replace(':build', ':bild'))
  assert status == 1 and 'must name a function' in error


def test_a_config_is_printed_and_given_back(capsys, tmp_path):
  changed = [
    '--set=agent.batch_size=8',
    '--set=agent.heads.noise=factorised',
    '--set=agent.torso.hidden_sizes=[32, 16]',
    '--set=agent.learning_rate=LogUniform(1e-4, 1e-2)',
    '--set=agent.discount=0.9',
    '--set=population.num_members=2',
    '--set=checkpointing.max_to_keep=7',
    '--set=num_environments=4',
  ]
  _, text, _ = _train(capsys, 'catch', '--print_config', *changed)
  _, default, _ = _train(capsys, 'catch', '--print_config')
  assert len(set(text.splitlines()) - set(default.splitlines())) == len(changed)
  path = tmp_path / 'config.toml'
  path.write_text(text, 'utf-8')
  _, again, _ = _train(capsys, 'catch', '--print_config', f'--config={path}')
  assert again == text
  # What is typed goes before the file.
  _, typed, _ = _train(
    capsys, 'catch', '--print_config', f'--config={path}', '--seed=9',
    '--set=agent.batch_size=2',
  )  # fmt: skip
  assert 'seed = 9\n' in typed and 'batch_size = 2\n' in typed


@pytest.mark.parametrize('name', ['capture_the_flag', 'CartPole-v1'])
def test_a_flag_for_the_population_goes_before_the_file(capsys, tmp_path, name):
  path = tmp_path / 'config.toml'
  path.write_text('population.num_members = 4\n', 'utf-8')

  def size(*argv):
    _, text, _ = _train(capsys, name, '--print_config', *argv)
    return int(re.search('num_members = (.*)', text)[1])

  config = f'--config={path}'
  assert size(config) == 4
  assert size(config, '--num_members=8') == 8
  assert size(config, '--set=population.num_members=2', '--num_members=8') == 2


@pytest.mark.parametrize(
  ('field', 'factor'),
  [
    ('agent.sequence_length=64', 2.0),
    ('max_num_actor_steps=26_000_000', 2.0),
    ('num_environments=64', 0.5),
    ('population.num_members=8', 0.5),
  ],
)
def test_what_decays_follows_sizes_that_are_set(capsys, field, factor):
  def steps(*argv):
    _, text, _ = _train(capsys, 'capture_the_flag', '--print_config', *argv)
    decay = text.partition('[agent.decay]')[2]
    return float(re.search('steps = (.*)', decay)[1])

  assert steps(f'--set={field}') == pytest.approx(factor * steps())
  assert steps(f'--set={field}', '--set=agent.decay.steps=77') == 77.0


@pytest.mark.parametrize(
  'argv',
  [
    ['--set', 'environment.width=17', 'environment.team_size=1'],
    ['--width=17', '--team-size=1'],
  ],
)
def test_rules_of_the_game_are_flags(tmp_path, argv):
  made = launch.find('capture_the_flag', argv).build()
  for factory in (made.environment_factory, made.evaluation_factory):
    game = factory(0)
    assert game.teams == (0, 1)
    map_ = game.reset(jax.random.PRNGKey(0))[0].map
    assert map_.tiles.shape == (11, 17)
  plain = config_files.to_json(made)
  assert plain['environment']['rules'] == {'width': 17, 'team_size': 1}
  (tmp_path / 'config.json').write_text(json.dumps(plain), 'utf-8')
  again = past_runs.rebuild(str(tmp_path), None)
  assert config_files.to_json(again) == plain
  # Runs with the usual rules are recorded as before.
  usual = launch.find('capture_the_flag').build()
  assert 'rules' not in config_files.to_json(usual)['environment']


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--width=16', r'width \(16\) .* must be odd'),
    ('--set=environment.widht=17', r'did you mean environment\.width\?'),
    ('--games_per_pair=1', r'games_per_pair \(1\) must be .* multiple of 2'),
    ('--width=wide', r"environment\.width \('wide'\) must be int"),
  ],
)
def test_wrong_rules_are_told(capsys, flag, message):
  status, _, error = _train(capsys, 'capture_the_flag', flag, '--print_config')
  assert status == 1 and re.search(message, error)


def test_what_an_experiment_computes_follows_the_changes(capsys):
  _, text, _ = _train(
    capsys, 'CartPole-v1', '--print_config', '--set=agent.batch_size=16',
    '--set=max_num_actor_steps=51200',
  )  # fmt: skip
  assert 'steps = 100.0\n' in text


def test_tasks_and_networks_follow_the_changes():
  arguments = ['--set=agent.tasks=["value_replay"]', '--set=agent.core=gru']
  experiment = launch.find('catch', arguments).build()
  assert experiment.agent.core == cores.GRU()
  assert experiment.agent.tasks == (tasks_lib.ValueReplay(),)
  sized = ['--set=agent.core=gru', '--set=agent.core.hidden_size=32']
  for arguments in (sized, sized[::-1]):
    assert launch.find('catch', arguments).build().agent.core == cores.GRU(32)
  change = config_files.parse('agent.tasks.value_replay.cost=0.3')
  changed = launch.change(experiment, change)
  assert changed.agent.tasks == (tasks_lib.ValueReplay(cost=0.3),)
  by_flag = ['--tasks=value_replay', '--set=agent.tasks.value_replay.cost=0.3']
  for arguments in (by_flag, by_flag[::-1], [*by_flag, '--discount=0.5']):
    agent = launch.find('catch', arguments).build().agent
    assert agent.tasks == (tasks_lib.ValueReplay(cost=0.3),)
  both = ['--tasks', 'value_replay', 'clone', '--discount=.5']
  agent = (
    launch.find('catch', [*both, '--normalize_returns=True']).build().agent
  )
  assert agent.tasks == (tasks_lib.ValueReplay(), tasks_lib.Clone())
  assert (agent.discount, agent.normalize_returns) == (0.5, True)
  with pytest.raises(ValueError, match=r"replay is not among \['value_replay"):
    launch.change(experiment, config_files.parse('agent.tasks.replay.cost=1'))
  assert experiment.seed == 0


@pytest.mark.slow
def test_a_users_function_runs(capsys, my_file, tmp_path):
  run_dir = tmp_path / 'run'
  status, text, error = _train(
    capsys, my_file, '--runtime=device', '--max_num_actor_steps=600',
    '--num_environments=2', '--set=agent.batch_size=2', f'--run_dir={run_dir}',
    '--set=agent.num_minibatches=1', '--set=agent.num_epochs=1',
  )  # fmt: skip
  assert status == 0, error
  assert 'mean return' in text
  assert '"batch_size": 2,' in (run_dir / 'config.json').read_text('utf-8')


@pytest.mark.parametrize(
  'kind', ['functional.FunctionalEnvironment', "'Imported'"]
)
def test_an_environment_may_say_what_it_is(tmp_path, kind):
  path = tmp_path / f'annotated_{len(kind)}.py'
  path.write_text(
    'from ftwax.environments import functional, memory_chain\n\n'
    f'def make() -> {kind}:\n  return memory_chain.make(15)\n'
  )
  experiment = launch.find(f'{path}:make', []).build()
  assert experiment.environment_factory(0).spec.observations.shape == (1, 3)


def test_processes_leave_the_rest_of_own_stepping(tmp_path):
  text = own_experiment.make_text(
    'ppo',
    'PPOConfig()',
    'max_num_actor_steps=100,'
    ' stepping=__import__("ftwax").environments.Stepping(timeout_s=5.0)',
  )
  path = tmp_path / 'with_stepping.py'
  path.write_text(text)
  found = launch.find(f'{path}:build', ['--environment_processes=2'])
  assert found.build().stepping == process_games.Stepping(2, 5.0)
  assert launch.find(f'{path}:build', []).build().stepping == (
    process_games.Stepping(0, 5.0)
  )


class _BegunError(Exception):
  """All checks are passed."""


@pytest.mark.parametrize(
  ('flags', 'period'),
  [
    (['--eval_every=50', '--eval_unit=episodes'], '50 episodes'),
    (['--eval_every=0'], None),
  ],
)
def test_flags_of_a_run_are_passed_on(monkeypatch, flags, period):
  begun = []

  def begin(experiment, *arguments, **options):
    begun.append((experiment.seed, *arguments, options))
    raise _BegunError

  monkeypatch.setattr(runs, 'run_experiment', begin)
  flags += ['--num_eval_episodes=3', '--run_dir=there', '--resume', '--seed=7']
  with pytest.raises(_BegunError):
    commands.main(['train', 'catch', *flags])
  ((*positional, options),) = begun
  assert positional == [7, period, 3]
  assert options['run_dir'] == 'there' and options['resume']
