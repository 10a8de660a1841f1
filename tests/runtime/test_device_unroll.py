"""Updates that may not stand in a loop stand in none, be it only one."""

import functools

import dm_env
import jax
import jax.numpy as jnp
import pytest

from ftwax import types
from ftwax.runtime.device import loop

_T, _E = 3, 4


def _make_trajectories():
  rows = (1, _T + 1, _E)
  return types.Trajectory(
    timestep=dm_env.TimeStep(
      *(jnp.zeros(rows) for _ in dm_env.TimeStep._fields)
    ),
    previous_action=jnp.zeros(rows, jnp.int32),
    logits=jnp.zeros((1, _T, _E, 2)),
    recurrent_state=jnp.zeros((1, _E, 5)),
  )


def _make_state():
  fields = dict.fromkeys(types.TrainingState._fields, jnp.zeros(()))
  return types.TrainingState(**fields)


def _update(state, batch):
  total = jnp.sum(batch.trajectory.timestep.observation)
  return state._replace(params=state.params + jnp.cos(total)), {}


@pytest.mark.parametrize('num_updates', [1, 2, 4])
@pytest.mark.parametrize('unroll', [True, False])
def test_no_loop_where_none_may_be(num_updates, unroll):
  learner = types.LearnerCore(init=None, update=_update)
  learn = functools.partial(loop.learn, learner, None, num_updates, unroll)
  lowered = jax.jit(learn).lower(_make_state(), (), _make_trajectories())
  assert ('while' in lowered.as_text()) is not unroll
  state, _, (_, skipped) = learn(_make_state(), (), _make_trajectories())
  assert state.params == num_updates and skipped.shape == (num_updates,)
