"""Agents of earlier runs, made again from their records alone."""

import json
import re
import shutil

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers
import safetensors

from ftwax import version
from ftwax.environments import capture_the_flag
from ftwax.inference import loading, sharing
from ftwax.networks import cores
from ftwax.population import population_config
from ftwax.records import checkpoints, run_directory

SOLO = functional_fakes.make_matching(episode_length=10)


def make_network(spec, config):
  """A network of the user's own, though it is that of the agent."""
  return config.replace(network=None).make_network(spec)


def make_experiment(**options):
  return population_helpers.make_experiment(
    lambda seed: SOLO,
    population=population_config.PopulationConfig(2, exploits=False),
    max_num_actor_steps=6_000,
    num_environments=8,
    **options,
  )


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  run = run_helpers.make_run('device', tmp_path_factory.mktemp('loading'))
  return run(make_experiment())


def play(agent):
  """Returns the sum of rewards of an episode of ten steps; chance is five."""
  state, timestep = SOLO.reset(jax.random.PRNGKey(1))
  total = 0.0
  for _ in range(10):
    state, timestep = SOLO.step(state, jnp.asarray(agent.act(timestep)))
    total += float(timestep.reward)
  return total


def test_agents_are_loaded_from_their_directory_alone(trained):
  agents = [loading.load(trained.run_dir, member) for member in range(2)]
  for agent, same in zip(
    agents, loading.load_members(trained.run_dir), strict=True
  ):
    assert agent.name == same.name
    run_helpers.assert_same(agent.variables, same.variables)
  for member, agent in enumerate(agents):
    run_helpers.assert_same(
      agent.variables.params,
      jax.tree.map(lambda leaf, m=member: leaf[m], trained.state.params),
    )
    assert agent.game_spec.environment == SOLO.spec
  # One of them has learned.
  assert max(map(play, agents)) > 7.5


def test_an_exported_agent_is_the_same(trained, tmp_path):
  loading.export(trained.run_dir, tmp_path / 'small', {'score': 0.5})
  agent = loading.load(tmp_path / 'small', 1)
  run_helpers.assert_same(
    agent.variables, loading.load(trained.run_dir, 1).variables
  )
  assert play(agent) > 7.5
  assert json.loads((tmp_path / 'small' / 'about.json').read_text()) == {
    'members': [0, 1],
    'score': 0.5,
  }
  assert not (tmp_path / 'small' / 'checkpoints').exists()
  with pytest.raises(FileExistsError):
    loading.export(trained.run_dir, tmp_path / 'small')


def test_an_export_that_fails_leaves_nothing(trained, tmp_path, monkeypatch):
  def fail(*args, **options):
    raise OSError('disk full')

  with monkeypatch.context() as patched:
    patched.setattr(sharing.files, 'write_atomically', fail)
    with pytest.raises(OSError, match='disk full'):
      loading.export(trained.run_dir, tmp_path / 'small')
  assert not [*tmp_path.iterdir()]
  loading.export(trained.run_dir, tmp_path / 'small')


def test_one_agent_is_saved_with_its_records_and_a_card(trained, tmp_path):
  agent = loading.load(trained.run_dir, 1)
  folder = agent.save(tmp_path / 'shared')
  assert {path.name for path in folder.iterdir()} == {
    'README.md', 'about.json', 'config.json', 'game.json', 'lineage.jsonl',
    'manifest.json', 'manifest.sha256', 'variables.safetensors',
    'versions.json',
  }  # fmt: skip
  again = loading.load(folder)
  assert again.name == 'member 1'
  run_helpers.assert_same(again.variables, agent.variables)
  with pytest.raises(ValueError, match=r'member \(1\) must be from 0 to 0'):
    loading.load(folder, 1)
  with pytest.raises(FileExistsError):
    agent.save(folder)
  card = (folder / 'README.md').read_text()
  assert card.startswith('---\nlibrary_name: ftwax\n')
  for text in ('# shared', 'ftwax.load', '| seed | 0 |', '| jax |'):
    assert text in card, text
  # What is saved again keeps what is known, and shows a film.
  (folder / 'game.gif').write_bytes(b'GIF89a')
  copy = again.save(tmp_path / 'copy')
  assert '(game.gif)' in (copy / 'README.md').read_text()
  assert json.loads((copy / 'about.json').read_text())['members'] == [1]


def test_an_agent_acts_without_the_loss_of_its_training(trained, tmp_path):
  run = tmp_path / 'run'
  shutil.copytree(trained.run_dir, run)
  config = json.loads((run / 'config.json').read_text())
  config['agent']['loss'] = {'__type__': 'my_file:my_loss'}
  (run / 'config.json').write_text(json.dumps(config))
  with pytest.warns(
    UserWarning, match=r"loss of the run \('my_file:my_loss'\)"
  ):
    agent = loading.load(run)
  run_helpers.assert_same(
    agent.variables, loading.load(trained.run_dir).variables
  )


def test_arrays_have_names(trained, tmp_path):
  loading.export(trained.run_dir, tmp_path / 'small')
  with safetensors.safe_open(
    tmp_path / 'small' / 'variables.safetensors', 'numpy'
  ) as file:
    names = set(file.keys())
  assert 'hyperparameters/learning_rate' in names
  assert any(name.startswith('params/') for name in names)


def test_a_checkpoint_is_chosen_by_its_step(trained):
  newest = loading.load(trained.run_dir)
  (step,) = [
    int(path.name) for path in (trained.run_dir / 'checkpoints').iterdir()
  ]
  same = loading.load(trained.run_dir, step=step)
  run_helpers.assert_same(same.variables, newest.variables)
  with pytest.raises(ValueError, match=r'step \(7\) must be one of'):
    loading.load(trained.run_dir, step=7)


def test_a_step_that_was_saved_twice_is_its_newest_checkpoint(
  trained, tmp_path
):
  copy = tmp_path / 'run'
  shutil.copytree(trained.run_dir, copy)
  (path,) = (copy / 'checkpoints').iterdir()
  path.rename(path.with_name(f'{path.name}-1'))
  newest = loading.load(trained.run_dir)
  same = loading.load(copy, step=int(path.name))
  run_helpers.assert_same(same.variables, newest.variables)


def test_what_an_agent_was_before_it_learned(trained):
  agent = loading.load(trained.run_dir)
  variables = loading.initial_variables(trained.run_dir)
  expected = jax.tree.map(jnp.shape, agent.variables)
  assert jax.tree.map(jnp.shape, variables) == expected
  assert int(variables.steps) == 0


@pytest.mark.slow
@pytest.mark.parametrize('runtime', ['local', 'distributed'])
def test_runs_of_other_runtimes_are_loaded_too(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  experiment = make_experiment().replace(max_num_actor_steps=400)
  result = run(experiment)
  agent = loading.load(result.run_dir, 1)
  np.testing.assert_array_equal(
    jax.tree.leaves(agent.variables.params)[0],
    jax.tree.leaves(result.state.params)[0][1],
  )


@pytest.mark.slow
def test_a_network_of_the_users_own_needs_the_experiment(tmp_path):
  experiment = make_experiment()
  config = experiment.agent.replace(network=make_network)
  experiment = experiment.replace(agent=config, max_num_actor_steps=200)
  result = run_helpers.make_run('device', tmp_path)(experiment)
  with pytest.raises(ValueError, match=r'agent.network .* pass'):
    loading.load(result.run_dir)
  agent = loading.load(result.run_dir, experiment=experiment)
  assert agent.act(SOLO.reset(jax.random.PRNGKey(0))[1]) in (0, 1)


def test_a_record_that_is_older_than_an_option_means_its_default(
  trained, tmp_path
):
  loading.export(trained.run_dir, tmp_path / 'small')
  path = tmp_path / 'small' / 'config.json'
  record = json.loads(path.read_text())
  del record['agent']['normalize_returns']
  path.write_text(json.dumps(record))
  assert loading.load(tmp_path / 'small').act is not None


def test_what_cannot_be_loaded_ends_in_one_message(trained, tmp_path):
  with pytest.raises(ValueError, match=r'member \(2\) must be from 0 to 1'):
    loading.load(trained.run_dir, member=2)
  with pytest.raises(ValueError, match="source .*nowhere'.* must be the direc"):
    loading.load(tmp_path / 'nowhere')
  with pytest.raises(ValueError, match=r'of a run, .* no config\.json'):
    loading.load(tmp_path)
  other = make_experiment(
    config=population_helpers.CONFIG.replace(core=cores.LSTM(4))
  )
  with pytest.raises(checkpoints.CheckpointError, match='give the experiment'):
    loading.load(trained.run_dir, experiment=other)


@pytest.mark.parametrize('runtime', ['local', 'device', 'distributed'])
def test_opponents_are_of_the_same_game(trained, tmp_path, runtime):
  player = loading.load(trained.run_dir).player
  assert player.environment_spec == SOLO.spec
  other = player._replace(environment_spec=capture_the_flag.make().spec)
  experiment = population_helpers.make_experiment(opponents={'other': other})
  with pytest.raises(
    ValueError, match="player 'other' must be trained in a game"
  ):
    run_helpers.make_run(runtime, tmp_path)(experiment)


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('game.json', b'{"observations": 3', 'must hold the specs of a game'),
    ('config.json', b'[]', 'must hold the configuration of a run'),
    ('variables.safetensors', b'damaged', 'shared agents .* has changed since'),
    ('manifest.json', b'{}', 'as they were saved, but .* do not agree; rest'),
    ('about.json', b'{"members": 3}', 'must hold what is known of shared'),
  ],
)
def test_damaged_files_end_in_one_message(
  trained, tmp_path, name, content, message
):
  loading.export(trained.run_dir, tmp_path / 'small')
  (tmp_path / 'small' / name).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    loading.load(tmp_path / 'small')


@pytest.mark.slow
def test_arrays_of_another_agent_are_refused(trained, tmp_path):
  for name, size in (('one', 8), ('two', 4)):
    config = population_helpers.CONFIG.replace(core=cores.LSTM(size))
    run = run_helpers.make_run('device', tmp_path)
    experiment = make_experiment(config=config)
    result = run(experiment.replace(max_num_actor_steps=200), name)
    loading.export(result.run_dir, tmp_path / f'{name}_small')
  for name in ('variables.safetensors', 'manifest.json', 'manifest.sha256'):
    shutil.copyfile(
      tmp_path / 'two_small' / name, tmp_path / 'one_small' / name
    )
  with pytest.raises(
    checkpoints.CheckpointError, match=r'float32\[.* in the template and float'
  ):
    loading.load(tmp_path / 'one_small')


def test_a_run_of_an_older_layout_names_the_version_that_reads_it(
  trained, tmp_path
):
  copy = tmp_path / 'run'
  shutil.copytree(trained.run_dir, copy)
  versions = json.loads((copy / 'versions.json').read_text())
  old = {**versions, 'layout': 2, 'commit': 'abc'}
  (copy / 'versions.json').write_text(json.dumps(old))
  with pytest.raises(
    run_directory.RunDirectoryError,
    match=r'has layout 2, that of an older version .* ftwax'
    rf' {re.escape(version.__version__)} at abc\.',
  ):
    loading.load(copy)
