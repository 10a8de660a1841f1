"""Every agent learns with every core, and has at most so many fields."""

import dataclasses

import dm_env
import fakes
import jax
import numpy as np
import pytest
import random_batches

from ftwax import compilation
from ftwax.agents import named
from ftwax.agents.actor_critic import tasks
from ftwax.networks import cores, torsos

SPEC = fakes.make_vector_spec()
TRIALS = SPEC._replace(
  observations={
    'episode_start': dm_env.specs.BoundedArray((), np.int8, 0, 1),
    'vector': SPEC.observations,
  }
)
CORES = {name: core.with_size(8) for name, core in cores.NAMED.items()}
MEMORY = cores.Memory(num_slots=3, word_size=2, num_reads=1)
for name in ('dnc', 'rpth_dnc'):
  CORES[name] = CORES[name].replace(memory=MEMORY)


@pytest.mark.parametrize(
  ('agent', 'core'),
  [
    pytest.param(
      agent,
      core,
      marks=() if i % len(named.AGENTS) == j else pytest.mark.slow,
    )
    for i, core in enumerate(CORES)
    for j, agent in enumerate(named.AGENTS)
  ],
)
def test_every_agent_learns_with_every_core(agent, core, key):
  config = named.AGENTS[agent](
    core=CORES[core],
    torso=torsos.Torso(hidden_sizes=(3,)),
    tasks=('latent_kl',) if core.startswith('rpth') else (),
    sequence_length=2,
    batch_size=2,
    num_minibatches=1,
    num_epochs=1,
  )
  spec = TRIALS if agent == 'rl2' else SPEC
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  state = compilation.jit_unoptimized(learner.init)(key)
  batch = random_batches.make_batch(0, spec, network, config)
  batch = batch._replace(replay=None, reward_prediction=None)
  after, metrics = compilation.jit_unoptimized(learner.update)(state, batch)
  assert np.isfinite(metrics['loss']) and int(after.skipped) == 0
  moved = jax.tree.map(lambda x, y: np.any(x != y), after.params, state.params)
  assert np.mean(jax.tree.leaves(moved)) > 0.5


@pytest.mark.parametrize('agent', named.AGENTS)
def test_every_agent_takes_every_task(agent):
  config = named.AGENTS[agent](core='rpth', tasks=tuple(tasks.NAMED)[:3])
  assert config.tasks == tuple(tasks.NAMED.values())[:3]
  names = set(config.priors._fields)
  assert {'pixel_control_cost', 'value_replay_cost', 'slow_period'} <= names


@pytest.mark.parametrize('agent', named.AGENTS)
def test_configs_are_short(agent):
  assert len(dataclasses.fields(named.AGENTS[agent])) <= 30
