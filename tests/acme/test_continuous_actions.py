"""Actions with continuous parts, all the way through one process."""

import dm_env
import fakes
import jax
import numpy as np

from ftwax import acme, distributions
from ftwax.acme import servers
from ftwax.agents import impala
from ftwax.environments import vector
from ftwax.networks import cores, torsos
from ftwax.replay import replay_options

SPEC = fakes.make_continuous_spec()
T, B = 4, 2


class _Recorder(fakes.FakeEnvironment):
  """Refuses actions off its spec, as every fake does, and keeps the others."""

  def __init__(self, seed):
    super().__init__(SPEC, episode_length=3, seed=seed)
    self.actions = []

  def step(self, action):
    self.actions.append(action)
    return super().step(action)


def test_trajectories_hold_what_was_drawn_and_environments_get_what_fits():
  config = impala.IMPALAConfig(
    core=cores.LSTM(4),
    torso=torsos.Torso(hidden_sizes=(4,)),
    sequence_length=T,
    batch_size=B,
    queue=replay_options.Queue(max_size=B),
  )
  builder = acme.Builder(config, B)
  network = config.make_network(SPEC)
  policy = builder.make_policy(network, SPEC)
  server = servers.make_server(builder.make_replay_tables(SPEC, policy))
  client = server.localhost_client()
  dataset = builder.make_dataset_iterator(client)
  learner = builder.make_learner(
    jax.random.PRNGKey(0), network, dataset, lambda *_: _NoLogger(), SPEC
  )
  adder = builder.make_adder(client, SPEC, policy)
  actor = builder.make_actor(
    jax.random.PRNGKey(1), policy, SPEC, learner, adder
  )
  made = []

  def make(seed):
    made.append(_Recorder(seed))
    return made[-1]

  environment = vector.VectorEnvironment([make(seed) for seed in range(B)])
  timestep = environment.reset()
  actor.observe_first(timestep)
  for _ in range(T):
    actor.update()
    action = actor.select_action(timestep.observation)
    timestep = environment.step(action)
    actor.observe(action, timestep)
  trajectory = jax.device_get(next(dataset).batch.trajectory)
  dataset.close()
  adder.close()
  server.stop()

  first = trajectory.timestep.step_type == dm_env.StepType.FIRST
  torque = trajectory.previous_action['arm']['torque']
  assert torque.shape == (T + 1, B, 2)
  np.testing.assert_array_equal(torque[first], 0.0)
  sent = jax.device_get(
    distributions.to_environment(SPEC.actions, trajectory.previous_action)
  )
  for column, recorder in enumerate(made):
    for step, action in enumerate(recorder.actions):
      if not first[step + 1, column]:
        jax.tree.map(
          lambda x, y: np.testing.assert_allclose(
            x[step + 1, column],  # noqa: B023
            y,
            atol=1e-6,
          ),
          sent,
          action,
        )


class _NoLogger:
  def write(self, values):
    del values
