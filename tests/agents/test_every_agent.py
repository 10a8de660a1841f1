"""Every agent takes every task, and has at most so many fields.

`tests/runtime/test_pairs.py` runs agents with cores, tasks and runtimes.
"""

import dataclasses
import itertools

import chex
import fakes
import jax
import pytest
import random_batches
import slow_cases

from ftwax import hyperparameters
from ftwax.agents import named, ppo
from ftwax.agents.actor_critic import tasks
from ftwax.networks import cores, heads


@pytest.mark.parametrize('agent', named.AGENTS)
def test_every_agent_takes_every_task(agent):
  kind = named.AGENTS[agent]
  own = ['pixel_control', 'reward_prediction', 'value_replay']
  if kind.learns_action_values:  # Whose value is that of the best action.
    for name in ('value_replay', 'off_policy'):
      with pytest.raises(ValueError, match=rf'tasks \({name}\) must not train'):
        kind(tasks=(name,))
    del own[2]
  config = kind(core='rpth', tasks=tuple(own))
  assert config.tasks == tuple(tasks.NAMED[name] for name in own)
  names = set(hyperparameters.names(config.priors))
  tasks_of = {f'tasks.{name}.cost' for name in own}
  assert {*tasks_of, 'core.slow_period'} <= names


@pytest.mark.parametrize('agent', named.AGENTS)
def test_configs_are_short(agent):
  assert len(dataclasses.fields(named.AGENTS[agent])) <= 37


@pytest.mark.parametrize(
  ('core', 'reads'),
  slow_cases.rows(
    itertools.product(cores.NAMED, [True, False]),
    [(core, i % 2 == 0) for i, core in enumerate(cores.NAMED)],
  ),
)
def test_every_core_takes_every_option_of_ppo(core, reads):
  """Traced, not compiled: shapes and structures must agree."""
  spec = fakes.make_continuous_spec()
  config = ppo.PPOConfig.continuous(
    core=core,
    previous_action=reads,
    previous_reward=reads,
    heads=heads.Heads(
      (4,),
      (4,),
      activation='tanh',
      initializer='orthogonal',
      state_dependent_scale=True,
    ),
    sequence_length=4,
    batch_size=2,
    num_minibatches=2,
  ).with_size(8)
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  state = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)
  after, _ = jax.eval_shape(learner.update, state, batch)
  chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
