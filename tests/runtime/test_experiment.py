"""Configs of experiments: names, agents and environments."""

import dataclasses
import re

import gymnasium
import numpy as np
import optax
import pytest
import run_helpers
from gymnasium import spaces

import ftwax
from ftwax.agents import ppo
from ftwax.environments import catch, process_games
from ftwax.networks import cores, torsos
from ftwax.records import checkpoints, config_files
from ftwax.runtime import prepare, run_records, runs

_SMALL = run_helpers.FEED_FORWARD


class Counting(gymnasium.Env):
  """Pays 1 for each of three steps."""

  observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
  action_space = spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._steps = 0
    return np.zeros(1, np.float32), {}

  def step(self, action):
    self._steps += 1
    observation = np.full(1, self._steps, np.float32)
    return observation, 1.0, self._steps == 3, False, {}


def test_an_experiment_is_named_after_agent_and_environment():
  made = ftwax.ExperimentConfig(ppo.PPOConfig(), 'CartPole-v1', 100)
  assert made.name == 'ppo_CartPole-v1'
  spec = prepare.prepare(made).spec.environment
  assert spec.observations.shape == (4,) and spec.actions.num_values == 2
  made = ftwax.ExperimentConfig(_SMALL, 'ALE/Pong-v5', 100)
  assert made.name == 'impala_ALE_Pong-v5'
  assert ftwax.ExperimentConfig(_SMALL, Counting, 1).name == 'impala_Counting'
  named = ftwax.ExperimentConfig(_SMALL, Counting, 1, name='a')
  assert named.name == named.replace(environment='CartPole-v1').name == 'a'
  moved = made.replace(agent=ppo.PPOConfig(), environment=Counting)
  assert moved.name == 'ppo_Counting'


def test_what_users_hold_has_short_reprs(tmp_path):
  made = ftwax.ExperimentConfig(
    ppo.PPOConfig(core=cores.LSTM(32)), 'CartPole-v1', 100, num_environments=4
  )
  assert repr(made) == (
    'ExperimentConfig(agent=PPOConfig(core=LSTM(hidden_size=32)),'
    " environment='CartPole-v1', max_num_actor_steps=100,"
    " name='ppo_CartPole-v1', num_environments=4)"
  )
  assert len(repr(made.replace(environment=catch.make()))) < 250
  counts = run_records.Counts(actor_steps=2000)
  result = runs.RunResult(tmp_path, counts, 12.345, {'w': np.zeros(9999)})
  assert repr(result) == (
    f'RunResult(2,000 steps, mean return 12.3, {str(tmp_path)!r})'
  )


@pytest.mark.parametrize(
  ('name', 'meant'),
  [
    ('gamma', 'discount'),
    ('lr', 'learning_rate'),
    ('n_steps', 'sequence_length'),
    ('ent_coef', 'entropy_cost'),
    ('clip_range', 'clip_epsilon'),
    ('update_epochs', 'num_epochs'),
    ('batchsize', 'batch_size'),
  ],
)
def test_names_of_other_libraries_are_suggested(name, meant):
  with pytest.raises(TypeError, match=f'no field .* did you mean {meant}'):
    ppo.PPOConfig(**{name: 1})


def test_names_of_other_parts_are_suggested():
  with pytest.raises(TypeError, match='did you mean num_environments'):
    ftwax.ExperimentConfig(_SMALL, 'CartPole-v1', 100, num_envs=4)
  with pytest.raises(TypeError, match='did you mean discount of another part'):
    ftwax.ExperimentConfig(_SMALL, 'CartPole-v1', 100, gamma=0.9)


def test_schedules_have_a_remedy():
  with pytest.raises(ValueError, match=r'linear schedule, add \.decayed_over'):
    ppo.PPOConfig(learning_rate=optax.linear_schedule(1e-3, 0.0, 100))


def test_the_queue_follows_the_batch():
  config = ppo.PPOConfig(batch_size=64)
  assert config.queue_size == 64
  assert config.replace(batch_size=128).queue_size == 128
  assert ppo.PPOConfig().queue_size == 32


def _choice(capsys, experiment, directory=None):
  runs._choose(experiment, prepare.prepare(experiment), None, directory)
  return capsys.readouterr().out


def test_the_runtime_is_chosen_and_told(capsys, tmp_path):
  in_jax = ftwax.ExperimentConfig(_SMALL, catch.make(), 64)
  assert _choice(capsys, in_jax).startswith('Runtime: device, compiled with')
  assert _choice(capsys, in_jax.replace(environment=Counting)) == (
    'Runtime: local, since the environment is in Python.\n'
  )
  for options, reason in (
    ({'replay': 'functional'}, 'since replay is set.'),
    (
      {'stepping': process_games.Stepping(2)},
      'since stepping.processes is set.',
    ),
  ):
    told = _choice(capsys, in_jax.replace(**options))
    assert re.match(f'Runtime: local, .*{reason}', told), told
  # A run that was not compiled is not resumed as one that is.
  with checkpoints.Checkpointer(tmp_path / 'checkpoints') as checkpointer:
    checkpointer.save(1, {'x': np.zeros(1)}, {'state': 'RunState'})
  told = _choice(capsys, in_jax, tmp_path)
  assert 'local, since the run that is resumed was not compiled.' in told


def test_observers_must_be_observers():
  class Mine:
    def observe_evaluation(self, row, run):
      return False

  with pytest.raises(ValueError, match='derive Mine from ftwax.runtime.Obs'):
    ftwax.ExperimentConfig(_SMALL, catch.make(), 64, observers=[Mine()])


@pytest.mark.parametrize('agent', ['ppo', None, 3])
def test_other_agents_are_refused(agent):
  with pytest.raises(ValueError, match=r'agent .* must be the config'):
    ftwax.ExperimentConfig(agent, 'CartPole-v1', 100)


def test_other_environments_are_refused():
  for make in (
    lambda: ftwax.ExperimentConfig(_SMALL, 3, 100),
    lambda: ftwax.Evaluation(3),
  ):
    with pytest.raises(TypeError, match=r'environment \(3\) must be the name'):
      make()


def test_an_environment_in_jax_may_be_given_as_it_is():
  environment = catch.make()
  made = ftwax.ExperimentConfig(_SMALL, environment, 64)
  assert made.environment_factory(1) is environment
  config_files.to_json(made)  # Can be recorded.


def test_only_a_seed_is_given_as_the_seed():
  given = []

  def make_maze(size=5):
    given.append(size)
    return Counting()

  def make_maze_of_seed(size=5, *, seed):
    given.append((size, seed))
    return Counting()

  for make in (make_maze, make_maze_of_seed, lambda number: make_maze(number)):
    ftwax.ExperimentConfig(_SMALL, make, 64).environment_factory(7)
  assert given == [5, (5, 7), 7]


def test_a_class_gets_a_seed_if_it_takes_one():
  class Seeded(Counting):
    def __init__(self, seed):
      self.observation_space = spaces.Box(0.0, seed, (1,), np.float32)

  made = ftwax.ExperimentConfig(_SMALL, Seeded, 64)
  spec = made.environment_factory(5).observation_spec()
  assert spec.maximum == 5.0


@pytest.mark.slow
def test_a_class_of_gymnasium_is_played_as_it_is(tmp_path):
  experiment = ftwax.ExperimentConfig(_SMALL, Counting, 64, replay='functional')
  result = ftwax.run(experiment, run_dir=tmp_path / 'run')
  assert result.mean_return == 3.0
  agent = ftwax.load(result.run_dir)
  np.testing.assert_array_equal(agent.evaluate(Counting(), 2), [3.0, 3.0])


def test_a_factory_may_make_an_environment_of_gymnasium():
  made = ftwax.ExperimentConfig(_SMALL, lambda seed: Counting(), 64)
  games = prepare.prepare(made).make_games([0, 1], 'games')
  assert games.reset().observation.shape == (2, 1)
  timestep = games.step(np.zeros(2, np.int32))
  np.testing.assert_array_equal(timestep.reward, [1.0, 1.0])


def test_a_run_says_what_entries_are_taken_for():
  class Stack(Counting):
    observation_space = spaces.Box(0, 255, (4, 24, 20), np.uint8)

    def _observe(self):
      return np.zeros((4, 24, 20), np.uint8)

  experiment = ftwax.ExperimentConfig(_SMALL, Stack, 10)
  line = prepare.describe_inputs(prepare.prepare(experiment))
  assert line == (
    'Observation: pixels in [0, 1] (image, 24x20x4): 1,920 inputs.'
  )
  own = _SMALL.replace(torso=torsos.Torso(encodings={'': 'embedding'}))
  line = prepare.describe_inputs(prepare.prepare(experiment.replace(agent=own)))
  assert 'a learned vector for each of 256 values' in line


@pytest.mark.parametrize(
  ('config', 'most'),
  [(ftwax.ExperimentConfig, 24), (ftwax.PopulationConfig, 15)],
)
def test_configs_are_short(config, most):
  assert len(dataclasses.fields(config)) <= most
