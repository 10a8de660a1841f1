"""Runs of agents that learn from a prioritized replay, on every runtime."""

import itertools
import json

import functional_fakes
import in_process
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_helpers
import slow_cases

import ftwax
from ftwax import hyperparameters
from ftwax.agents import r2d2
from ftwax.agents.actor_critic import exploration
from ftwax.networks import cores, torsos
from ftwax.population import population_config, selection
from ftwax.records import loggers
from ftwax.replay import replay_options
from ftwax.runtime import distributed, prepare, runs
from ftwax.runtime.device import sizes
from ftwax.runtime.distributed import runner

pytestmark = pytest.mark.usefixtures('compiles_once')

MATCHING = functional_fakes.make_matching()
REPLAY = replay_options.Prioritized(
  capacity=32, min_size=8, samples_per_insert=2.0
)
AGENT = r2d2.R2D2Config(
  core=cores.GRU(4),
  torso=torsos.Torso(hidden_sizes=(4,)),
  batch_size=4,
  sequence_length=4,
  replay=REPLAY,
)


def _make(agent=AGENT, environment=MATCHING, **options):
  return run_helpers.make_experiment(agent, environment, **options)


def _stored(directory):
  """Returns the paths of the newest checkpoint that belong to the replay."""
  *_, folder = sorted((directory / 'checkpoints').iterdir())
  content = (folder / 'state.safetensors').read_bytes()
  header = json.loads(content[8 : 8 + int.from_bytes(content[:8], 'little')])
  names = [name for name in header if 'hyperparameters' not in name]
  return [name for name in names if 'replay/' in name]


@pytest.mark.parametrize(
  ('is_saved', 'runtime'),
  slow_cases.rows(
    itertools.product([True, False], ['device', 'local']),
    [(True, 'device')],
  ),
)
def test_a_resumed_run_has_the_replay_unless_it_is_left_out(
  tmp_path, runtime, is_saved, capsys
):
  agent = AGENT.replace(replay=REPLAY.replace(is_saved=is_saved))
  run = run_helpers.make_run(runtime, tmp_path)
  run(_make(agent, max_num_actor_steps=96))
  told = capsys.readouterr().out
  assert 'Replay: 32 trajectories of 4 steps' in told
  assert ('in each checkpoint' in told) == is_saved
  assert bool(_stored(tmp_path / 'run')) == is_saved
  resumed = run(_make(agent), resume=True)
  if is_saved:
    whole = run(_make(agent), name='whole')
    run_helpers.assert_same(whole.state, resumed.state)
    # What is compared has learned since.
    early = run(_make(agent, max_num_actor_steps=96), name='early')
    assert run_helpers.differ(early.state.params, resumed.state.params)
  assert all(
    np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(resumed.state.params)
  )


@pytest.mark.ci
def test_a_run_of_python_games_keeps_its_replay(tmp_path):
  pytest.importorskip('gymnasium', reason='the extra envs is not there')
  run = run_helpers.make_run('local', tmp_path)
  experiment = _make(environment='CartPole-v1', max_num_actor_steps=96)
  run(experiment)
  assert _stored(tmp_path / 'run')
  run(experiment.replace(max_num_actor_steps=112), resume=True)
  text = (tmp_path / 'run' / 'logs' / 'learner.jsonl').read_text()
  sizes_of = [json.loads(row)['replay_size'] for row in text.splitlines()]
  # A rollout of four rows has four trajectories, of four steps each.
  assert sizes_of[-1] > 96 / 4


def test_a_population_evolves_the_ladder_and_the_returns(tmp_path):
  agent = AGENT.replace(
    learning_rate=hyperparameters.LogUniform(1e-4, 1e-2),
    n_step=hyperparameters.UniformInteger(1, 6),
    discount=hyperparameters.Uniform(0.9, 0.99),
    exploration=exploration.EpsilonLadder(
      epsilon=hyperparameters.Uniform(0.1, 0.5)
    ),
  )
  result = run_helpers.make_run('device', tmp_path)(
    _make(
      agent,
      max_num_actor_steps=600,
      num_environments=3,
      steps_per_round=16,
      population=population_config.PopulationConfig(
        num_members=3, select=selection.Truncation(0.4), burn_in_games=1
      ),
    )
  )
  state = result.state
  for name in ('n_step', 'exploration.epsilon', 'learning_rate'):
    values = np.asarray(
      {
        hyperparameters.name(path): leaf
        for path, leaf in jax.tree.leaves_with_path(state.hyperparameters)
      }[name]
    )
    assert values.shape == (3,)
  lineage = (tmp_path / 'run' / 'lineage.jsonl').read_text().splitlines()
  assert len(lineage) > 1  # Somebody copied somebody.
  assert all(
    np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.params)
  )


@pytest.mark.ci
def test_seeds_and_values_are_mapped():
  init, train = ftwax.make_train(_make(max_num_actor_steps=96))
  keys = jax.random.split(jax.random.PRNGKey(0), 2)
  states, metrics = jax.jit(jax.vmap(train))(jax.vmap(init)(keys))
  state, own = jax.jit(train)(init(keys[1]))
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-4),
    jax.tree.map(lambda x: x[1], states.training.params),
    state.training.params,
  )
  np.testing.assert_array_equal(metrics['replay_size'][1], own['replay_size'])
  many = jax.vmap(lambda n: init(keys[0], n_step=n))(jnp.array([1, 5]))
  after, _ = jax.jit(jax.vmap(train))(many)
  assert run_helpers.differ(
    *[jax.tree.map(lambda x, i=i: x[i], after.training.params) for i in (0, 1)]
  )


def test_samples_per_insert_give_the_number_of_updates():
  for ratio, rollouts, updates in ((1.0, 1, 1), (4.0, 1, 4), (0.25, 4, 1)):
    agent = AGENT.replace(replay=REPLAY.replace(samples_per_insert=ratio))
    parts = prepare.prepare(_make(agent))
    found = sizes.make_sizes(parts)
    assert (found.num_rollouts, found.num_updates) == (rollouts, updates)
    assert found.num_updates * 4 == ratio * found.num_rollouts * 4


def test_a_ratio_that_cannot_be_met_is_refused():
  agent = AGENT.replace(replay=REPLAY.replace(samples_per_insert=0.001))
  parts = prepare.prepare(_make(agent))
  with pytest.raises(
    ValueError, match=r'samples_per_insert \(0.001\) must give a whole number'
  ):
    sizes.make_sizes(parts)
  with pytest.raises(ValueError, match='must give a whole number'):
    runner.check(parts, distributed.Settings(num_actors=2))


def test_a_replay_that_does_not_fit_is_refused():
  agent = AGENT.replace(replay=REPLAY.replace(capacity=10**9))
  with pytest.raises(
    ValueError, match=r'replay.capacity \([\d,]+ trajectories of .* must fit'
  ):
    prepare.prepare(_make(agent))
  large = AGENT.replace(
    core=cores.DNC(4, cores.Memory(num_slots=512, word_size=64)),
    replay=REPLAY.replace(capacity=10**6),
  )
  with pytest.raises(ValueError, match='or a core with a smaller state'):
    prepare.prepare(_make(large))


def _read_learner(directory):
  return loggers.read_jsonl(loggers.log_path(directory, 'learner'))


@pytest.mark.python_310
@pytest.mark.parametrize('num_members', [1, 2])
def test_reverb_learns_by_priority(tmp_path, num_members, capsys):
  agent = AGENT.replace(
    tasks=('reward_prediction',),
    replay=REPLAY.replace(
      priority_exponent=hyperparameters.Uniform(0.5, 0.9), burn_in=2
    ),
  )
  experiment = _make(
    agent,
    replay='reverb',
    num_environments=2 * num_members,
    max_num_actor_steps=160 * num_members,
    population=population_config.PopulationConfig(num_members, exploits=False),
  )
  run = run_helpers.make_run('local', tmp_path)
  result = run(experiment)
  assert 'in memory, and in no checkpoint' in capsys.readouterr().out
  # Of each rollout of two rows there is one update.
  num_updates = result.counts.learner_steps
  assert list(result.state.steps) == [num_updates] * num_members
  first, *_, last = _read_learner(tmp_path / 'run')
  assert first['replay_size'] == 2 and 'loss' not in first
  assert 30 <= last['replay_size'] <= 32
  assert np.all(np.isfinite(last['loss'])) and np.all(
    np.asarray(last['reward_prediction_live']) == 1.0
  )
  # A resumed run fills the table before it learns on.
  resumed = run(
    experiment.replace(
      max_num_actor_steps=result.counts.actor_steps + num_members
    ),
    resume=True,
  )
  before, after = (
    jax.tree.map(np.asarray, each.state.params) for each in (result, resumed)
  )
  run_helpers.assert_same(before, after)
  assert int(resumed.state.steps[0]) > num_updates


@pytest.mark.ci
def test_two_devices_learn_what_one_does(tmp_path):
  experiment = _make(max_num_actor_steps=96)
  states = []
  for count in (1, 2):
    run = run_helpers.make_run('device', tmp_path)
    result = run(experiment, name=str(count), devices=jax.devices()[:count])
    states.append(result.state)
  first, second = (jax.tree.map(np.asarray, state.params) for state in states)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-4), first, second
  )


class _Losing(in_process.InProcess):
  """Keeps the learner, and loses an actor before one of its calls."""

  def __init__(self, lost_at):
    super().__init__()
    self._lost_at = lost_at
    self._num_played = 0
    self.learner = None

  def call(self, name, method, *args, num_returns=1):
    if name == 'actor/1' and method == 'play':
      self._num_played += 1
      if self._num_played == self._lost_at:
        self.lose(name)
    return super().call(name, method, *args, num_returns=num_returns)

  def close(self):
    self.learner = self._nodes['learner/0']
    super().close()


@pytest.mark.parametrize(
  ('lost_at', 'samples_per_insert'),
  slow_cases.rows(itertools.product([0, 4], [2.0, 0.5]), [(4, 2.0)]),
)
def test_each_actors_rows_are_streams_of_their_own(
  tmp_path, lost_at, samples_per_insert
):
  agent = AGENT.replace(
    replay=REPLAY.replace(samples_per_insert=samples_per_insert, capacity=64)
  )
  experiment = _make(agent, num_environments=3, max_num_actor_steps=240)
  engine = _Losing(lost_at)
  parts = prepare.prepare(experiment)
  runner.run_with(
    lambda: engine,
    parts,
    runs.open_run_directory(experiment, tmp_path, False),
    settings=distributed.Settings(num_actors=2),
  )
  ring = jax.tree.map(lambda x: x[0], engine.learner._learner.replay).replay
  data, size = ring.ring.data, np.asarray(ring.ring.size)
  assert size.shape == (6,) and np.all(size > 4)
  seeds = np.asarray(data.trajectory.seed)  # [E, L, T + 1]
  observation = np.asarray(data.trajectory.timestep.observation)
  breaks = []
  for stream, length in enumerate(size):
    for place in range(1, length):
      past, present = place - 1, place
      if seeds[stream, past, -1] == seeds[stream, present, 0]:
        np.testing.assert_array_equal(
          observation[stream, past, -1], observation[stream, present, 0]
        )
      else:
        breaks.append(stream)
  # A restarted actor begins its streams anew.
  assert breaks == ([3, 4, 5] if lost_at else [])


def test_a_replay_must_hold_the_streams_of_all_actors():
  parts = prepare.prepare(_make(num_environments=4))
  runner.check(parts, distributed.Settings(num_actors=4))
  with pytest.raises(
    ValueError,
    match=r'replay.capacity \(32\) must hold burn_in \+ 1 \(2\) trajectories of'
    ' each of 20 environments of all actors; choose 80',
  ):
    runner.check(parts, distributed.Settings(num_actors=5))
  line = prepare.describe_replay(parts, is_local=False)
  assert line.startswith('Replay: 32 trajectories of 4 steps')
  assert 'in memory, and in no checkpoint' in line
