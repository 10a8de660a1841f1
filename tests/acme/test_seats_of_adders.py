"""Adders write what the device's rollouts write, where seats come and go."""

import pathlib
import sys

import jax
import numpy as np
import seat_games

from ftwax.acme import adders, servers
from ftwax.agents.actor_critic import acting
from ftwax.environments import functional
from ftwax.replay import trajectories

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'networks'))
import test_seats_of_cores as seats  # noqa: E402


def _gather(monkeypatch, network, variables):
  """Returns the trajectories of the same games, played one by one."""
  games = functional.vectorize(seats.GAME, seats.NUM_GAMES)
  actor = acting.make_actor_core(network, seats.GAME.spec)
  state, timestep = games.reset(jax.random.PRNGKey(2))
  num_rows = seats.NUM_GAMES * seat_games.NUM_SEATS
  acts = actor.init(jax.random.PRNGKey(3), num_rows)
  template = trajectories.make_template(
    seats.GAME.spec, network.initial_state(1), seats.LENGTH
  )
  monkeypatch.setattr(servers, 'open_writer', lambda *_, **__: None)
  kept, records = adders.TrajectoryAdder(None, template, num_rows), []
  monkeypatch.setattr(kept, 'insert', records.append)
  select, step = jax.jit(actor.select_action), jax.jit(games.step)
  for _ in range(seats.NUM_ROLLOUTS * seats.LENGTH + 1):
    rows = jax.tree.map(np.array, seats.flat(timestep))
    previous = acting.previous_action_of(rows, acts.action)
    kept.add_timestep(rows, previous, acts.recurrent_state, acts.seed)
    action, acts = select(variables, rows, acts)
    kept.add_choice(acts.logits, 0, np.ones(1))
    state, timestep = step(state, action.reshape(seats.NUM_GAMES, -1))
  return [record.trajectory for record in records]


def test_adders_write_the_same_trajectories(monkeypatch):
  network, variables = seats.make('lstm')
  made, _ = seats.roll(network, variables)
  gathered = _gather(monkeypatch, network, variables)
  seats.compare(made, gathered, with_actions=True)
