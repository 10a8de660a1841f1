"""Actors and learners agree where seats end, wait and return, for any core."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seat_games
import slow_cases
import test_every_core

from ftwax import types
from ftwax.agents.actor_critic import acting
from ftwax.environments import functional, game_vectors
from ftwax.networks import recurrent
from ftwax.population import seating
from ftwax.replay import trajectories
from ftwax.runtime.device import rollout
from ftwax.runtime.local import acting as host_acting
from ftwax.runtime.local import arena as arena_lib

NUM_GAMES, LENGTH, NUM_ROLLOUTS = 2, 5, 6
GAME = seat_games.make()


def flat(tree):
  return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def make(name):
  network = recurrent.make_recurrent_network(
    GAME.spec,
    core=test_every_core.CORES[name],
  )
  leaves, structure = jax.tree.flatten(network.init(jax.random.PRNGKey(0)))
  keys = jax.random.split(jax.random.PRNGKey(1), len(leaves))
  # Far from uniform, so that a wrong state shows in the logits.
  params = structure.unflatten(
    leaf + 0.3 * jax.random.normal(key, leaf.shape)
    for leaf, key in zip(leaves, keys, strict=True)
  )
  return network, types.ActorVariables(params, None, jnp.ones(1), jnp.int32(0))


def roll(network, variables):
  """Returns consecutive trajectories of the device's rollouts."""
  games = functional.vectorize(GAME, NUM_GAMES)
  actor = acting.make_actor_core(network, GAME.spec)
  state, timestep = games.reset(jax.random.PRNGKey(2))
  num_rows = NUM_GAMES * seat_games.NUM_SEATS

  def step(state, action):
    state, timestep = games.step(state, action.reshape(NUM_GAMES, -1))
    return state, flat(timestep), ()

  rolled = rollout.start(
    state, flat(timestep), actor.init(jax.random.PRNGKey(3), num_rows), True
  )
  one = jax.jit(
    lambda rolled: rollout.rollout(
      GAME.spec, step, actor.select_action, variables, rolled, LENGTH
    )
  )
  made, counts = [], 0
  for _ in range(NUM_ROLLOUTS):
    rolled, trajectory, episodes = one(rolled)
    assert not episodes.faults.any()
    made.append(trajectory)
    counts += episodes.moved.sum(axis=0)
  return made, counts


def _where(mask, leaf):
  return np.asarray(leaf)[np.asarray(mask, bool)]


def _act_on_host(network, variables):
  """Returns trajectories of the local runtime."""
  policy = acting.make_actor_core(network, GAME.spec)
  places = seating.make_seating(GAME.teams, 1, NUM_GAMES)
  arena = arena_lib.Arena(
    game_vectors.make_games(lambda seed: GAME, range(NUM_GAMES), 'seats'),
    places,
  )
  actors = host_acting.Actors(policy, arena)
  actors.begin(
    jax.random.PRNGKey(4), np.zeros((NUM_GAMES, seat_games.NUM_SEATS), int)
  )
  template = trajectories.make_template(
    GAME.spec, network.initial_state(1), LENGTH
  )
  own = host_acting.put(
    jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], variables)
  )
  made, counts = [], 0
  for _ in range(NUM_ROLLOUTS):
    num_rows = NUM_GAMES * seat_games.NUM_SEATS
    into = host_acting.make_arrays(template, 1, num_rows)
    steps = actors.rollout(own, into)
    try:
      while True:
        next(steps)
    except StopIteration as end:
      counts += end.value.moved.sum(axis=0)[0]
    squeezed = host_acting.map_rows(
      lambda axis, leaf: np.squeeze(leaf, axis - 1), into
    )
    made.append(squeezed)
  return made, counts


def _check(network, variables, made, counts):
  """Compares the actor's outputs with the learner's, and counts decisions."""
  unroll = jax.jit(
    functools.partial(
      network.unroll, variables.params, variables.hyperparameters
    )
  )
  num_learned = 0
  for trajectory in made:
    timestep = trajectory.timestep
    assert not (timestep.step_type == types.ABSENT).any()
    output, _ = unroll(
      trajectory.seed,
      acting.make_network_input(timestep, trajectory.previous_action),
      acting.is_first(timestep),
      trajectory.recurrent_state,
    )
    mask = np.asarray(timestep.step_type[:-1] != types.LAST)
    for own, other in (
      (output.logits[:-1], trajectory.logits),
      (output.value[:-1], trajectory.value[:-1]),
    ):
      np.testing.assert_allclose(
        _where(mask, own), _where(mask, other), rtol=1e-4, atol=1e-5
      )
    num_learned += mask.astype(int).sum(axis=0)
  # All but the last one, whose outcome a seat may still wait for.
  assert set((counts - num_learned).tolist()) <= {0, 1}


# A plain one, and one of complex numbers.
_QUICK = ('lstm', 'lru')


@pytest.mark.parametrize(
  'name',
  slow_cases.cases(
    # The other reads an entry of its own.
    [name for name in test_every_core.CORES if name != 'rl2'],
    _QUICK,
    ci={*test_every_core.CORES} - {*test_every_core.LONG},
  ),
)
def test_the_ratio_is_one_and_no_decision_is_lost(name):
  network, variables = make(name)
  on_device = roll(network, variables)
  on_host = _act_on_host(network, variables)
  for made, counts in (on_device, on_host):
    _check(network, variables, made, counts)
  compare(on_device[0], on_host[0], with_actions=False)


def compare(made, others, with_actions):
  """Compares the trajectories of the same games."""
  for own, other in zip(made, others, strict=True):
    mask = np.asarray(own.timestep.step_type[:-1] != types.LAST)
    np.testing.assert_array_equal(
      own.timestep.step_type, other.timestep.step_type
    )
    for one, two in (
      (own.timestep.reward[1:], other.timestep.reward[1:]),
      (own.timestep.observation[:-1], other.timestep.observation[:-1]),
    ):
      np.testing.assert_array_equal(_where(mask, one), _where(mask, two))
    if with_actions:
      one, two = own.previous_action[1:], other.previous_action[1:]
      np.testing.assert_array_equal(_where(mask, one), _where(mask, two))
      np.testing.assert_allclose(
        _where(mask, own.logits), _where(mask, other.logits), 1e-4, 1e-5
      )
