"""Runs of earlier layouts are read; only their own version resumes them."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

import ftwax
from ftwax import hyperparameters, version
from ftwax.agents.actor_critic import tasks
from ftwax.cli import commands
from ftwax.records import array_files, migrations, run_directory

# A run of each layout, by the commit that its `versions.json` names: two
# members of an LSTM with 8 units, 20,000 steps of capture the flag.
RUNS = sorted((pathlib.Path(__file__).parent / 'layouts').iterdir())


@pytest.fixture(params=RUNS, ids=lambda path: path.name)
def run(request, tmp_path):
  copy = tmp_path / request.param.name
  shutil.copytree(request.param, copy)
  return copy


@pytest.fixture
def next_layout(monkeypatch):
  monkeypatch.setattr(array_files, 'LAYOUT', array_files.LAYOUT + 1)
  return array_files.LAYOUT


def test_the_version_has_the_number_of_the_layout():
  assert version.__version__.split('.')[:2] == ['0', str(array_files.LAYOUT)]
  changes = (pathlib.Path(__file__).parents[2] / 'CHANGELOG.md').read_text()
  assert f'## 0.{array_files.LAYOUT}.' in changes


def test_a_run_of_each_layout_is_kept():
  layouts = range(migrations.OLDEST, array_files.LAYOUT + 1)
  assert [path.name for path in RUNS] == [f'layout_{n}' for n in layouts]
  for layout, path in zip(layouts, RUNS, strict=True):
    versions = json.loads((path / run_directory.VERSIONS_FILE).read_text())
    assert versions['layout'] == layout


def _check_members(run):
  """Acts with the members of a run as the version that wrote it did."""
  expected = json.loads((run / 'expected.json').read_text())
  for member, record in enumerate(expected):
    agent = ftwax.load(run, member=member)
    total = sum(
      np.abs(np.asarray(leaf, np.float64)).sum()
      for leaf in jax.tree.leaves(agent.variables.params)
    )
    np.testing.assert_allclose(total, record['sum_of_parameters'], rtol=1e-6)
    rates = agent.variables.hyperparameters.learning_rate
    np.testing.assert_allclose(rates, record['learning_rate'], rtol=1e-6)
    assert int(agent.variables.steps) == record['steps']
    generator = np.random.default_rng(member)
    state = agent.initial_state()
    for action in record['actions']:
      inputs = (10 * generator.normal(size=360)).astype(np.float32)
      taken, state = agent.step(inputs, state)
      assert {name: int(part) for name, part in taken.items()} == action


def test_members_of_each_layout_act_as_they_did(run):
  _check_members(run)


def test_a_run_of_a_layout_before_is_loaded_and_not_resumed(run, next_layout):
  _check_members(run)
  versions = json.loads((run / run_directory.VERSIONS_FILE).read_text())
  layout = versions['layout']
  with pytest.raises(
    run_directory.RunDirectoryError,
    match=rf'has layout {layout}, that of an older version of ftwax,'
    rf' but must have layout {next_layout}; start a new run, or resume this one'
    rf' with that version: pip install "ftwax==0.{layout}\.\*"',
  ):
    run_directory.open_existing(run, None)


@pytest.mark.slow
@pytest.mark.parametrize(
  'command',
  [
    ['evaluate', '{run}', '--episodes=2'],
    ['film', '{run}', '--out={run}/film.gif', '--steps=20'],
    ['report', '{run}'],
  ],
  ids=lambda command: command[0],
)
def test_commands_read_a_run_of_the_layout_before(run, next_layout, command):
  del next_layout
  arguments = [argument.format(run=run) for argument in command]
  assert commands.main(arguments) == 0
  made = {'evaluate': '', 'film': 'film.gif', 'report': 'report.html'}
  assert (run / made[command[0]]).exists()


# As if the next layout called these differently.
RENAMED = migrations.Change(
  parts={'agent.older': 'agent.ppo', 'core.long_short': 'core.lstm'},
  fields={
    ('core.long_short', 'num_units'): 'hidden_size',
    ('agent.older', 'patience'): None,
  },
  arrays={'(^|/)weights/': r'\1params/'},
)


def test_names_of_a_layout_are_renamed_in_all_later_ones(monkeypatch):
  monkeypatch.setattr(migrations, 'CHANGES', {6: RENAMED})
  then = {
    '__type__': 'experiment',
    'agent': {
      '__type__': 'agent.older',
      'patience': 3,
      'core': {'__type__': 'core.long_short', 'num_units': 8},
      'tasks': [{'__type__': 'core.long_short', 'num_units': 4}],
    },
  }
  now = migrations.rename_config(then, 6)
  added = migrations.ADDED_TO_AGENTS
  assert now == {
    '__type__': 'experiment',
    'agent': {
      '__type__': 'agent.ppo',
      **added,
      'core': {'__type__': 'core.lstm', 'hidden_size': 8},
      'tasks': [{'__type__': 'core.lstm', 'hidden_size': 4}],
    },
  }
  then['agent'] = {**then['agent'], **added}
  assert migrations.rename_config(then, 7) == then
  assert migrations.rename_array('members/weights/w', 6) == 'members/params/w'
  assert migrations.rename_array('members/weights/w', 7) == 'members/weights/w'


def test_hyperparameters_of_layout_6_have_a_path_each():
  """There they stood in one tuple, with the names of parts before their own."""
  paths = {
    'learning_rate': 'learning_rate',
    'pixel_control_cost': 'tasks/pixel_control/cost',
    'pixel_control_discount': 'tasks/pixel_control/discount',
    'reward_prediction_cost': 'tasks/reward_prediction/cost',
    'value_replay_cost': 'tasks/value_replay/cost',
    'off_policy_cost': 'tasks/off_policy/cost',
    'kl_prior_fixed_cost': 'tasks/latent_kl/prior_fixed_cost',
    'rms_prop_epsilon': 'optimizer/epsilon',
    'learning_rate_decay_steps': 'decay/steps',
    'slow_period': 'core/slow_period',
    'slow_period_2': 'core/slow_period/1',
    'fast_to_slow_gradient_scale': 'core/fast_to_slow_gradient_scale',
    'dropout': 'core/dropout',
  }
  priors = ftwax.agents.FTWConfig(
    tasks=tuple(name for name in tasks.NAMED if name != 'off_policy')
  ).priors
  today = {name.replace('.', '/') for name in hyperparameters.names(priors)}
  for then, now in paths.items():
    for start in ('members/hyperparameters/', 'hyperparameters/'):
      assert migrations.rename_array(start + then, 6) == start + now
  assert today - {'discount'} >= set(paths.values()) - {
    'tasks/off_policy/cost', 'core/slow_period/1', 'core/dropout'
  }  # fmt: skip


def test_a_run_with_old_names_is_loaded(run, next_layout, monkeypatch):
  """Renames what a run of today says, and loads it as an older one."""
  del next_layout
  versions = json.loads((run / run_directory.VERSIONS_FILE).read_text())
  monkeypatch.setattr(migrations, 'CHANGES', {versions['layout']: RENAMED})
  config = run / run_directory.CONFIG_FILE
  text = config.read_text().replace('"agent.ppo"', '"agent.older"')
  text = text.replace('"core.lstm"', '"core.long_short"')
  config.write_text(text.replace('"hidden_size": 8', '"num_units": 8'))
  assert 'num_units' in config.read_text()
  (checkpoint,) = (run / 'checkpoints').iterdir()
  _rename_arrays(checkpoint, '/params/', '/weights/')
  _check_members(run)


def test_an_agent_without_memory_reads_what_it_was_trained_with():
  """Records without the fields are those of agents that read both."""
  then = {'agent': {'__type__': 'agent.ppo', 'core': 'feed_forward'}}
  agent = migrations.rename_config(then, 6)['agent']
  assert agent['previous_action'] is agent['previous_reward'] is True
  now = {'agent': {**then['agent'], 'previous_action': None}}
  agent = migrations.rename_config(now, 6)['agent']
  assert agent['previous_action'] is None


def test_a_hyperparameter_younger_than_the_run_has_the_config_value(run):
  (checkpoint,) = (run / 'checkpoints').iterdir()
  _rename_arrays(checkpoint, '/hyperparameters/clip_epsilon', '/other/epsilon')
  agent = ftwax.load(run)
  assert agent.variables.hyperparameters.clip_epsilon == np.float32(0.2)


def test_a_parameter_that_is_missing_is_refused(run):
  (checkpoint,) = (run / 'checkpoints').iterdir()
  _rename_arrays(checkpoint, '/params/', '/weights/')
  with pytest.raises(
    array_files.CheckpointError, match=r'members/params/.* is not in the'
  ):
    ftwax.load(run)


def _rename_arrays(directory, old, new):
  """Writes a checkpoint again, with other paths of its arrays."""
  path = directory / 'state.safetensors'
  content = path.read_bytes()
  size = int.from_bytes(content[:8], 'little')
  header = json.dumps(
    {
      name.replace(old, new): entry
      for name, entry in json.loads(content[8 : 8 + size]).items()
    }
  ).encode()
  assert new in header.decode()
  content = len(header).to_bytes(8, 'little') + header + content[8 + size :]
  path.write_bytes(content)
  manifest = json.loads((directory / array_files.MANIFEST_FILE).read_text())
  manifest['files'] = {path.name: array_files.digest(content)}
  text = json.dumps(manifest).encode()
  (directory / array_files.MANIFEST_FILE).write_bytes(text)
  (directory / array_files.DIGEST_FILE).write_bytes(
    array_files._digest_line(text)
  )
