"""Devices that share games act without each other, to the same end."""

import dataclasses
import functools
import re

import functional_fakes
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax.agents.actor_critic import acting
from ftwax.population import population_config
from ftwax.records import checkpoints
from ftwax.runtime import prepare, sharding
from ftwax.runtime.device import placement, spread_arena, train

NUM_DEVICES = 2
COLLECTIVES = re.compile(
  r' (all-gather|all-reduce|all-to-all|collective-permute)(-start)?\('
)


def _make_solo(seed):
  """Makes a game of one seat, whose episodes end at different times."""
  del seed
  return functional_fakes.make_matching(episode_length=5)


GAMES = {
  'seats': population_helpers.make_game,
  'solo': _make_solo,
}


@functools.cache
def _make_loops(game, greedy=False, num_members=4):
  """Returns loops of the same population for one device and for two."""
  population = population_helpers.POPULATION
  if num_members == 1:
    population = population_config.PopulationConfig(1, exploits=False)
  parts = prepare.prepare(
    population_helpers.make_experiment(
      GAMES[game], num_environments=8, population=population
    )
  )
  one = train.make_loop(parts)
  if greedy:  # Draws nothing, with any key.
    actor = acting.make_actor_core(
      parts.network, parts.spec.environment, greedy=True
    )
    one = dataclasses.replace(one, actor=actor)
  mesh = sharding.make_mesh(jax.devices()[:NUM_DEVICES])
  two = placement.spread(mesh, one, parts.game)
  shardings = placement.of_loop(mesh, two.arena.seating)
  return one, two, shardings


def _start(loop, shardings):
  state = jax.jit(loop.init)(jax.random.PRNGKey(0))
  return jax.device_put(state, shardings)


@pytest.mark.parametrize('game', GAMES)
def test_devices_do_not_wait_for_each_other_between_rollouts(game):
  _, loop, shardings = _make_loops(game)
  assert isinstance(loop.arena, spread_arena.SpreadArena)
  state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
  arguments = state.training, state.rollout
  act = jax.jit(
    loop.act,
    in_shardings=(shardings.population.members, shardings.rollout),
  )
  text = act.lower(*arguments).compile().as_text()
  loops, entry = text.split('\nENTRY ')
  assert not COLLECTIVES.findall(loops)
  # Before them, parameters are gathered where members play on both.
  assert bool(re.findall('all-gather', entry)) == (game == 'seats')


@pytest.mark.parametrize(
  ('game', 'num_members', 'greedy'),
  [('seats', 4, True), ('solo', 4, False), ('seats', 1, False)],
)
def test_rollouts_are_those_of_one_device(game, num_members, greedy):
  one, two, shardings = _make_loops(game, greedy, num_members)
  state = _start(two, shardings)
  after, played = jax.jit(two.act)(state.training, state.rollout)
  state = jax.device_get(state)
  expected_after, expected = jax.jit(one.act)(state.training, state.rollout)
  assert np.ptp(expected[0].timestep.observation) > 0
  same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
  jax.tree.map(same, played, expected)
  for field in ('environment', 'timestep', 'episode_return', 'episode_length'):
    jax.tree.map(same, getattr(after, field), getattr(expected_after, field))


def test_devices_draw_different_actions():
  """Devices on which a member plays must not draw with the same key."""
  _, loop, shardings = _make_loops('seats')
  state = _start(loop, shardings)
  after, (trajectories, _) = jax.jit(loop.act)(state.training, state.rollout)
  actions = np.asarray(trajectories.previous_action)[0, 1:]  # [T, N, M]
  halves = np.split(actions, NUM_DEVICES, axis=2)
  assert np.any(halves[0] != halves[1])
  key, before = after.actor.key, state.rollout.actor.key
  assert np.all(np.any(np.asarray(key) != np.asarray(before), axis=-1))


@pytest.mark.ci
def test_members_learn_the_same_on_two_devices():
  one, two, shardings = _make_loops('solo')
  state = _start(two, shardings)
  ours, _ = jax.jit(functools.partial(two.call, 2))(state)
  state = jax.device_get(state)
  expected, _ = jax.jit(functools.partial(one.call, 2))(state)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
    ours.training,
    expected.training,
  )
  changed = run_helpers.differ(state.training.params, ours.training.params)
  assert changed


def test_games_whose_opponents_play_are_not_in_groups():
  one, _, _ = _make_loops('seats')
  seating = one.arena.seating
  opponents = np.array(seating.opponents)
  opponents[0] = 0
  arena = dataclasses.replace(
    one.arena,
    router=type(one.arena.router)(seating._replace(opponents=opponents)),
  )
  mesh = sharding.make_mesh(jax.devices()[:NUM_DEVICES])
  assert spread_arena.make_arena(mesh, arena, None) is arena


@pytest.mark.slow
def test_a_run_goes_on_on_more_and_on_fewer_devices(tmp_path, caplog):
  run = run_helpers.make_run('device', tmp_path)

  def resume(steps, num_devices):
    # Each member would be once in each game of four.
    experiment = population_helpers.make_experiment(
      num_environments=16,
      population=population_config.PopulationConfig(8, exploits=False),
      steps_per_round=300,
      max_num_actor_steps=steps,
      checkpointing=checkpoints.CheckpointingConfig(float('inf')),
    )
    devices = jax.devices()[:num_devices]
    result = run(experiment, resume=steps > 400, devices=devices)
    assert result.counts.actor_steps >= steps
    began_anew = 'begin anew' in caplog.text
    caplog.clear()
    return began_anew

  steps = iter((400, 800, 1200, 1600))
  assert not resume(next(steps), 1)
  assert resume(next(steps), 2)  # Seats are not in halves.
  assert not resume(next(steps), 2)
  assert not resume(next(steps), 1)  # Halves are seats of one device, too.
