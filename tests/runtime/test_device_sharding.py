"""Runs over several devices give the numbers of one, and say what fits."""

import functools

import functional_fakes
import jax
import numpy as np
import pytest
import run_helpers

from ftwax.agents import impala
from ftwax.environments import functional
from ftwax.networks import cores, torsos
from ftwax.population import population_config, seating, selection
from ftwax.records import loggers
from ftwax.replay import replay_options
from ftwax.runtime import sharding
from ftwax.runtime.device import compiled_arena, loop, placement, sizes

pytestmark = pytest.mark.slow

SIZES = {
  'core': cores.LSTM(8),
  'torso': torsos.Torso(hidden_sizes=(8,)),
  'sequence_length': 5,
  'batch_size': 8,
  'queue': replay_options.Queue(max_size=16),
}
DEVICES = jax.devices()[:4]


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


def _make_game(seed):
  del seed
  return functional_fakes.make_team_matching(episode_length=5)


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('device', tmp_path)


def _assert_near(tree, other):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
    tree,
    other,
  )


def _make_single(batch_size=8, **options):
  config = impala.IMPALAConfig(**{**SIZES, 'batch_size': batch_size})
  return run_helpers.make_experiment(
    config, _make_matching, **{'num_environments': 8, **options}
  )


def test_environments_are_spread(run):
  one = run(_make_single(batch_size=16), 'one')
  four = run(_make_single(batch_size=16), 'four', devices=DEVICES)
  assert len(four.state.steps.sharding.device_set) == 4
  assert four.counts[:3] == one.counts[:3]
  assert four.mean_return == one.mean_return
  _assert_near(four.state, one.state)


def test_a_run_goes_on_on_another_number_of_devices(run):
  longer = _make_single(batch_size=4, max_num_actor_steps=400)
  one = run(longer, 'one', eval_every=200)
  run(_make_single(batch_size=4), devices=DEVICES)
  resumed = run(longer, resume=True, devices=DEVICES[:2], eval_every=200)
  assert resumed.counts[:3] == one.counts[:3]
  assert resumed.counts.learner_steps > 8
  _assert_near(resumed.state, one.state)


def _make_population(environment, **options):
  return run_helpers.make_experiment(
    impala.IMPALAConfig(**{**SIZES, 'batch_size': 4}),
    environment,
    population=population_config.PopulationConfig(
      4, burn_in_games=0, **options
    ),
    num_environments=16,
    steps_per_round=5,
    max_num_actor_steps=400,
  )


def _assert_spread(result):
  params = jax.tree.leaves(result.state.params)
  assert {leaf.sharding.shard_shape(leaf.shape)[0] for leaf in params} == {2}


def test_members_with_their_own_games_are_spread(run):
  config = _make_population(_make_matching)
  one = run(config, 'one', eval_every=200)
  two = run(config, 'two', eval_every=200, devices=DEVICES[:2])
  _assert_spread(two)
  assert two.counts[:3] == one.counts[:3]
  _assert_near(two.state, one.state)
  rows = [
    loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
    for result in (one, two)
  ]
  assert [row['num_episodes'] for row in rows[0]] == [40, 40]
  for row, other in zip(*rows, strict=True):
    np.testing.assert_allclose(
      row['member_returns'], other['member_returns'], atol=0.2
    )


def test_members_in_common_games_are_spread(run):
  config = _make_population(_make_game, select=selection.WinProbability(0.5001))
  first = run(config, 'first', devices=DEVICES[:2])
  again = run(config, 'again', devices=DEVICES[:2])
  _assert_spread(first)
  run_helpers.assert_same(first.state, again.state)
  assert first.counts.actor_steps >= 400
  assert np.isfinite(first.mean_return)


def _count_operations(devices):
  """Returns floating-point operations of a call on each device."""
  mesh = sharding.make_mesh(devices)
  config = impala.IMPALAConfig(**SIZES)
  game = functional.as_game(functional_fakes.make_matching())
  network = config.make_network(game.spec)
  made = loop.Loop(
    arena=compiled_arena.make_arena(
      game, seating.make_seating(game.teams, 1, 8)
    ),
    actor=config.make_policy(network, game.spec),
    learner=sharding.place_learner_core(
      mesh, config.make_learner_core(network, game.spec)
    ),
    replay=None,
    config=population_config.PopulationConfig(1, exploits=False),
    sizes=sizes.Sizes(5, 8, config.batch_size),
  )
  state = jax.device_put(
    jax.jit(made.init)(jax.random.PRNGKey(0)),
    placement.of_loop(mesh, made.arena.seating),
  )
  call = functools.partial(made.call, 1)
  compiled = jax.jit(call).lower(state).compile()
  return compiled.cost_analysis()['flops']


def test_each_device_does_its_share():
  share = _count_operations(DEVICES) / _count_operations(DEVICES[:1])
  # Adding up what each has learned, and the optimizer, are done by all.
  assert 0.25 < share < 0.6


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'num_environments': 6, 'batch_size': 6},
      r'num_environments \(6\) must divide by the .* \(4\).*; choose 8 or',
    ),
    ({'batch_size': 2}, r'batch_size \(2\) must divide by .*; choose 4 or'),
  ],
)
def test_what_cannot_be_shared_out_is_refused(run, options, message):
  with pytest.raises(ValueError, match=message):
    run(_make_single(**options), devices=DEVICES)


def test_members_that_cannot_be_shared_out_are_refused(run):
  config = run_helpers.make_experiment(
    impala.IMPALAConfig(**SIZES),
    _make_game,
    population=population_config.PopulationConfig(6),
    num_environments=12,
  )
  with pytest.raises(ValueError, match=r'num_members \(6\) must divide .*8'):
    run(config, devices=DEVICES)


@pytest.mark.parametrize('devices', [(), (DEVICES[0], DEVICES[0])])
def test_a_device_stands_there_once(devices):
  with pytest.raises(ValueError, match=r'devices .* distinct devices; choose'):
    sharding.make_mesh(devices)
