"""Settings of JAX that a user's program may have, and keys of both kinds."""

import contextlib

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_helpers

import ftwax
from ftwax import trees
from ftwax.environments import functional

pytestmark = pytest.mark.usefixtures('compiles_once')

MATCHING = functional_fakes.make_matching()

X64 = {'jax_enable_x64': True}
SETTINGS = [
  {'jax_numpy_dtype_promotion': 'strict'},
  {'jax_transfer_guard': 'disallow'},
  {'jax_default_prng_impl': 'rbg'},
]


def _experiment(**options):
  return run_helpers.make_experiment(
    run_helpers.FEED_FORWARD, MATCHING, max_num_actor_steps=32, **options
  )


@contextlib.contextmanager
def _set(**settings):
  old = {name: getattr(jax.config, name) for name in settings}
  for name, value in settings.items():
    jax.config.update(name, value)
  try:
    yield
  finally:
    for name, value in old.items():
      jax.config.update(name, value)


def _name(settings):
  return next(iter(settings)).removeprefix('jax_')


@pytest.mark.parametrize(
  'settings',
  [pytest.param(X64, marks=pytest.mark.ci), *SETTINGS],
  ids=_name,
)
@pytest.mark.parametrize(
  'runtime', [pytest.param('local', marks=pytest.mark.ci), 'device']
)
def test_a_run_is_saved_and_loaded_under_each_setting(
  settings, runtime, tmp_path
):
  observation = np.array([0.0, 1.0], np.float32)
  with _set(**settings):
    run = run_helpers.make_run(runtime, tmp_path)
    result = run(_experiment(), eval_every=32)
    agent = ftwax.load(result.run_dir)
    _, state = agent.step(observation)
    action, _ = agent.step(observation, state)
  assert np.asarray(action).dtype == np.int32
  leaves = jax.tree.leaves(agent.variables.params)
  assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}


@pytest.mark.ci
@pytest.mark.parametrize('settings', SETTINGS, ids=_name)
def test_trainings_as_functions_work_under_each_setting(settings):
  with _set(**settings):
    with jax.transfer_guard('allow'):
      key = jax.random.PRNGKey(0)
    init, train = ftwax.make_train(_experiment())
    _, metrics = jax.jit(train)(jax.jit(init)(key))
  assert metrics['is_valid'].all()


def test_what_cannot_work_is_refused_in_one_line():
  with (
    _set(**X64),
    pytest.raises(ValueError, match='jax_enable_x64 .True. must be False'),
  ):
    ftwax.make_train(_experiment())
  with (
    _set(jax_enable_custom_prng=True),
    pytest.raises(ValueError, match='jax_enable_custom_prng .True. must be'),
  ):
    ftwax.make_train(_experiment())


@pytest.mark.ci
def test_keys_of_both_kinds_are_the_same():
  raw, typed = jax.random.PRNGKey(3), jax.random.key(3)
  init, _ = ftwax.make_train(_experiment())
  run_helpers.assert_same(init(raw), init(typed))
  keys = jax.random.split(raw, 2), jax.random.split(typed, 2)
  run_helpers.assert_same(*[jax.vmap(init)(key) for key in keys])
  games = functional.vectorize(MATCHING, 3)
  run_helpers.assert_same(games.reset(raw), games.reset(typed))
  config = run_helpers.FEED_FORWARD
  network = config.make_network(MATCHING.spec)
  learner = config.make_learner_core(network, MATCHING.spec)
  run_helpers.assert_same(learner.init(raw), learner.init(typed))
  policy = config.make_policy(network, MATCHING.spec)
  run_helpers.assert_same(policy.init(raw, 2), policy.init(typed, 2))


def test_keys_of_another_implementation_are_converted():
  keys = jax.random.split(jax.random.key(0, impl='rbg'), 3)
  raw = trees.raw_key(keys)
  assert raw.shape == (3, 2) and raw.dtype == jnp.uint32
  assert len(np.unique(raw, axis=0)) == 3
