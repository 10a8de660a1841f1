"""Noise of the policy: its learner has the same, a greedy one has none."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
import scipy.special
import slow_cases
from dm_env import restart

from ftwax import types
from ftwax.agents import ftw, impala
from ftwax.agents.actor_critic import acting
from ftwax.networks import cores, heads

SPEC = fakes.make_vector_spec()
IMPALA = impala.IMPALAConfig(core=cores.LSTM(8))
FTW = ftw.FTWConfig(core=cores.RPTH(), tasks=('latent_kl',)).with_size(8)
DROPOUT = cores.LSTM(8, layer_norm=True, dropout=0.3)
MEMORY = cores.Memory(3, 2, 1)
CONFIGS = {
  'factorised': IMPALA.replace(heads=heads.Heads(noise='factorised')),
  'independent': IMPALA.replace(heads=heads.Heads(noise='independent')),
  'latent': FTW,
  'dropout': IMPALA.replace(core=DROPOUT),
  'dropout in layers': IMPALA.replace(
    core=cores.StackedLSTM((5, 6), layer=DROPOUT)
  ),
  # Latents are means: all noise is that of the levels.
  'dropout in a hierarchy': IMPALA.replace(
    core=cores.RPTH(DROPOUT, noise_scale=0.0, memory=MEMORY)
  ),
}


def _make(name, key):
  config = CONFIGS[name]
  network = config.make_network(SPEC)
  variables = types.ActorVariables(
    network.init(key),
    config.sample_hyperparameters(key),
    jnp.ones((1,)),
    jnp.int32(0),
  )
  return network, variables


# The others take long to compile.
FAST = ('factorised', 'independent', 'latent', 'dropout')


@pytest.mark.parametrize('name', slow_cases.cases(CONFIGS, FAST, ci=()))
def test_greedy_choice_does_not_depend_on_the_key(name, key):
  network, variables = _make(name, key)
  observation = fakes.sample(np.random.default_rng(0), SPEC.observations)
  timestep = jax.tree.map(
    lambda x: np.stack([x]), restart(observation)._replace(reward=0.0)
  )._replace(step_type=np.array([types.FIRST]), discount=np.ones(1))

  def logits(greedy, key):
    actor = acting.make_actor_core(network, SPEC, greedy=greedy)
    _, state = jax.jit(actor.select_action)(
      variables, timestep, actor.init(key, 1)
    )
    return state.logits

  other_key = jax.random.PRNGKey(7)
  np.testing.assert_array_equal(logits(True, key), logits(True, other_key))
  assert not np.array_equal(logits(False, key), logits(False, other_key))


@pytest.mark.parametrize('name', slow_cases.cases(CONFIGS, FAST))
def test_the_learner_has_the_policy_that_acted(name, key):
  """Ratios of probabilities are one at equal weights, across episodes too."""
  network, variables = _make(name, key)
  num_steps, num_rows = 5, 3
  timesteps = random_batches.make_trajectory(
    0, SPEC, network, num_steps, num_rows
  ).timestep
  actor = acting.make_actor_core(network, SPEC)
  select = jax.jit(actor.select_action)
  state, rows = actor.init(key, num_rows), []
  start = state.recurrent_state
  for t in range(num_steps + 1):
    timestep = jax.tree.map(lambda leaf, t=t: np.asarray(leaf)[t], timesteps)
    previous_action = acting.previous_action_of(timestep, state.action)
    seed = actor.get_extras(state)['seed']
    _, state = select(variables, timestep, state)
    rows.append((previous_action, seed, state.logits))
  previous_actions, seeds, logits = jax.tree.map(lambda *x: np.stack(x), *rows)

  @jax.jit
  def unroll(variables, seeds):
    output, _ = network.unroll(
      variables.params,
      variables.hyperparameters,
      seeds,
      acting.make_network_input(timesteps, previous_actions),
      acting.is_first(timesteps),
      start,
    )
    return output.logits

  acted = scipy.special.log_softmax(logits, axis=-1)
  same, others = (
    scipy.special.log_softmax(unroll(variables, each), axis=-1)
    for each in (seeds, seeds + 1000)
  )
  np.testing.assert_allclose(same, acted, atol=2e-5)
  assert np.abs(others - acted).max() > 1e-3
