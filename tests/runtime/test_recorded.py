"""Games are recorded, kept, checked and learned from."""

import json
import shutil

import dm_env
import jax
import numpy as np
import pytest
import seat_games

import ftwax
from ftwax import types
from ftwax.agents import ppo, r2d2
from ftwax.agents.actor_critic import optimization, tasks
from ftwax.environments import capture_the_flag, catch, functional, games
from ftwax.inference import recording
from ftwax.networks import cores
from ftwax.population import players
from ftwax.records import array_files, game_files, recorded_games
from ftwax.replay import demonstrations, trajectories
from ftwax.runtime import memory_checks, prepare, recorded, recorded_rows

GAME = catch.make(5, 4)
LENGTH = 6


def follow(key, observation):
  """Moves below the ball; the lowest row is that of the paddle."""
  del key
  ball = observation[:-1].sum(axis=0).argmax()
  return 1 + jax.numpy.sign(ball - observation[-1].argmax())


def record(directory, num_games=64, player=None, **options):
  made = functional.as_game(GAME)
  player = player or players.observing(follow)
  return recording.record(
    lambda seed: made, [player], [0], num_games, directory, **options
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  directory = tmp_path_factory.mktemp('recorded') / 'games'
  shown = []
  assert record(directory, num_parallel=16, show=shown.append) >= 64
  assert shown[-1] >= 64
  return directory


def make_experiment(folder, **options):
  agent = {
    'core': cores.GRU(16),
    'sequence_length': LENGTH,
    'batch_size': 16,
    'tasks': (tasks.Clone(),),
    **options.pop('agent', {}),
  }
  return ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(**agent),
    **{
      'environment': GAME,
      'max_num_actor_steps': 6_000,
      'num_environments': 16,
      'demonstrations': None if folder is None else str(folder),
      **options,
    },
  )


def test_what_a_seat_saw_and_did_is_kept(folder):
  spec = recorded_games.read_game(folder).environment
  (streams,) = recorded_games.read(folder, spec)
  step_type = streams.timestep.step_type
  assert step_type.shape == streams.shape and streams.shape[1] == 16
  assert recorded_games.count_steps(folder) == step_type.size
  is_first = step_type == types.FIRST
  np.testing.assert_array_equal(
    streams.previous_action == types.NO_ACTION, is_first
  )
  act = jax.vmap(jax.vmap(follow, (None, 0)), (None, 0))
  wanted = np.asarray(act(None, streams.timestep.observation))[:-1]
  counts = ~is_first[1:]
  np.testing.assert_array_equal(
    streams.previous_action[1:][counts], wanted[counts]
  )
  # It never misses a ball.
  assert streams.timestep.reward.min() == 0 < streams.timestep.reward.max()


def test_a_folder_gets_more_of_the_same_game_alone(tmp_path):
  folder = tmp_path / 'games'
  record(folder, 4)
  before = recorded_games.count_steps(folder)
  record(folder, 4, seed=1)
  assert recorded_games.count_steps(folder) == 2 * before
  spec = recorded_games.read_game(folder).environment
  assert len(list(recorded_games.read(folder, spec))) == 2
  other = functional.as_game(catch.make(6, 4))
  with pytest.raises(
    ValueError, match='must be new, or have recorded the same'
  ):
    recording.record(
      lambda seed: other, [players.observing(follow)], [0], 1, folder
    )
  with pytest.raises(ValueError, match=r'must be of a game with .*record this'):
    recorded_games.check(folder, other.spec)


def test_a_folder_with_something_else_is_left_alone(tmp_path):
  run = tmp_path / 'run'
  (run / '0000000000').mkdir(parents=True)
  for name in ('config.json', 'game.json', '0000000000/mine'):
    (run / name).write_text('mine')
  with pytest.raises(ValueError, match="new or empty, or .* 'config.json'"):
    record(run, 2)
  assert (run / 'game.json').read_text() == 'mine'
  assert (run / '0000000000' / 'mine').exists()
  # A recording that was killed in its first part begins again.
  (run / 'config.json').rename(tmp_path / 'config.json')
  record(run, 2)
  assert recorded_games.count_steps(run)
  # No link leads out of the folder.
  elsewhere = tmp_path / 'elsewhere'
  elsewhere.mkdir()
  (elsewhere / 'mine').touch()
  (run / '0000000001').symlink_to(elsewhere)
  with pytest.raises(OSError, match='exists'):
    record(run, 2)
  assert [path.name for path in elsewhere.iterdir()] == ['mine']


def test_a_damaged_folder_is_told(tmp_path):
  folder = tmp_path / 'games'
  record(folder, 2)
  spec = recorded_games.read_game(folder).environment
  index = folder / recorded_games.FILE
  text = index.read_text()
  for parts in ('[]', '[[1e9, 1]]', '[[-1, 1]]', '7'):
    index.write_text(f'{{"parts": {parts}}}')
    with pytest.raises(ValueError, match='must have steps|recorded games'):
      list(recorded_games.read(folder, spec))
  index.write_text(text)
  (part,) = [path for path in folder.iterdir() if path.is_dir()]
  (arrays,) = part.glob('games.safetensors*')
  content = bytearray(arrays.read_bytes())
  content[len(content) // 2] ^= 1
  arrays.write_bytes(content)
  with pytest.raises((ValueError, array_files.DamagedError)):
    list(recorded_games.read(folder, spec))


def test_sequences_join_where_one_ends(folder):
  spec = recorded_games.read_game(folder).environment
  streams = list(recorded_games.read(folder, spec))
  state = np.zeros((1, 3), np.float32)
  template = trajectories.make_template(spec, state, LENGTH)
  made = demonstrations.make_sequences(streams, template)
  length, rows = streams[0].shape
  count = (length - 1) // LENGTH * rows
  assert made.timestep.step_type.shape == (LENGTH + 1, count)
  assert (
    made.recurrent_state.shape == (count, 3) and not made.recurrent_state.any()
  )
  np.testing.assert_array_equal(
    made.timestep.observation[-1, :rows],
    made.timestep.observation[0, rows : 2 * rows],
  )
  drawn = demonstrations.sample(jax.random.PRNGKey(0), made, 4).trajectory
  assert drawn.timestep.reward.shape == (LENGTH + 1, 4)
  long = trajectories.make_template(spec, state, length)
  with pytest.raises(ValueError, match=rf'sequence_length={length - 1}\.'):
    demonstrations.make_sequences(streams, long)


@pytest.mark.ci
@pytest.mark.parametrize('runtime', ['device', 'local'])
def test_a_clone_acts_as_its_teacher_and_resumes(folder, tmp_path, runtime):
  # Its own rewards teach nothing.
  blind = {'learning_rate': 5e-3, 'baseline_cost': 0.0, 'max_abs_reward': 0.0}
  experiment = make_experiment(folder, agent=blind)
  short = experiment.replace(max_num_actor_steps=3_000)
  parts = ftwax.run(short, runtime=runtime, run_dir=tmp_path / 'parts')
  assert parts.counts.learner_steps
  resumed = ftwax.run(
    experiment, runtime=runtime, run_dir=tmp_path / 'parts', resume=True
  )
  whole = ftwax.run(experiment, runtime=runtime, run_dir=tmp_path / 'whole')
  *_, row = (tmp_path / 'whole/logs/learner.jsonl').read_text().splitlines()
  assert json.loads(row)['clone_log_prob'] > -0.3
  returns = ftwax.load(whole.run_dir).evaluate(GAME, num_episodes=50)
  assert returns.mean() > 0.9
  jax.tree.map(
    np.testing.assert_array_equal,
    resumed.state.params,
    whole.state.params,
  )


def test_a_run_goes_on_with_the_same_games_elsewhere_alone(folder, tmp_path):
  experiment = make_experiment(folder, max_num_actor_steps=300)
  ftwax.run(experiment, run_dir=tmp_path / 'run')
  more = {'max_num_actor_steps': 600}
  moved, other = tmp_path / 'moved', tmp_path / 'other'
  shutil.copytree(folder, moved)
  shutil.copytree(folder, other)
  record(other, 4)
  with pytest.raises(ValueError, match=r'must be the games that the run in .*'):
    ftwax.run(
      make_experiment(other, **more), run_dir=tmp_path / 'run', resume=True
    )
  resumed = ftwax.run(
    make_experiment(moved, **more), run_dir=tmp_path / 'run', resume=True
  )
  assert resumed.counts.actor_steps >= 600


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'demonstrations': None}, r'demonstrations \(None\) must be a directory'),
    ({'agent': {'tasks': ()}}, 'must be learned from by a task of the agent'),
    ({'environment': catch.make(6, 4)}, r'observations.*are of one with'),
    (
      {'replay': 'reverb'},
      r"tasks \(clone\) must learn from no files with replay='reverb'",
    ),
    (
      {'agent': {'tasks': (tasks.Clone(burn_in=LENGTH),)}},
      r'burn_in \(6\) of Clone must be below sequence_length',
    ),
  ],
)
def test_what_does_not_go_together_is_told(folder, change, message):
  with pytest.raises(ValueError, match=message):
    recorded.check(prepare.prepare(make_experiment(folder, **change)))


def test_after_training_nothing_needs_the_folder(folder, tmp_path):
  experiment = make_experiment(tmp_path / 'gone')
  parts = prepare.prepare(experiment)
  with pytest.raises(
    ValueError,
    match=r'gone\) must be a directory of recorded games, and has no',
  ):
    recorded.check(parts)
  agent = experiment.agent.replace(
    tasks=('value_replay', 'clone'),
    decay=optimization.LinearDecay(
      names=('learning_rate', 'tasks.clone.cost', 'tasks.value_replay.cost')
    ),
  )
  left = recorded.without(agent)
  assert left.tasks == (tasks.ValueReplay(),)
  assert left.decay.names == ('learning_rate', 'tasks.value_replay.cost')


def test_agents_of_a_replay_are_refused():
  with pytest.raises(ValueError, match='must not have clone in an agent'):
    r2d2.R2D2Config(tasks=('clone',))


def test_too_large_games_are_refused_before_they_are_read(folder, tmp_path):
  copy = tmp_path / 'large'
  copy.mkdir()
  (copy / 'game.json').write_text((folder / 'game.json').read_text())
  huge = {'parts': [[2**30, 2**20]]}
  (copy / recorded_games.FILE).write_text(json.dumps(huge))
  with pytest.raises(
    ValueError, match=r'must fit into memory, .*record at most'
  ):
    recorded.check(prepare.prepare(make_experiment(copy)))


def _spoil(**fields):
  """Returns a change of one step of a stream."""

  def change(stream):
    timestep = {
      name: getattr(stream.timestep, name).copy()
      for name in stream.timestep._fields
    }
    action = stream.previous_action.copy()
    step = int(np.argmax(stream.timestep.step_type[:, 3] == types.MID))
    for name, value in fields.items():
      array = action if name == 'action' else timestep[name]
      array[step, 3] = value
    return types.Streams(dm_env.TimeStep(**timestep), action)

  return change


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (_spoil(reward=np.nan), 'reward of .* must be a finite scalar'),
    (_spoil(reward=np.inf), 'reward of .* must be a finite scalar'),
    (_spoil(observation=np.nan), 'observation of .* must be finite'),
    (_spoil(discount=7.0), r'discount of .* must be a scalar in \[0, 1\]'),
    (_spoil(discount=np.nan), r'discount of .* must be a scalar in \[0, 1\]'),
    (_spoil(step_type=9), 'step_type of .* must be FIRST where'),
    (_spoil(step_type=0), 'step_type of .* must be FIRST where'),
    (_spoil(action=3), 'actions of .* must be of the spec .* at step'),
    (_spoil(action=-1), 'actions of .* must be of the spec .* at step'),
    (_spoil(action=2**31 - 1), 'actions of .* must be of the spec'),
  ],
)
def test_values_that_no_game_gives_are_refused(
  folder, tmp_path, change, message
):
  spec = recorded_games.read_game(folder)
  (stream,) = recorded_games.read(folder, spec.environment)
  copy = tmp_path / 'foreign'
  recorded_games.append(copy, spec, change(stream))
  with pytest.raises(ValueError, match=message) as error:
    recorded.load(prepare.prepare(make_experiment(copy)))
  assert 'record them again' in str(error.value)


def test_the_first_step_of_a_part_is_checked_too(folder, tmp_path):
  spec = recorded_games.read_game(folder)
  (stream,) = recorded_games.read(folder, spec.environment)
  copy = tmp_path / 'foreign'
  rest = jax.tree.map(lambda leaf: leaf[1:].copy(), stream)  # Within games.
  recorded_games.append(copy, spec, rest)
  recorded.load(prepare.prepare(make_experiment(copy)))
  rest.timestep.reward[0] = np.nan
  recorded_games.append(copy, spec, rest)
  with pytest.raises(ValueError, match='reward of .* at step 1 of a part'):
    recorded.load(prepare.prepare(make_experiment(copy)))


def test_what_a_critic_alone_sees_counts_as_memory(tmp_path):
  game = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(
      height=7, width=11, num_steps=20, team_state=True
    )
  )
  parts = prepare.prepare(make_experiment(tmp_path, environment=game))
  game_files.write(tmp_path, parts.spec)
  index = {'parts': [[1000, 16]]}
  (tmp_path / recorded_games.FILE).write_text(json.dumps(index))
  recorded.check(parts)  # Nothing is read yet.
  text = (tmp_path / 'game.json').read_text()
  plain = json.loads(text)
  entry = plain['observations']['dict'][types.PRIVILEGED]['spec']
  entry['shape'] = [2**26]
  entry.pop('minimum', None), entry.pop('maximum', None)
  entry['kind'] = 'array'
  (tmp_path / 'game.json').write_text(json.dumps(plain))
  with pytest.raises(ValueError, match='must fit into memory'):
    recorded.check(parts)


def test_states_of_the_core_count_as_memory():
  spec = functional.as_game(GAME).spec
  state = np.zeros((1, 2**20), np.float32)
  template = trajectories.make_template(spec, state, LENGTH)
  memory_checks.check_recorded('x', 600, (spec, spec), template)
  with pytest.raises(ValueError, match='must fit into memory'):
    memory_checks.check_recorded('x', 10**6, (spec, spec), template)


def test_games_with_and_without_a_critic_s_state_teach_each_other(tmp_path):
  def make(team_state):
    return capture_the_flag.make(
      capture_the_flag.CaptureTheFlagConfig(
        height=7, width=11, num_steps=20, team_state=team_state
      )
    )

  player = players.scripted(make(False).scripts['attacker'])
  for told in (False, True):
    game = make(told)
    recording.record(
      lambda seed, game=game: game,
      [player] * 4,
      [0, 1],
      2,
      tmp_path / f'{told}',
    )
    experiment = ftwax.ExperimentConfig(
      agent=ppo.PPOConfig(
        core=cores.GRU(4), tasks=('clone',), sequence_length=5
      ),
      environment=make(not told),
      max_num_actor_steps=10,
      demonstrations=str(tmp_path / f'{told}'),
    )
    parts = prepare.prepare(experiment)
    made = recorded.load(parts).demonstrations
    assert jax.tree.structure(made.timestep.observation) == jax.tree.structure(
      parts.spec.environment.observations
    )


@pytest.mark.parametrize('part_steps', [1024, 5])
def test_seats_that_come_and_go_are_recorded(tmp_path, monkeypatch, part_steps):
  monkeypatch.setattr(recording, '_PART_STEPS', part_steps)
  game = seat_games.make()
  chance = players.uniform(game.spec.actions)
  recording.record(
    lambda seed: game,
    [chance] * 4,
    range(4),
    6,
    tmp_path / 'games',
    num_parallel=2,
  )
  num_decisions, paid = 0, 0.0
  for stream in recorded_games.read(tmp_path / 'games', game.spec):
    step_type = stream.timestep.step_type
    assert not (step_type == types.ABSENT).any()
    counts = (step_type[:-1] != types.LAST) & (step_type[1:] != types.FIRST)
    assert (stream.previous_action[1:][counts] != types.NO_ACTION).all()
    num_decisions += counts.sum()
    paid += stream.timestep.reward[1:][counts].sum()
  table = seat_games.TABLE
  has_begun = table == types.FIRST
  assert num_decisions == 6 * (has_begun | (table == types.MID)).sum()
  assert paid == 6 * seat_games.rewards(table).sum()
  experiment = ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(core=cores.GRU(4), tasks=('clone',), sequence_length=4),
    environment=game,
    max_num_actor_steps=200,
    num_environments=2,
    demonstrations=str(tmp_path / 'games'),
    offline=True,
  )
  state = ftwax.run(experiment, run_dir=tmp_path / 'run').state
  assert not np.any(state.skipped)


def test_the_action_of_a_seat_that_waited_is_that_of_its_decision():
  game = seat_games.make()
  spec = games.spec_of(game)
  rows = recorded_rows.RecordedRows(spec, [3])
  state, timestep = game.reset(jax.random.PRNGKey(0))
  rows.add(None, timestep)
  for step in range(1, 9):
    state, timestep = game.step(state, None)
    rows.add(np.full(4, step % 2), timestep)
  streams = rows.take()
  # It came at step 3, decided there and at 4, waited, and decided at 7.
  kinds = [types.FIRST, types.MID, types.MID, types.LAST]
  assert streams.timestep.step_type[:, 0].tolist() == kinds
  assert streams.previous_action[:, 0].tolist() == [types.NO_ACTION, 0, 1, 0]
