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
from ftwax.networks import cores

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'how_to' / 'deploy.md'
ROWS = 2

CORES = {
  'feed_forward': 'feed_forward',
  'gtrxl': cores.GTrXL(8, window=5),
  'dnc': cores.DNC(8, memory=cores.Memory(8, 4)),
  'rpth': cores.RPTH(8),
  'lru': cores.LRU(8),
  'layer-normed lstm': cores.LSTM(8, layer_norm=True, dropout=0.1),
}


def _make(environment, core, greedy=True):
  """Returns an agent that has not learned, and games for it."""
  games = game_vectors.make_games(environment, range(ROWS), 'test')
  spec = games.spec.environment
  config = ppo.PPOConfig(core=core)
  network = config.make_network(spec)
  state = config.make_learner_core(network, spec).init(jax.random.PRNGKey(0))
  variables = types.actor_variables(state)
  # As after updates, which move the policy away from uniform.
  variables = variables._replace(
    params=jax.tree.map(lambda leaf: 3.0 * leaf, variables.params)
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
    *((name, 'onnx') for name in CORES if name != 'lru'),  # Complex numbers.
    ('dnc', 'stablehlo'),
    ('lru', 'stablehlo'),
  ],
)
def test_a_file_acts_as_its_agent(tmp_path, name, file_format):
  _needs_onnx(file_format)
  agent, games = _make(lambda seed: catch.make(), CORES[name])
  step = portable.write(agent, tmp_path / 'agent', file_format, ROWS)
  assert portable.check(agent, step, games, ROWS, 60) < 1e-5


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
  step = portable.write(agent, tmp_path / 'agent', file_format, ROWS)
  assert portable.check(agent, step, games, ROWS, 30) < 1e-5
  inputs = portable.example(agent, ROWS)
  outputs = step(inputs)
  for name, tree in (
    ('observation', spec.observations),
    ('action', spec.actions),
  ):
    arrays = {**inputs, **outputs}
    found = [arrays[key] for key in sorted(arrays) if key.startswith(name)]
    shapes = [(ROWS, *leaf.shape) for leaf in jax.tree.leaves(tree)]
    assert sorted(array.shape for array in found) == sorted(shapes)


def test_a_file_of_another_agent_is_found_out(tmp_path):
  agent, games = _make(lambda seed: catch.make(), 'gru')
  step = portable.write(agent, tmp_path / 'agent', 'stablehlo', ROWS)

  def off(inputs):
    outputs = step(inputs)
    return {**outputs, 'logits': outputs['logits'] + 3e-4}

  with pytest.raises(ValueError, match=r'parity \(3.0e-04\) must be at most'):
    portable.check(agent, off, games, ROWS, 5)
  with pytest.raises(ValueError, match=r'parity \(nan\) must be at most'):
    nothing = {**step(portable.example(agent, ROWS)), 'logits': np.nan}
    portable.check(agent, lambda inputs: nothing, games, ROWS, 5)


def test_what_a_file_cannot_hold_is_refused_by_name(tmp_path):
  path = tmp_path / 'agent'
  agent, _ = _make(lambda seed: catch.make(), 'gru', greedy=False)
  with pytest.raises(ValueError, match='must be loaded with greedy=True'):
    portable.write(agent, path, 'stablehlo')
  for core, part in (
    (CORES['lru'], 'complex numbers'),
    (cores.DNC(8, memory=cores.Memory(65, 4)), 'more than 64 slots'),
  ):
    agent, _ = _make(lambda seed: catch.make(), core)
    with pytest.raises(ValueError, match=f'lacks .*{part}.*; choose stablehlo'):
      portable.write(agent, path, 'onnx')
  assert not path.exists()


@pytest.mark.filterwarnings('ignore')
def test_the_command_exports_a_run_for_the_code_of_the_page(tmp_path, capsys):
  _needs_onnx('onnx')
  run = str(tmp_path / 'run')
  arguments = ['CartPole-v1', '--max_num_actor_steps=2000']
  with pytest.raises(SystemExit, match='0'):
    commands.main(['train', *arguments, f'--run_dir={run}'])
  out = tmp_path / 'agent.onnx'
  assert commands.main(['export', run, f'--out={out}']) == 0
  assert 'in 1,000 steps' in capsys.readouterr().out
  game = onnx_game(out)
  assert game['spaces'] and game['actions']['spec']['num_values'] == 2
  (code,) = re.findall('```py\n(.*?)```', PAGE.read_text('utf-8'), re.S)
  printed = subprocess.run(
    [sys.executable, '-c', f'{code}\nimport sys; print("jax" in sys.modules)'],
    cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
  ).stdout  # fmt: skip
  assert re.fullmatch(r'\[[01]\]\nFalse\n', printed)
  assert {path.name for path in tmp_path.iterdir()} == {'run', 'agent.onnx'}


def onnx_game(path):
  """Returns the specs of the game, as the file has them."""
  import onnxruntime

  model = onnxruntime.InferenceSession(path).get_modelmeta()
  return json.loads(model.custom_metadata_map['game'])
