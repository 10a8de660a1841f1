"""Actors whose network a server applies: they write what their own would."""

import contextlib
import functools
import threading
import time

import dm_env
import fakes
import jax
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting, normalization, replays
from ftwax.environments import games
from ftwax.population import seating as seating_lib
from ftwax.replay.reverb import servers
from ftwax.runtime import experiment, prepare
from ftwax.runtime.distributed import (
  environments,
  inference,
  processes,
  remote_policy,
  settings,
)
from ftwax.runtime.local import game_loop

SPEC = fakes.make_vector_spec()
CONFIG = impala.IMPALAConfig(
  hidden_size=8,
  sequence_length=5,
  batch_size=4,
  max_queue_size=100,
  normalize_observations=True,
)
EXPERIMENT = experiment.ExperimentConfig(
  agent=CONFIG,
  environment=functools.partial(fakes.FakeEnvironment, SPEC, 4, False),
  max_num_actor_steps=100,
  num_environments=2,
  game_spec=games.GameSpec(SPEC, (0,), ('reward',)),
)
NETWORK = EXPERIMENT.agent.make_network(SPEC)
POLICY = EXPERIMENT.agent.make_policy(NETWORK, SPEC)


class _Learner:
  """Offers the variables of a first state."""

  def __init__(self):
    core = EXPERIMENT.agent.make_learner_core(NETWORK, SPEC)
    variables = types.actor_variables(core.init(jax.random.PRNGKey(1)))
    statistics = variables.observation_statistics
    self.variables_ = variables._replace(
      observation_statistics=statistics._replace(mean={'': np.ones(4, 'f')})
    )

  def variables(self, known_steps):
    leaves = [leaf[None] for leaf in jax.tree.leaves(self.variables_)]
    return [] if known_steps == 0 else leaves


class _Counter:
  """Tells the server that actors act still."""

  def report_inference(self):
    return False

  def finish(self, name):
    assert name == 'inference'


@pytest.fixture
def make_server(monkeypatch):
  """Makes servers of two actors, and runs them in threads."""
  stop = threading.Event()
  monkeypatch.setattr(
    processes, 'node', lambda name: contextlib.nullcontext(stop)
  )
  threads = []

  def make(**options):
    server = inference.InferenceServer(
      EXPERIMENT, settings.Settings(**options), [_Learner()], _Counter()
    )
    threads.append(threading.Thread(target=server.run))
    threads[-1].start()
    while server.describe(0) is None:
      time.sleep(0.01)
    return server

  yield make
  stop.set()
  for thread in threads:
    thread.join()


def _make_policy(server, index, stop=None):
  return remote_policy.RemotePolicy(
    processes.Remote(server, 'inference'),
    (index, 0),
    POLICY,
    SPEC,
    stop or threading.Event(),
  )


def _make_timestep(step_type, seed=0):
  observation = np.random.default_rng(seed).normal(
    size=(2, *SPEC.observations.shape)
  )
  return dm_env.TimeStep(
    step_type=np.full(2, step_type, np.int32),
    reward=np.ones(2, np.float32),
    discount=np.ones(2, np.float32),
    observation=observation.astype(SPEC.observations.dtype),
  )


FIRST = _make_timestep(dm_env.StepType.FIRST)
MID = _make_timestep(dm_env.StepType.MID, 1)


@pytest.fixture
def replay():
  """A replay server, its client and batches from it."""
  server = servers.make_server(
    replays.make_tables(EXPERIMENT.agent, SPEC, POLICY)
  )
  client = server.localhost_client()
  dataset = replays.make_dataset(EXPERIMENT.agent, SPEC, POLICY, client)
  yield client, dataset
  dataset.close()
  server.stop()


def _act(server, index, client, num_steps):
  """Acts in two environments; the policy is elsewhere."""
  adder = replays.make_adder(EXPERIMENT.agent, SPEC, POLICY, client, 2)
  actors = remote_policy.make_actors(
    processes.Remote(server, 'inference'),
    index,
    POLICY,
    SPEC,
    jax.random.PRNGKey(index),
    [adder],
    2,
    threading.Event(),
  )
  seating = seating_lib.make_seating((0,), 1, 2)
  made = environments.make_environment(EXPERIMENT, seating, (index,), 'test')
  loop = game_loop.play_rounds(
    made.arena, actors, lambda: np.zeros((2, 1)), prepare.prepare(EXPERIMENT)
  )
  for _ in range(num_steps):
    next(loop)
  adder.close()


def _unroll(variables, trajectory):
  """Returns the logits [T + 1, B, num_actions] that a learner computes."""
  timestep = normalization.with_normalized_observation(
    variables.observation_statistics,
    acting.with_own_reward(variables.internal_rewards, trajectory.timestep),
  )
  output, _ = NETWORK.unroll(
    variables.params,
    variables.hyperparameters,
    jax.random.PRNGKey(0),
    acting.make_network_input(timestep, trajectory.previous_action),
    acting.is_first(timestep),
    trajectory.recurrent_state,
  )
  return output.logits


def test_a_learner_computes_the_logits_that_acted(make_server, replay):
  client, dataset = replay
  server = make_server()
  threads = [
    threading.Thread(target=_act, args=(server, index, client, 42))
    for index in range(2)
  ]
  for thread in threads:
    thread.start()
  variables = _Learner().variables_
  for _ in range(6):  # Of 8 sequences of 5 in 4 environments.
    trajectory = next(dataset).batch.trajectory
    acts = trajectory.timestep.step_type[:-1] != dm_env.StepType.LAST
    assert 0.7 < np.mean(acts) < 0.9
    np.testing.assert_allclose(
      _unroll(variables, trajectory)[:-1][acts],
      trajectory.logits[acts],
      rtol=1e-4,
      atol=1e-5,
    )
  for thread in threads:
    thread.join()


def test_a_state_is_zero_at_first_and_then_moves(make_server):
  server = make_server()
  policy = _make_policy(server, 1)
  state = POLICY.init(jax.random.PRNGKey(0), 2)

  def read_states():
    return [
      np.concatenate(server.recurrent_state(i, 0), axis=-1) for i in (0, 1)
    ]

  assert not np.any(read_states())
  policy.core.select_action((), FIRST, state)
  of_other, first = read_states()
  assert not np.any(of_other)
  assert np.all(np.any(first, axis=-1))
  policy.core.select_action((), MID, state)
  assert np.all(np.any(read_states()[1] != first, axis=-1))
  # Whoever takes the place begins from zero.
  _make_policy(server, 1).core.select_action((), FIRST, state)
  np.testing.assert_allclose(read_states()[1], first, rtol=1e-6)


def test_a_request_that_is_sent_twice_is_answered_once(make_server):
  server = make_server()
  leaves = jax.tree.leaves(FIRST)
  first = server.select_action(0, 0, 7, leaves)
  state = server.recurrent_state(0, 0)
  jax.tree.map(
    np.testing.assert_array_equal, server.select_action(0, 0, 7, leaves), first
  )
  jax.tree.map(
    np.testing.assert_array_equal, server.recurrent_state(0, 0), state
  )
  server.select_action(0, 0, 8, jax.tree.leaves(MID))
  assert np.any(server.recurrent_state(0, 0)[0] != state[0])


def test_actors_that_ask_together_are_served_together(make_server):
  server = make_server(inference_wait_s=20.0)
  served = []
  select_actions = server._batches[0].select_actions

  def select_and_note(timesteps):
    served.append(sorted(timesteps))
    return select_actions(timesteps)

  server._batches[0].select_actions = select_and_note
  leaves = jax.tree.leaves(FIRST)
  threads = [
    threading.Thread(target=server.select_action, args=(index, 0, 1, leaves))
    for index in range(2)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert served == [[0, 1]]


def test_episodes_do_not_go_on_with_another_server(make_server):
  server, other = make_server(), make_server()
  policy = _make_policy(server, 0)
  state = POLICY.init(jax.random.PRNGKey(0), 2)
  policy.core.select_action((), FIRST, state)
  policy._server = processes.Remote(other, 'inference')
  with pytest.raises(
    environments.EnvironmentFailure,
    match='was restarted, and recurrent states were lost',
  ):
    policy.core.select_action((), MID, state)
  policy.core.select_action((), FIRST, state)
  policy.core.select_action((), MID, state)


def test_an_actor_that_is_told_to_end_waits_no_longer():
  stop = threading.Event()
  stop.set()
  server = inference.InferenceServer(
    EXPERIMENT, settings.Settings(), [_Learner()], _Counter()
  )
  with pytest.raises(
    processes.UnreachableError, match='inference must answer describe'
  ):
    _make_policy(server, 0, stop).get_variables(['policy'])
