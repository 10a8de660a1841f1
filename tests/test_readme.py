"""README's code runs as it stands, for fewer steps, and learns for all."""

import os
import pathlib
import re
import subprocess
import sys

import dm_env
import fakes
import jax
import jax.numpy as jnp
import pytest

from ftwax import types

README = pathlib.Path(__file__).parents[1] / 'README.md'


@pytest.fixture(scope='module')
def blocks():
  text = README.read_text('utf-8')
  return re.findall(r'```python\n(.*?)```', text, flags=re.DOTALL)


def test_the_composed_agent_runs(blocks, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  code = blocks[0].replace('100_000', '1_200').replace('20_000', '600')
  assert code != blocks[0]
  names: dict = {}
  exec(compile(code, 'README', 'exec'), names)
  assert names['result'].counts.actor_steps >= 1_200
  assert names['result'].counts.learner_steps > 0
  output = capsys.readouterr().out
  assert 'runs/my_agent' in output
  assert output.count('evaluation after') == 2


def test_the_composed_agent_learns(blocks, tmp_path):
  """In a process of its own, as users run it: tests compile unoptimized."""
  environment = {**os.environ, 'PYTHONPATH': str(README.parent)}
  environment.pop('XLA_FLAGS', None)
  (tmp_path / 'example.py').write_text(blocks[0], 'utf-8')
  ended = subprocess.run(
    [sys.executable, 'example.py'],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert ended.returncode == 0, ended.stderr
  mean_return = float(ended.stdout.splitlines()[-1].split()[0])
  assert mean_return > 400  # The best is 500.


def test_the_population_learns_as_shown(blocks):
  from ftwax.agents import ppo

  spec = fakes.make_vector_spec()
  config = ppo.PPOConfig(
    sequence_length=3,
    batch_size=2,
    hidden_size=4,
    num_epochs=1,
    num_minibatches=1,
  )
  network = ppo.make_network(spec, config)
  state = network.initial_state(2)
  batch = types.Trajectory(
    timestep=dm_env.TimeStep(
      step_type=jnp.ones((4, 2), jnp.int32),
      reward=jnp.ones((4, 2)),
      discount=jnp.ones((4, 2)),
      observation=jnp.ones((4, 2, 4)),
    ),
    previous_action=jnp.zeros((4, 2), jnp.int32),
    logits=jnp.zeros((3, 2, 3)),
    recurrent_state=state,
  )
  names = {
    'jax': jax,
    'ppo': ppo,
    'config': config,
    'environment_spec': spec,
    'batches': jax.tree.map(
      lambda x: jnp.stack([x] * 8), types.LearnerBatch(batch)
    ),
  }
  exec(compile(blocks[1], 'README', 'exec'), names)
  assert names['metrics']['loss'].shape == (8,)
  assert names['states'].steps.tolist() == [1] * 8
