"""The program on memory in first person, with runs of a few steps."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types


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
  ((_, cell),) = first_person._read(options).items()
  assert all(0 <= score <= 1 for score in cell['slow cut'])
  monkeypatch.setattr(first_person, 'cut', None)  # It is not cut again.
  monkeypatch.setattr(
    first_person.ablation, '_run_all', lambda *everything: None
  )
  first_person.main(options)
  assert row in capsys.readouterr().out
