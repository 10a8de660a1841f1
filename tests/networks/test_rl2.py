"""The core of two levels: what it forgets, and when."""

import chex
import dm_env
import fakes
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import trials
from ftwax.networks import (
  embeddings,
  entry_torsos,
  recurrent,
  recurrent_cores,
  rl2_core,
)

T, B = 7, 2
SPEC = fakes.make_spec(
  {
    rl2_core.EPISODE_START: dm_env.specs.BoundedArray((), np.float32, 0, 1),
    'x': dm_env.specs.Array((3,), np.float32),
  }
)


@pytest.fixture(scope='module')
def network():
  return recurrent.make_recurrent_network(
    SPEC,
    core=lambda: rl2_core.RL2Core(
      recurrent_cores.LSTM(4).make('inner'),
      recurrent_cores.GRU(5).make('outer'),
    ),
    make_torso=lambda: rl2_core.make_torso(
      SPEC.observations,
      lambda spec: embeddings.ObservationEmbedding(
        spec, make_vector_torso=lambda: entry_torsos.MLPTorso((4,))
      ),
    ),
  )


@pytest.fixture(scope='module')
def params(network):
  return network.init(jax.random.PRNGKey(0))


def _inputs(seed, episode_start):
  rng = np.random.default_rng(seed)
  return types.NetworkInput(
    observation={
      rl2_core.EPISODE_START: jnp.asarray(episode_start, jnp.float32),
      'x': jnp.asarray(rng.normal(size=(T, B, 3)), jnp.float32),
    },
    previous_action=jnp.asarray(rng.integers(3, size=(T, B)), jnp.int32),
    previous_reward=jnp.asarray(rng.normal(size=(T, B)), jnp.float32),
  )


def _unroll(network, params, inputs, start):
  return network.unroll(
    params, None, None, inputs, jnp.asarray(start), network.initial_state(B)
  )


@pytest.mark.slow
def test_unroll_is_step_after_step(network, params):
  rng = np.random.default_rng(0)
  start = rng.random((T, B)) < 0.2
  inputs = _inputs(0, rng.random((T, B)) < 0.4)
  outputs, last = _unroll(network, params, inputs, start)
  state = network.initial_state(B)
  for t in range(T):
    keep = jnp.asarray(~start[t])
    state = jax.tree.map(lambda x, k=keep: jnp.where(k[:, None], x, 0), state)
    at_t = jax.tree.map(lambda x, t=t: x[t], inputs)
    output, state = network.apply(params, None, None, at_t, state)
    np.testing.assert_allclose(output.features, outputs.features[t], atol=1e-5)
  chex.assert_trees_all_close(state, last, atol=1e-5)


def test_episodes_clear_the_inner_state_and_trials_both(network, params):
  """Told by what the past before the third step does to what comes after."""
  never = np.zeros((T, B), bool)
  at_three = never.copy()
  at_three[3] = True

  def depends_on_past(episode_start, start):
    first, second = (
      _unroll(network, params, inputs, start)[0].features[3:]
      for inputs in _two_pasts(episode_start)
    )
    differs = np.any(first != second, axis=(0, 1))
    return bool(np.any(differs[:4])), bool(np.any(differs[4:]))

  assert depends_on_past(never, never) == (True, True)
  assert depends_on_past(at_three, never) == (False, True)
  assert depends_on_past(at_three, at_three) == (False, False)


def _two_pasts(episode_start):
  inputs = _inputs(0, episode_start)
  x = inputs.observation['x']
  yield inputs
  yield inputs._replace(
    observation=inputs.observation | {'x': x.at[:3].add(1.0)}
  )


def test_marker_may_be_all_there_is_to_see(key):
  spec = {rl2_core.EPISODE_START: SPEC.observations[rl2_core.EPISODE_START]}
  torso = hk.transform(lambda x: rl2_core.make_torso(spec, lambda _: None)(x))
  found = torso.apply({}, key, {rl2_core.EPISODE_START: jnp.array([0.0, 3.0])})
  np.testing.assert_array_equal(found, [[0.0], [1.0]])


@pytest.mark.parametrize(
  'spec', [dm_env.specs.Array((3,), np.float32), {'x': None}]
)
def test_environments_without_trials_are_refused(spec):
  with pytest.raises(
    ValueError, match=r"must have the entry 'episode_start' .*TrialEnvironment"
  ):
    rl2_core.check_observation_spec(spec)


def test_environments_and_networks_agree_on_the_name():
  assert trials.EPISODE_START == rl2_core.EPISODE_START
