"""The program on memory in first person, with runs of a few steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftwax
from ftwax import types
from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import browser
from ftwax.inference import loading


@pytest.fixture(scope='module')
def first_person():
  """The program, which is outside of the package."""
  import first_person as module

  return module


def test_a_forgetful_policy_acts_on_zeros(first_person):
  def select_action(variables, timestep, state):
    return timestep + state.recurrent_state, state

  policy = types.ActorCore(None, select_action, None, None)
  state = types.ActorState(*[()] * len(types.ActorState._fields))._replace(
    recurrent_state=jnp.ones(2)
  )
  action, _ = policy.select_action(None, jnp.arange(2.0), state)
  np.testing.assert_array_equal(action, [1, 2])
  forgets = first_person.forgetful(policy).select_action
  np.testing.assert_array_equal(
    forgets(None, jnp.arange(2.0), state)[0], [0, 1]
  )


def test_the_slow_core_alone_is_cut(first_person):
  params = {
    name: {'w': jnp.ones(2)} for name in ('rpth/level_0/lstm', 'rpth/level_1/x')
  }
  variables = types.ActorVariables(params, (), (), ())
  kept = first_person.without_slow_core(variables).params
  assert [float(leaf['w'].sum()) for leaf in kept.values()] == [2, 0]


def _places(first_person, shape, seed):
  rng = np.random.default_rng(seed)
  return first_person.Places(*(rng.random((*shape, 3)) < 0.5 for _ in range(3)))


def test_probes_find_what_states_hold_and_nothing_else(first_person):
  shape = (40, 12, 2)
  places = _places(first_person, shape, 0)
  noise = np.random.default_rng(1).normal(size=(*shape, 5))
  states = np.concatenate(
    [places.is_ahead[..., :2], places.is_right[..., :2], noise], axis=-1
  ).astype(np.float32)
  flag, opponent, mate = first_person.find_places(places, states)
  assert flag > 0.99 and opponent > 0.99 and abs(mate - 0.5) < 0.1


def test_places_are_those_of_the_state(first_person):
  config = capture_the_flag.CaptureTheFlagConfig(
    height=11, width=15, observation='rays', wall_density=0.0
  )
  game = capture_the_flag.make(config)
  state, _ = game.reset(jax.random.PRNGKey(0))
  cell = lambda row, column: row * config.width + column  # noqa: E731
  state = state._replace(
    # Players 0 and 1 face east; 1 is behind 0, and 2 is ahead of both.
    cell=jnp.array([cell(5, 7), cell(5, 5), cell(5, 9), cell(1, 13)]),
    direction=jnp.array([1, 1, 3, 3]),
    flag_cell=state.flag_cell.at[0].set(cell(8, 7)),  # South of player 0.
    waiting=jnp.zeros(4, jnp.int32),
  )
  places = first_person.read_places(state, config)
  np.testing.assert_array_equal(places.is_ahead[0], [False, True, False])
  np.testing.assert_array_equal(places.is_right[0], [True, False, False])
  np.testing.assert_array_equal(places.is_unseen[0], [True, False, True])
  np.testing.assert_array_equal(places.is_unseen[1, 1:], [False, False])
  # Who waits is nowhere, and sees nothing that could be missed.
  state = state._replace(waiting=jnp.array([0, 3, 3, 0]))
  places = first_person.read_places(state, config)
  assert not places.is_unseen[0, 2] and not places.is_unseen[1].any()
  assert places.is_ahead[0, 1] and not places.is_right[0, 1]


@pytest.mark.parametrize('population', ['capture_the_flag', 'first_person'])
def test_games_are_read_step_by_step(first_person, population):
  knows = first_person.what_it_knows
  agent = ftwax.load(population, greedy=False)
  config = browser.read_config(agent.game_spec.environment, team_size=2)
  config = config.replace(num_steps=5)
  record = knows.play(
    agent,
    loading.initial_variables(population, 1),
    capture_the_flag.make(config),
    config,
    knows.Options(population, 'tactician', num_games=3, seed=0),
    first_person.read_places
    if population == 'first_person'
    else (knows.read_facts),
  )
  assert record.states.shape == record.untrained.shape == (5, 3, 2, 128)
  assert not np.allclose(record.states, record.untrained)
  last = record.facts[-1]  # Unseen things, or whether a mate is near.
  assert last.dtype == bool and last.shape[:3] == (5, 3, 2) and last.any()


@pytest.mark.slow
def test_cores_are_trained_cut_and_not_repeated(
  first_person, tmp_path, monkeypatch, capsys
):
  options = first_person.Options(
    directory=str(tmp_path),
    variants=('with_hierarchy',),
    num_seeds=1,
    num_members=1,
    num_environments=4,
    max_num_actor_steps=4_800,
    num_games=4,
    num_probed=12,
  )
  monkeypatch.setattr(
    first_person.ablation.os, 'sched_setaffinity', lambda *everything: None
  )
  # In this process: a run as the command would start it.
  monkeypatch.setattr(
    first_person.ablation,
    '_run_all',
    lambda options, variants, seeds: first_person.ablation.run(
      dataclasses.replace(options, seed=seeds[0]), variants[0]
    ),
  )
  first_person.main(options)
  printed = capsys.readouterr().out
  assert 'The best member of each run' in printed
  row = [
    line for line in printed.splitlines() if line.startswith('with_hierarchy')
  ][-1]
  assert row.count('(') == 3  # As it is, forgetting, and cut.
  ((_, cell),) = first_person._read(options, first_person.CUTS).items()
  assert all(0 <= score <= 1 for score in cell['slow cut'])
  ((_, cell),) = first_person._read(options, first_person.PROBES).items()
  assert len(cell['trained']) == len(cell['untrained']) == 3
  assert 'untrained' in printed and 'team mate' in printed
  # Nothing is measured again.
  monkeypatch.setattr(first_person, 'cut', None)
  monkeypatch.setattr(first_person, 'probe', None)
  monkeypatch.setattr(
    first_person.ablation, '_run_all', lambda *everything: None
  )
  first_person.main(options)
  assert row in capsys.readouterr().out
