"""Agents stay close to the policy of an earlier run."""

import contextlib
import dataclasses
import shutil
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
from test_recorded import GAME, LENGTH, make_experiment, record

import ftwax
from ftwax import hyperparameters, types
from ftwax.agents import ppo, r2d2
from ftwax.agents.actor_critic import auxiliary, frozen, optimization, tasks
from ftwax.environments import catch, functional
from ftwax.networks import cores
from ftwax.population import population_config
from ftwax.records import run_directory
from ftwax.runtime import prepare, recorded

SPEC = functional.as_game(GAME).spec


@pytest.fixture(scope='module')
def teacher(tmp_path_factory):
  """Returns the directory of a run that has learned to catch."""
  folder = tmp_path_factory.mktemp('teacher')
  record(folder / 'games', 64, num_parallel=16)
  experiment = make_experiment(
    folder / 'games',
    offline=True,
    agent={'core': cores.LSTM(8), 'learning_rate': 5e-3},
    max_num_actor_steps=4_000,
  )
  ftwax.run(experiment, run_dir=folder / 'run')
  return folder / 'run'


def make_student(run, agent=None, **options):
  """Returns an experiment whose own rewards teach nothing."""
  blind = {
    'learning_rate': 5e-3,
    'baseline_cost': 0.0,
    'max_abs_reward': 0.0,
    'tasks': (tasks.StayClose(cost=1.0, run=str(run)),),
  }
  return make_experiment(None, agent={**blind, **(agent or {})}, **options)


def test_the_loss_is_kl_from_the_frozen_policy():
  config = ppo.PPOConfig(sequence_length=6, batch_size=8)
  network = config.make_network(SPEC)
  trajectory = random_batches.make_trajectory(0, SPEC, network, 6, 8)
  rng = np.random.default_rng(0)
  shape = (7, 8, 3)
  own, other = (jnp.asarray(rng.normal(size=shape), 'f') for _ in range(2))
  output = types.NetworkOutput(own, jnp.zeros(shape[:2]), (), {})
  inputs = auxiliary.TaskInputs(
    {},
    {},
    config,
    auxiliary.Unrolled(trajectory, output),
    None,
    None,
    frozen={'stay_close': other[:-1]},
  )
  loss, metrics = tasks.StayClose(cost=2.0, burn_in=2).loss(inputs)
  p, q = (np.asarray(jax.nn.softmax(x))[:-1] for x in (other, own))
  kl = (p * np.log(p / q)).sum(-1)
  step_type = np.asarray(trajectory.timestep.step_type)[:-1]
  counts = step_type != types.LAST
  has_begun = np.cumsum(step_type == types.FIRST, axis=0) > 0
  counts &= has_begun | (np.arange(6)[:, None] >= 2)
  np.testing.assert_allclose(loss, 2 * kl[counts].sum(), rtol=1e-5)
  np.testing.assert_allclose(metrics['kl'], kl[counts].mean(), rtol=1e-5)


def test_the_frozen_core_sees_what_it_would_as_a_player():
  config = ppo.PPOConfig(
    core=cores.LSTM(4),
    sequence_length=5,
    normalize_observations=True,
    internal_rewards_prior=hyperparameters.Constant(-2.0),
  )
  network = config.make_network(SPEC)
  learner = config.make_learner_core(network, SPEC)
  variables = types.actor_variables(learner.init(jax.random.PRNGKey(0)))
  statistics = variables.observation_statistics
  variables = variables._replace(
    observation_statistics=statistics._replace(
      num_timesteps=jnp.float32(9),
      mean=jax.tree.map(lambda x: x + 0.3, statistics.mean),
    )
  )
  trajectory = random_batches.make_trajectory(3, SPEC, network, 5, 2)
  policy = config.make_policy(network, SPEC, evaluation=True)
  state = policy.init(jax.random.PRNGKey(1), 2)
  wanted = []
  for index in range(5):
    step = jax.tree.map(lambda x, i=index: x[i], trajectory.timestep)
    state = state._replace(action=trajectory.previous_action[index])
    _, state = policy.select_action(variables, step, state)
    wanted.append(state.logits)
  made = frozen.make(network, SPEC, variables)
  np.testing.assert_allclose(
    made.unroll(trajectory), np.stack(wanted), rtol=1e-4, atol=1e-5
  )
  # Its variables are arguments of what is compiled, and no constants.
  traced = jax.make_jaxpr(lambda one: one.unroll(trajectory))(made)
  sizes = {leaf.shape for leaf in jax.tree.leaves(variables.params)}
  assert len(traced.in_avals) == len(jax.tree.leaves(variables))
  assert not sizes & {
    np.shape(one) for one in traced.consts if np.size(one) > 8
  }


@pytest.mark.ci
@pytest.mark.parametrize('runtime', ['device', 'local'])
def test_a_student_takes_over_a_policy_and_resumes(teacher, tmp_path, runtime):
  run = tmp_path / 'teacher'
  shutil.copytree(teacher, run)
  experiment = make_student(run, max_num_actor_steps=6_000)
  short = experiment.replace(max_num_actor_steps=3_000)
  ftwax.run(short, runtime=runtime, run_dir=tmp_path / 'parts')
  moved = tmp_path / 'moved'
  run.rename(moved)
  resumed = ftwax.run(
    make_student(moved, max_num_actor_steps=6_000),
    runtime=runtime,
    run_dir=tmp_path / 'parts',
    resume=True,
  )
  whole = ftwax.run(
    make_student(moved, max_num_actor_steps=6_000),
    runtime=runtime,
    run_dir=tmp_path / 'whole',
  )
  jax.tree.map(
    np.testing.assert_array_equal, resumed.state.params, whole.state.params
  )
  # From here on nothing needs it.
  shutil.rmtree(moved)
  agent = ftwax.load(whole.run_dir)
  assert agent.evaluate(GAME, num_episodes=50).mean() > 0.9
  agent.save(tmp_path / 'shared')
  assert ftwax.load(tmp_path / 'shared').evaluate(GAME, 2).mean() == 1
  with pytest.raises(ValueError, match='run .*moved.* of stay_close: source'):
    ftwax.run(
      make_student(moved, max_num_actor_steps=7_000),
      runtime=runtime,
      run_dir=tmp_path / 'parts',
      resume=True,
    )


def test_another_policy_is_refused_when_a_run_is_resumed(teacher, tmp_path):
  experiment = make_student(teacher, max_num_actor_steps=300)
  ftwax.run(experiment, run_dir=tmp_path / 'run')
  other = make_student(tmp_path / 'run', max_num_actor_steps=600)
  with pytest.raises(ValueError, match='must have the frozen policy that the'):
    ftwax.run(other, run_dir=tmp_path / 'run', resume=True)


@dataclasses.dataclass(frozen=True)
class _Late(tasks.Task):
  """A task with an option of the name of one of a frozen policy."""

  source: ClassVar[str] = auxiliary.TRAJECTORY

  step: int = 3
  name: str = 'late'

  def loss(self, inputs):
    return jnp.zeros(()), {}


def test_other_tasks_have_the_options_with_which_they_began(teacher, tmp_path):
  own = tasks.StayClose(run=str(teacher))
  for step, resume in ((3, False), (4, True)):
    experiment = make_student(
      teacher, agent={'tasks': (_Late(step), own)}, max_num_actor_steps=300
    )
    refused = pytest.raises(
      run_directory.ConfigMismatchError, match=r'agent\.tasks\.0\.step: 3 in'
    )
    with refused if resume else contextlib.nullcontext():
      ftwax.run(experiment, run_dir=tmp_path / 'run', resume=resume)


def test_costs_are_annealed_and_differ_between_members(teacher, tmp_path):
  task = tasks.StayClose(
    cost=hyperparameters.LogUniform(0.1, 10.0), run=str(teacher)
  )
  decay = optimization.LinearDecay(steps=20, names=('tasks.stay_close.cost',))
  experiment = make_student(
    teacher,
    agent={'tasks': (task,), 'decay': decay},
    population=population_config.PopulationConfig(2, exploits=False),
    max_num_actor_steps=2_000,
  )
  state = ftwax.run(experiment, run_dir=tmp_path / 'run').state
  costs = np.asarray(state.hyperparameters.tasks.stay_close.cost)
  assert costs.shape == (2,) and costs[0] != costs[1]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'run': ''}, r'run of stay_close must be the directory of a run, and is'),
    ({'run': 'nowhere'}, r'run \(nowhere\) of stay_close: source .* must be'),
    ({'member': 3}, r'member \(3\) must be from 0 to 0; choose 0'),
    ({'step': 7}, r'step \(7\) must be one of \['),
  ],
)
def test_what_cannot_be_read_is_told(teacher, change, message):
  task = tasks.StayClose(**{'run': str(teacher), **change})
  experiment = make_student(teacher, agent={'tasks': (task,)})
  with pytest.raises(ValueError, match=message) as caught:
    recorded.check(prepare.prepare(experiment))
  assert '\n' not in str(caught.value)


def test_agents_and_games_that_do_not_fit_are_refused(teacher):
  other = make_student(teacher, environment=catch.make(6, 4))
  with pytest.raises(ValueError, match='must be of a game with the observatio'):
    recorded.check(prepare.prepare(other))
  with pytest.raises(ValueError, match=r'tasks \(stay_close\) must not train'):
    r2d2.R2D2Config(tasks=('stay_close',))
  with pytest.raises(ValueError, match=r'burn_in \(6\) of StayClose must be'):
    make_student(teacher, agent={'tasks': (tasks.StayClose(burn_in=LENGTH),)})
  with pytest.raises(ValueError, match='must need no files for make_train'):
    ftwax.make_train(make_student(teacher))
  left = recorded.without(make_student(teacher).agent)
  assert left.tasks == ()
