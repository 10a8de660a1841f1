"""Seats that end, wait and return, from their game to what is learned."""

import functools
import json
import pathlib

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seat_games

import ftwax
from ftwax import population, types
from ftwax.agents import ppo
from ftwax.networks import cores, torsos

DISCOUNT = 0.8

ENVIRONMENTS = {
  'device': seat_games.make(),
  'local': seat_games.make_parallel,
}


def _experiment(runtime, max_num_actor_steps, decays=False, **options):
  config = ppo.PPOConfig(
    sequence_length=6,
    torso=torsos.Torso(hidden_sizes=(32,)),
    **{'batch_size': 32, **options},
  )
  config = config.replace(discount=DISCOUNT)
  if decays:
    config = config.decayed_over(max_num_actor_steps)
  return ftwax.ExperimentConfig(
    agent=config,
    environment=ENVIRONMENTS[runtime],
    max_num_actor_steps=max_num_actor_steps,
    num_environments=8,
  )


def _train(runtime, directory, max_num_actor_steps, **options):
  experiment = _experiment(runtime, max_num_actor_steps, **options)
  return ftwax.run(experiment, runtime=runtime, run_dir=directory / 'run')


def _values(agent):
  """Returns the value of each decision, by seat and step."""
  select, values = jax.jit(agent.actor.select_action), {}
  paid = seat_games.rewards(seat_games.TABLE)
  for seat, row in enumerate(seat_games.TABLE):
    state, owed = agent.actor.init(jax.random.PRNGKey(0), 1), 0.0
    for step, kind in enumerate(row):
      owed += paid[seat, step]
      if kind == types.ABSENT:
        continue
      timestep = dm_env.TimeStep(
        jnp.array([kind], jnp.int32),
        jnp.array([0.0 if kind == types.FIRST else owed], jnp.float32),
        jnp.ones(1),
        jnp.array(seat_games.observe(seat, step))[None],
      )
      owed = 0.0
      _, state = select(agent.variables, timestep, state)
      if kind != types.LAST:
        values[seat, step] = float(state.value[0])
  return values


@pytest.mark.ci
@pytest.mark.parametrize('runtime', ENVIRONMENTS)
@pytest.mark.parametrize(
  'core',
  [
    cores.FeedForward(32),
    pytest.param(cores.LSTM(16), marks=pytest.mark.slow),
  ],
  ids=['feed_forward', 'lstm'],
)
def test_learned_values_are_the_exact_ones(runtime, core, tmp_path):
  # What an LSTM makes of a last observation takes longer to settle.
  is_quick = isinstance(core, cores.FeedForward)
  num_steps = 120_000 if is_quick else 200_000
  result = _train(
    runtime,
    tmp_path,
    num_steps,
    core=core,
    learning_rate=2e-3 if is_quick else 5e-3,
    num_minibatches=4 if is_quick else 8,
    decays=True,
  )
  values = _values(ftwax.load(result.run_dir))
  exact = seat_games.exact_values(DISCOUNT)
  assert values.keys() == exact.keys()
  for place, value in exact.items():
    np.testing.assert_allclose(values[place], value, rtol=0.03, err_msg=place)


def _last_row(result):
  path = pathlib.Path(result.run_dir) / 'logs/learner.jsonl'
  return json.loads(path.read_text().splitlines()[-1])


@pytest.mark.parametrize(
  'runtime', [pytest.param('device', marks=pytest.mark.ci), 'local']
)
def test_metrics_are_means_over_decisions(runtime, tmp_path):
  result = _train(
    runtime, tmp_path, 400, core=cores.LSTM(16), learning_rate=0.0
  )
  row = _last_row(result)
  # Of an untrained policy of two actions; with half of the rows, it was half.
  assert row['entropy'] == pytest.approx(np.log(2), rel=1e-3)
  assert row['kl_old_new'] == pytest.approx(0.0, abs=1e-6)
  assert row['clip_fraction'] == 0.0


def test_steps_are_decisions_and_returns_end_with_the_seat():
  experiment = _experiment('device', 2_000, core=cores.FeedForward(16))
  init, train = ftwax.make_train(experiment)
  _, metrics = jax.jit(train)(jax.jit(init)(jax.random.PRNGKey(0)))
  assert metrics['is_valid'].all()
  counts = np.asarray(metrics['num_episodes'])
  # Games all run alike: the last ones have not ended.
  num_games = counts.sum() // 5
  assert num_games > 8
  total = seat_games.rewards(seat_games.TABLE).sum()
  returns = np.where(counts > 0, metrics['episode_return'], 0.0)
  mean = (returns * counts).sum() / counts.sum()
  assert mean == pytest.approx(total / 5, rel=0.1)
  decisions = (seat_games.TABLE < types.LAST).sum()
  per_game = metrics['num_steps'].sum() / num_games
  assert per_game == pytest.approx(decisions, rel=0.1)


@pytest.mark.parametrize(
  'runtime', [pytest.param('device', marks=pytest.mark.ci), 'local']
)
def test_members_and_opponents_take_seats_that_come_and_go(runtime, tmp_path):
  teams = (0, 1, 0, 1)
  environments = {
    'device': seat_games.make(teams=teams),
    'local': functools.partial(seat_games.make_parallel, teams=teams),
  }
  experiment = _experiment(
    runtime, 400, core=cores.GRU(16), batch_size=12, num_minibatches=4
  ).replace(
    environment=environments[runtime],
    population=population.PopulationConfig(num_members=2, burn_in_games=2),
    opponents={'random': population.uniform_player},
    num_environments=6,
  )
  result = ftwax.run(
    experiment, eval_every=200, runtime=runtime, run_dir=tmp_path / 'run'
  )
  path = pathlib.Path(result.run_dir) / 'logs/evaluation.jsonl'
  row = json.loads(path.read_text().splitlines()[-1])
  total = seat_games.rewards(seat_games.TABLE).sum()
  assert np.mean(row['episode_return']) == pytest.approx(total / 4)
  assert np.mean(row['episode_length']) == seat_games.NUM_COLUMNS - 1
