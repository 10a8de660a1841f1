"""README's code runs as it stands, for fewer steps."""

import pathlib
import re

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
  code = blocks[0].replace('20_000', '1_200').replace('10_000', '600')
  assert code != blocks[0]
  names: dict = {}
  exec(compile(code, 'README', 'exec'), names)
  assert names['result'].counts.actor_steps >= 1_200
  assert names['result'].counts.learner_steps > 0
  assert 'runs/my_agent' in capsys.readouterr().out


def test_the_population_learns_as_shown(blocks):
  from ftwax.agents import impala

  spec = fakes.make_vector_spec()
  config = impala.IMPALAConfig(sequence_length=3, batch_size=2, hidden_size=4)
  network = impala.make_network(spec, config)
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
    'impala': impala,
    'config': config,
    'environment_spec': spec,
    'batches': jax.tree.map(
      lambda x: jnp.stack([x] * 8), types.LearnerBatch(batch)
    ),
  }
  exec(compile(blocks[1], 'README', 'exec'), names)
  assert names['metrics']['loss'].shape == (8,)
  assert names['states'].steps.tolist() == [1] * 8
