"""What every named agent promises, in every kind of space."""

import functools

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax import distributions, types
from ftwax.agents import a2c, a3c, ftw, impala, ppo, pqn, r2d2, rl2, unreal
from ftwax.agents.actor_critic import auxiliary, tasks
from ftwax.losses import advantage_actor_critic
from ftwax.networks import cores, heads, recurrent_cores, torsos

pytestmark = pytest.mark.ci

NUM_EVENTS = 2
SIZES = {
  'sequence_length': 4,
  'batch_size': 2,
  'core': cores.LSTM(4),
  'torso': torsos.Torso('a3c', hidden_sizes=(4,)),
}
PIXEL_CONTROL = tasks.PixelControl(cell_size=8, entry='image')
AGENTS = {
  'impala': impala.IMPALAConfig(**SIZES),
  'a2c': a2c.A2CConfig(**SIZES),
  'a3c': a3c.A3CConfig(**SIZES | {'batch_size': 1}),
  'ppo': ppo.PPOConfig(**SIZES | {'num_minibatches': 2, 'num_epochs': 2}),
  'pqn': pqn.PQNConfig(**SIZES | {'num_minibatches': 2, 'num_epochs': 2}),
  'r2d2': r2d2.R2D2Config(**SIZES),
  'r2d2_with_tasks': r2d2.R2D2Config(
    **SIZES, tasks=(PIXEL_CONTROL, 'reward_prediction')
  ),
  'rl2': rl2.RL2Config(**SIZES),
  'unreal': unreal.UNREALConfig(
    **SIZES,
    tasks=(PIXEL_CONTROL, 'reward_prediction', 'value_replay'),
    loss_reduction='sum',
  ),
  'unreal_off_policy': unreal.UNREALConfig(
    **SIZES, tasks=('reward_prediction', 'off_policy')
  ),
  'ppo_with_tasks': ppo.PPOConfig(
    **SIZES | {'num_minibatches': 2, 'num_epochs': 2},
    tasks=(PIXEL_CONTROL, 'reward_prediction', 'value_replay'),
  ),
  # Without memory: minibatches are of transitions.
  'ppo_continuous': ppo.PPOConfig.continuous(
    **SIZES
    | {
      'num_minibatches': 2,
      'num_epochs': 2,
      'core': cores.FeedForward(4, activation='tanh'),
      'heads': heads.Heads((4,), (4,), state_dependent_scale=True),
    }
  ),
  'rl2_with_tasks': rl2.RL2Config(
    **SIZES, tasks=('reward_prediction', 'value_replay')
  ),
}


def _everything_spec():
  """Images, vectors and integers; nested choices; a vector of events."""
  image = dm_env.specs.BoundedArray((24, 24, 3), np.uint8, 0, 255, 'image')
  spec = fakes.make_dict_spec()
  return spec._replace(
    observations=spec.observations | {'image': image},
    actions={
      'move': dm_env.specs.DiscreteArray(3, name='move'),
      'hands': (
        dm_env.specs.DiscreteArray(2, name='left'),
        dm_env.specs.DiscreteArray(2, name='right'),
      ),
    },
    rewards=dm_env.specs.Array((NUM_EVENTS,), np.float32, 'events'),
  )


SPACES = {
  'everything': _everything_spec(),
  'vector': fakes.make_vector_spec(),
  'masked': fakes.add_action_mask(fakes.make_composite_spec()),
  'continuous': fakes.make_continuous_spec(),
  'trials': fakes.make_spec(
    {
      'episode_start': dm_env.specs.BoundedArray((), np.int8, 0, 1),
      'vector': dm_env.specs.Array((4,), np.float32, 'vector'),
    }
  ),
}


@functools.cache
def _make(name, space):
  """Returns actor, jitted update, first state and a batch."""
  config, spec = AGENTS[name], SPACES[space]
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  return (
    config.make_policy(network, spec),
    jax.jit(learner.update),
    learner.init(jax.random.PRNGKey(0)),
    random_batches.make_batch(0, spec, network, config),
  )


# Agents that learn as another one does, or need an environment of their own.
SPECIAL = ('impala', 'a3c', 'r2d2', 'rl2', 'rl2_with_tasks')


# Each agent in what has nearly everything, and every loss of the policy in each
# kind of space that matters to it.
@pytest.mark.parametrize(
  ('name', 'space'),
  [
    *((name, 'everything') for name in AGENTS if name not in SPECIAL),
    ('rl2', 'trials'),
    ('rl2_with_tasks', 'trials'),
    ('a3c', 'vector'),
    ('impala', 'masked'),
    ('r2d2', 'masked'),
    ('pqn', 'masked'),
    ('impala', 'continuous'),
    ('a2c', 'continuous'),
    ('ppo', 'continuous'),
    ('ppo', 'vector'),
    ('ppo_continuous', 'continuous'),
  ],
)
def test_agents_act_and_learn(name, space):
  """All that is learned must move in one update."""
  actor, update, state, batch = _make(name, space)
  _check_acting(actor, SPACES[space], types.actor_variables(state))
  after, metrics = update(state, batch)
  assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(metrics))
  assert int(after.steps) == 1 and int(after.skipped) == 0
  still = [
    jax.tree_util.keystr(path)
    for (path, new), old in zip(
      jax.tree.leaves_with_path(after.params),
      jax.tree.leaves(state.params),
      strict=True,
    )
    if np.all(new == old)
  ]
  assert not still, f'{still} never learn'


def _check_acting(actor, spec, variables):
  """Actions, in the middle of an episode and at its start, fit their spec."""
  timestep = random_batches.make_timesteps(0, spec, (2,))
  timestep.step_type[0] = dm_env.StepType.FIRST
  actor_state = actor.init(jax.random.PRNGKey(1), 2)
  action, actor_state = jax.jit(actor.select_action)(
    variables, timestep, actor_state
  )
  masks = spec.observations
  for row in range(2):
    mask = None
    if isinstance(masks, dict) and types.ACTION_MASK in masks:
      mask = jax.tree.map(
        lambda x: x[row],  # noqa: B023
        timestep.observation[types.ACTION_MASK],
      )
    fakes.check_action(
      spec.actions,
      jax.tree.map(lambda x: np.asarray(x[row]), action),  # noqa: B023
      mask,
    )
  extras = actor.get_extras(actor_state)
  structures = [
    jax.tree.structure(x)
    for x in (extras['logits'], distributions.zero_logits(spec.actions, (2,)))
  ]
  assert structures[0] == structures[1]


def test_pixel_control_needs_an_image():
  config = AGENTS['unreal'].replace(tasks=(tasks.PixelControl(entry='vector'),))
  with pytest.raises(ValueError, match=r"entry \('vector'\) of PixelControl"):
    config.make_network(SPACES['everything'])


def test_pixel_control_needs_choices():
  spec = SPACES['everything']._replace(
    actions=fakes.make_continuous_spec().actions
  )
  with pytest.raises(ValueError, match='must be discrete for'):
    AGENTS['unreal'].make_network(spec)


def test_two_levels_of_memory_need_trials():
  with pytest.raises(ValueError, match="must have the entry 'episode_start'"):
    AGENTS['rl2'].make_network(SPACES['vector'])


def test_tasks_leave_the_optimization_of_an_agent_as_it_is():
  without, having = ppo.PPOConfig(), ppo.PPOConfig(tasks=('pixel_control',))
  assert having.replace(tasks=()) == without
  (task,) = having.tasks
  assert task == tasks.PixelControl()


def test_parts_of_the_users_own_are_fields():
  def zero_loss(transitions, hyperparameters):
    output = advantage_actor_critic.advantage_actor_critic_loss(
      transitions, hyperparameters
    )
    return output._replace(policy=jnp.zeros_like(output.policy))

  task = auxiliary.AuxiliaryTask(
    'extra', auxiliary.TRAJECTORY, lambda inputs: (jnp.ones(()), {})
  )
  spec = SPACES['vector']
  config = AGENTS['a2c'].replace(
    loss=zero_loss,
    tasks=(task,),
    network=lambda spec, config: config.replace(network=None).make_network(
      spec._replace(rewards=None)
    ),
  )
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  state = learner.init(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)
  _, metrics = jax.jit(learner.update)(state, batch)
  assert metrics['policy_loss'] == 0.0
  assert metrics['extra_loss'] == 1.0
  with pytest.raises(ValueError, match=r"loss \('mine.loss'\) must be a funct"):
    config.replace(loss='mine.loss')


def test_a_core_of_the_users_own_is_a_field():
  for config in (
    AGENTS['a2c'].replace(core=recurrent_cores.FeedForward),
    ftw.small(core=recurrent_cores.FeedForward, tasks=()),
  ):
    network = config.make_network(SPACES['vector'])
    assert not jax.tree.leaves(network.initial_state(2))


def test_two_tasks_on_the_same_value_are_refused():
  with pytest.raises(ValueError, match='must not have value_replay with off'):
    unreal.UNREALConfig(tasks=('value_replay', 'off_policy'))


def test_a_cost_of_zero_takes_its_task_out_of_the_loss():
  _, update, state, batch = _make('unreal', 'everything')
  _, metrics = update(state, batch)
  for name in ('pixel_control', 'reward_prediction', 'value_replay'):
    costs = state.hyperparameters.tasks
    cost = getattr(costs, name)._replace(cost=jnp.zeros(()))
    without = state.hyperparameters._replace(
      tasks=costs._replace(**{name: cost})
    )
    _, found = update(state._replace(hyperparameters=without), batch)
    assert found[f'{name}_loss'] == 0.0
    np.testing.assert_allclose(
      metrics['loss'] - found['loss'],
      metrics[f'{name}_loss'],
      rtol=1e-3,
      atol=1e-3,
    )
