"""Parts of a user's own, and several of a kind: trained, evolved, resumed."""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
from dm_env import specs

import ftwax
from ftwax import hyperparameters, parts, population, records, types
from ftwax.agents import ppo
from ftwax.agents.actor_critic import auxiliary, tasks
from ftwax.environments import functional
from ftwax.networks import cores, heads, recurrence, torsos
from ftwax.records import checkpoints
from ftwax.replay import replay_options
from ftwax.runtime import sweeps

SPEC = types.EnvironmentSpec(
  observations={
    side: specs.BoundedArray((16, 16), np.uint8, 0, 255, side)
    for side in ('left', 'right')
  },
  actions=specs.DiscreteArray(2, np.int32, 'action'),
  rewards=specs.BoundedArray((), np.float32, 0, 1, 'reward'),
  discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
)


def make_environment():
  """Makes episodes of three steps with two cameras, which actions brighten."""

  def observe(action):
    frame = jnp.full((16, 16), 100, jnp.uint8)
    return {'left': frame * (action == 0), 'right': frame * (action == 1)}

  def reset(key):
    del key
    step = jnp.zeros((), jnp.int32)
    return step, functional.restart(observe(step))

  def step(state, action):
    state = state + 1
    reward = action.astype(jnp.float32)
    return state, functional.transition(
      reward, observe(action), is_terminal=state == 3
    )

  return functional.FunctionalEnvironment(SPEC, reset, step)


class _Pair(hk.Module):
  def __init__(self, config):
    super().__init__('pair')
    self._cores = config.first.make('first'), config.second.make('second')

  def initial_state(self, batch_size):
    return tuple(core.initial_state(batch_size) for core in self._cores)

  def __call__(self, inputs, state):
    made = [
      core(inputs, own) for core, own in zip(self._cores, state, strict=True)
    ]
    features = jnp.concatenate([output.features for output, _ in made], -1)
    auxiliary_outputs = {
      name: output.auxiliary
      for name, (output, _) in zip(('first', 'second'), made, strict=True)
    }
    return recurrence.CoreOutput(features, auxiliary_outputs), tuple(
      own for _, own in made
    )

  def unroll(self, inputs, start, state):
    return recurrence.unroll_step(self, inputs, start, state)


@ftwax.register('test.two_hierarchies')
@dataclasses.dataclass(frozen=True)
class TwoHierarchies(cores.Core):
  """Two hierarchies side by side, each with numbers of its own."""

  has_latents = True

  first: cores.RPTH = cores.RPTH(4, slow_period=2)  # noqa: RUF009
  second: cores.RPTH = cores.RPTH(  # noqa: RUF009
    4, slow_period=hyperparameters.UniformInteger(3, 9)
  )

  def make(self, name=None):
    return _Pair(self)


@ftwax.register('test.small_features')
@dataclasses.dataclass(frozen=True)
class SmallFeatures(tasks.Task):
  """Keeps features small, with a `discount`, as the agent has one."""

  cost: parts.Scalar = 1e-3
  discount: parts.Scalar = parts.scalar(0.5, high=1.0)
  name: str = 'small_features'

  source = auxiliary.TRAJECTORY

  def loss(self, inputs):
    features = inputs.fresh.output.features[:-1]
    weights = self.discount ** jnp.arange(features.shape[0])
    size = jnp.sum(jnp.square(features), (1, 2)) @ weights
    return self.cost * size, {'discount': self.discount}


PRIOR = hyperparameters.LogUniform(1e-4, 1e-2)
AGENT = ppo.PPOConfig(
  core=TwoHierarchies(),
  torso=torsos.Torso(
    entries={'left': 'mlp', 'right': 'mlp'}, hidden_sizes=(3,)
  ),
  tasks=(
    tasks.PixelControl(PRIOR, entry='left', cell_size=8, name='left'),
    tasks.PixelControl(0.25, 0.5, entry='right', cell_size=8, name='right'),
    SmallFeatures(discount=hyperparameters.Uniform(0.1, 0.9)),
    'latent_kl',
  ),
  sequence_length=4,
  batch_size=2,
  num_minibatches=1,
  num_epochs=1,
  replay=replay_options.Replay(capacity=4),
)


def make_experiment(num_steps):
  return ftwax.ExperimentConfig(
    agent=AGENT,
    environment=make_environment(),
    max_num_actor_steps=num_steps,
    num_environments=2,
    population=population.PopulationConfig(
      num_members=2,
      burn_in_games=1,
      explore=population.Perturb(probability=1.0),
      select=population.Truncation(0.5),
    ),
    steps_per_round=16,
    checkpointing=checkpoints.CheckpointingConfig(float('inf')),
    name='parts',
  )


@pytest.mark.ci
def test_two_of_a_kind_and_parts_of_ones_own_learn_evolve_and_resume(tmp_path):
  def run(num_steps, name, resume=False):
    return ftwax.run(
      make_experiment(num_steps),
      runtime='device',
      run_dir=tmp_path / name,
      resume=resume,
    )

  run(64, 'run')
  result, whole = run(160, 'run', resume=True), run(160, 'whole')
  values, expected = result.state.hyperparameters, whole.state.hyperparameters
  jax.tree.map(np.testing.assert_array_equal, values, expected)
  # Priors drew what differs, and numbers stay.
  assert len(set(np.asarray(values.tasks.left.cost).tolist())) == 2
  np.testing.assert_array_equal(values.tasks.right.cost, np.float32(0.25))
  np.testing.assert_array_equal(values.tasks.right.discount, np.float32(0.5))
  np.testing.assert_array_equal(values.core.first.slow_period, 2)
  assert np.all(np.asarray(values.core.second.slow_period) >= 3)
  rows = records.read_jsonl(result.run_dir / 'logs' / 'population.jsonl')
  first, last = rows[0], rows[-1]
  for name in ('tasks.left.cost', 'tasks.small_features.discount'):
    assert f'hyperparameters/{name}' in last
  assert (
    first['hyperparameters/tasks.left.cost']
    != (last['hyperparameters/tasks.left.cost'])
  )
  learner = records.read_jsonl(result.run_dir / 'logs' / 'learner.jsonl')
  assert {'left_error', 'right_error', 'small_features_discount'} <= set(
    learner[-1]
  )
  agent = ftwax.load(result.run_dir)
  assert agent.variables.hyperparameters.core.second.slow_period >= 3


def test_a_task_reads_the_numbers_that_it_has_now(key):
  """Its cost is an argument of the update, not a part of the program."""
  config = AGENT.replace(core='feed_forward', tasks=(SmallFeatures(),))
  network = config.make_network(SPEC)
  learner = config.make_learner_core(network, SPEC)
  batch = random_batches.make_batch(0, SPEC, network, config)
  state, update = learner.init(key), jax.jit(learner.update)
  losses = []
  for cost in (1.0, 2.0):
    values = hyperparameters.update(
      state.hyperparameters,
      {'tasks.small_features.cost': lambda _, cost=cost: jnp.float32(cost)},
    )
    _, metrics = update(state._replace(hyperparameters=values), batch)
    losses.append(float(metrics['small_features_loss']))
  np.testing.assert_allclose(losses[1], 2 * losses[0], rtol=1e-6)
  assert update._cache_size() == 1


@dataclasses.dataclass(frozen=True)
class WideHeads(heads.Heads):
  width: parts.Scalar = 1.0


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      lambda: ppo.PPOConfig(heads=WideHeads()),
      r'heads \(WideHeads\(\)\) must have options alone.*parts.option',
    ),
    (
      lambda: ppo.PPOConfig(tasks=(SmallFeatures(), SmallFeatures())),
      r'one name each.*choose another for one, such as name="small_features_2"',
    ),
    (
      lambda: ppo.PPOConfig(tasks=(SmallFeatures(name='left camera'),)).priors,
      r"name \('left camera'\) of SmallFeatures must be a word",
    ),
    (
      lambda: SmallFeatures(discount=2.0),
      r'discount \(2.0\) must lie in \[0, 1\]',
    ),
    (
      lambda: ppo.PPOConfig(core='lstm', tasks=('latent_kl',)),
      r'must have latents for the task latent_kl; choose core=cores.RPTH',
    ),
  ],
)
def test_what_does_not_fit_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_sweeps_take_the_same_paths():
  experiment = make_experiment(64)
  changed = sweeps.set_fields(experiment, {'agent.tasks.left.cost': 0.5})
  assert changed.agent.priors.tasks.left.cost == hyperparameters.Constant(0.5)
  assert changed.agent.priors.tasks.right == experiment.agent.priors.tasks.right
