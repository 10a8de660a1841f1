"""Agents as files of other programs."""

import json
import pathlib
import re
import subprocess
import sys

import fakes
import jax
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import ppo
from ftwax.cli import commands
from ftwax.environments import catch, game_vectors
from ftwax.inference import loaded_agent, portable
from ftwax.networks import cores, recurrent_cores

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'how_to' / 'deploy.md'
NUM_GAMES = 2

CORES = {
  'feed_forward': 'feed_forward',
  'gtrxl': cores.GTrXL(8, window=5),
  'dnc': cores.DNC(8, memory=cores.Memory(8, 4)),
  'rpth': cores.RPTH(8),
  'lru': cores.LRU(8),
  'large dnc': cores.DNC(8, memory=cores.Memory(65, 4)),  # Sorts its slots.
  'layer-normed lstm': cores.LSTM(8, layer_norm=True, dropout=0.1),
}


def _make(environment, core, greedy=True, scale=3.0, **options):
  """Returns an agent that has not learned, and games for it."""
  games = game_vectors.make_games(environment, range(NUM_GAMES), 'test')
  spec = games.spec.environment
  config = ppo.PPOConfig(core=core, **options)
  network = config.make_network(spec)
  state = config.make_learner_core(network, spec).init(jax.random.PRNGKey(0))
  variables = types.actor_variables(state)
  # As after updates, which move the policy away from uniform.
  variables = variables._replace(
    params=jax.tree.map(lambda leaf: scale * leaf, variables.params)
  )
  policy = config.make_policy(network, spec, evaluation=greedy)
  return loaded_agent.LoadedAgent(policy, variables, games.spec), games


def _needs_onnx(file_format):
  if file_format == 'onnx':
    pytest.importorskip('jax2onnx', reason='the extra onnx is not there')


@pytest.mark.filterwarnings('ignore')  # Of the converter.
@pytest.mark.parametrize(
  'name, file_format',
  [
    ('feed_forward', 'onnx'),
    *(
      pytest.param(name, 'onnx', marks=pytest.mark.ci)
      for name in CORES
      if name not in ('feed_forward', 'lru', 'large dnc')
    ),
    ('dnc', 'stablehlo'),
    ('lru', 'stablehlo'),  # Complex numbers.
    pytest.param('large dnc', 'stablehlo', marks=pytest.mark.ci),
  ],
)
def test_a_file_acts_as_its_agent(tmp_path, name, file_format):
  _needs_onnx(file_format)
  agent, games = _make(lambda seed: catch.make(), CORES[name])
  step = portable.write(agent, tmp_path / 'agent', file_format)
  differences = portable.check(agent, step, games, 40)
  assert tuple(differences) == portable.CHECKED_ROWS == (1, 3, 64)
  assert max(differences.values()) < 1e-5
  _assert_rows_reset_alone(agent, step)


def _assert_rows_reset_alone(agent, step):
  """Asserts that `first` of a row is the reset of its memory alone."""
  inputs = portable.example(agent, 3)
  inputs['first'][:] = True
  inputs['observation'][:, 0, 0] = 1.0
  fresh = step(inputs)
  later = {
    **inputs,
    'state': fresh['next_state'],
    'first': np.array([False, True, False]),
  }
  rows = step(later)['next_state']
  np.testing.assert_allclose(rows[1], fresh['next_state'][1], atol=1e-6)
  alone = {name: array[2:] for name, array in later.items()}
  np.testing.assert_allclose(rows[2:], step(alone)['next_state'], atol=1e-5)
  if rows.shape[1] > 1:  # The feed-forward state is the last action.
    assert np.max(np.abs(rows[0] - rows[1])) > 1e-3


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('file_format', ['onnx', 'stablehlo'])
@pytest.mark.parametrize(
  'spec',
  [
    fakes.make_continuous_spec(),
    fakes.add_action_mask(fakes.make_composite_spec()),
    fakes.add_action_mask(fakes.make_dict_spec()),  # Has an image.
  ],
  ids=['continuous', 'parts', 'dict'],
)
def test_parts_are_named_and_masks_apply(tmp_path, spec, file_format):
  _needs_onnx(file_format)
  agent, games = _make(
    lambda seed: fakes.FakeEnvironment(spec, seed=seed), 'gru'
  )
  step = portable.write(agent, tmp_path / 'agent', file_format)
  differences = portable.check(agent, step, games, 30)
  assert max(differences.values()) < 1e-5
  inputs = portable.example(agent, 3)
  outputs = step(inputs)
  for name, tree in (
    ('observation', spec.observations),
    ('action', spec.actions),
  ):
    arrays = {**inputs, **outputs}
    found = [arrays[key] for key in sorted(arrays) if key.startswith(name)]
    shapes = [(3, *leaf.shape) for leaf in jax.tree.leaves(tree)]
    assert sorted(array.shape for array in found) == sorted(shapes)


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(  # Pooling, convolutions.
  'torso', [pytest.param('deep', marks=pytest.mark.ci), 'nature']
)
def test_a_file_sees_images(tmp_path, torso):
  _needs_onnx('onnx')
  spec = fakes.make_image_spec((36, 36, 3))
  agent, games = _make(
    lambda seed: fakes.FakeEnvironment(spec, seed=seed),
    'gru',
    scale=1.5,  # Of 15 layers.
    torso=torso,
  )
  step = portable.write(agent, tmp_path / 'agent', 'onnx')
  assert max(portable.check(agent, step, games, 8).values()) < 1e-6
  inputs = portable.example(agent, 1)
  inputs['observation'][:, :9] = 255
  assert np.ptp(step(inputs)['logits']) > 1e-3


def test_a_file_of_another_agent_is_found_out(tmp_path):
  agent, games = _make(lambda seed: catch.make(), 'gru')
  step = portable.write(agent, tmp_path / 'agent', 'stablehlo')

  def off(inputs, num_rows=3):
    outputs = step(inputs)
    error = 3e-4 * (len(inputs['first']) == num_rows)
    return {**outputs, 'logits': outputs['logits'] + error}

  message = r'parity \(3.0e-04 with 3 rows\) must be at most'
  with pytest.raises(ValueError, match=message):
    portable.check(agent, off, games, 5)
  with pytest.raises(ValueError, match=r'parity \(nan with 1 rows\) must be'):
    portable.check(
      agent, lambda inputs: {**step(inputs), 'logits': np.nan}, games, 5
    )

  def forgetful(inputs):  # Resets no memory.
    return step({**inputs, 'first': np.zeros_like(inputs['first'])})

  with pytest.raises(ValueError, match='parity .* must be at most'):
    portable.check(agent, forgetful, games, 20)


def test_what_a_file_cannot_hold_is_refused_by_name(tmp_path):
  path = tmp_path / 'agent'
  agent, _ = _make(lambda seed: catch.make(), 'gru', greedy=False)
  with pytest.raises(ValueError, match='must be loaded with greedy=True'):
    portable.write(agent, path, 'stablehlo')
  for core, part in (
    (CORES['lru'], 'complex numbers'),
    (CORES['large dnc'], 'more than 64 slots'),
  ):
    agent, _ = _make(lambda seed: catch.make(), core)
    with pytest.raises(ValueError, match=f'lacks .*{part}.*; choose stablehlo'):
      portable.write(agent, path, 'onnx')
  agent, _ = _make(lambda seed: catch.make(), _Counting)
  with pytest.raises(
    ValueError,
    match=r'network \(line \d+ of .*test_portable.py, in __call__\) must act on'
    ' any number of rows .*; make its arrays by jax.numpy',
  ):
    portable.write(agent, path, 'stablehlo')
  assert not path.exists()


class _Counting(recurrent_cores._GRU):
  """A core that has to know the number of rows."""

  def __init__(self):
    super().__init__(8, 'gru')

  def __call__(self, inputs, state):
    return super().__call__(inputs + np.zeros((len(inputs), 1)), state)


@pytest.mark.filterwarnings('ignore')
def test_what_the_converter_refuses_is_named(tmp_path, monkeypatch):
  jax2onnx = pytest.importorskip('jax2onnx', reason='the extra onnx is absent')

  def refuse(*args, **kwargs):
    raise NotImplementedError('No plugins registered for primitive eigh.')

  monkeypatch.setattr(jax2onnx, 'to_onnx', refuse)
  agent, _ = _make(lambda seed: catch.make(), 'gru')
  with pytest.raises(
    ValueError, match='refuses one .*eigh.*; choose stablehlo'
  ):
    portable.write(agent, tmp_path / 'agent', 'onnx')
  assert not (tmp_path / 'agent').exists()


@pytest.mark.ci
@pytest.mark.filterwarnings('ignore')
def test_the_command_exports_a_run_for_the_code_of_the_page(tmp_path, capsys):
  _needs_onnx('onnx')
  run = str(tmp_path / 'run')
  arguments = ['CartPole-v1', '--max_num_actor_steps=2000']
  with pytest.raises(SystemExit, match='0'):
    commands.main(['train', *arguments, f'--run_dir={run}'])
  out = tmp_path / 'agent.onnx'
  assert commands.main(['export', run, f'--out={out}']) == 0
  text = capsys.readouterr().out
  assert re.search('observation +float32 \\[rows, 4\\]', text)
  assert re.search(
    r'in 1,000 steps:\n'
    + ''.join(
      rf' +rows={num_rows} +\d\.\de[+-]\d\d\n'
      for num_rows in portable.CHECKED_ROWS
    ),
    text,
  )
  game = onnx_game(out)
  assert game['spaces'] and game['actions']['spec']['num_values'] == 2
  code, *more = re.findall('```py\n(.*?)```', PAGE.read_text('utf-8'), re.S)
  printed = _execute(
    f'{code}\nimport sys; print("jax" in sys.modules)', tmp_path
  )
  assert re.fullmatch(r'(\[[01] [01]\])\nFalse\n', printed)
  out = tmp_path / 'agent.stablehlo'
  arguments = ['export', run, '--format=stablehlo', f'--out={out}']
  assert commands.main(arguments) == 0
  by_onnx, by_jax = _execute('\n'.join((code, *more)), tmp_path).splitlines()
  assert by_onnx == by_jax
  assert {path.name for path in tmp_path.iterdir()} == {
    'run', 'agent.onnx', 'agent.stablehlo',
  }  # fmt: skip


def _execute(code, folder):
  """Returns what a program prints in a folder."""
  return subprocess.run(
    [sys.executable, '-c', code],
    cwd=folder, check=True, capture_output=True, text=True, timeout=120,
  ).stdout  # fmt: skip


def onnx_game(path):
  """Returns the specs of the game, as the file has them."""
  import onnxruntime

  model = onnxruntime.InferenceSession(path).get_modelmeta()
  return json.loads(model.custom_metadata_map['game'])
