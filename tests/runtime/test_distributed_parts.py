"""What a distributed run is made of, each part alone and in one process."""

import contextlib
import functools
import socket
import threading

import launchpad as lp
import numpy as np
import pytest

from ftwax.agents import impala
from ftwax.runtime import experiment, loggers
from ftwax.runtime.distributed import (
  acting,
  counter,
  environments,
  grants,
  learner,
  limits,
  processes,
  program,
  settings,
  supervision,
  table,
)
from ftwax.testing import fakes

SPEC = fakes.make_vector_spec()


def _make_fake(seed):
  return fakes.FakeEnvironment(SPEC, episode_length=4, seed=seed)


@pytest.fixture
def make_experiment():
  config = impala.IMPALAConfig(
    hidden_size=8, sequence_length=5, batch_size=4, max_queue_size=8
  )

  def make(**options):
    return experiment.ExperimentConfig(
      **{
        'builder': impala.make_builder(config),
        'network_factory': functools.partial(
          impala.make_network, config=config
        ),
        'environment_factory': _make_fake,
        'max_num_actor_steps': 100,
        'num_environments': 2,
        **options,
      }
    )

  return make


class TestBudget:
  @pytest.mark.parametrize('max_steps', [1, 2, 7, 100, 101])
  def test_it_is_met_exactly_whatever_the_order(self, max_steps):
    rng = np.random.default_rng(max_steps)
    budget = grants.Budget(max_steps)
    held, done = [0, 0, 0], [False] * 3
    for _ in range(10_000):
      actor = int(rng.integers(3))
      num_steps = int(rng.integers(held[actor] + 1))
      budget.take(actor, num_steps)
      grant = budget.ask(actor, 4, 12)
      assert grant.num_steps in range(13)
      assert grant.is_last or grant.num_steps == 0 or grant.num_steps >= 4
      held[actor] = grant.num_steps
      done[actor] = grant.is_last and not grant.num_steps
      assert budget.steps + sum(held) <= max_steps
      if all(done):
        break
    assert budget.steps == max_steps
    assert budget.done

  def test_steps_of_an_actor_that_died_are_given_to_others(self):
    budget = grants.Budget(10)
    assert budget.ask(0, 4, 10) == grants.Grant(10)
    assert budget.ask(1, 4, 10) == grants.Grant(0)
    budget.take(0, 3)
    budget.release(0)
    assert budget.ask(1, 4, 10) == grants.Grant(7)

  def test_the_last_steps_go_to_one_who_asks_for_more(self):
    budget = grants.Budget(10, steps=8)
    assert budget.ask(0, 4, 4) == grants.Grant(2, is_last=True)
    assert budget.ask(1, 4, 4) == grants.Grant(0)
    budget.take(0, 2)
    assert budget.ask(1, 4, 4) == grants.Grant(0, is_last=True)


class TestLimits:
  def test_one_a_period_is_allowed(self):
    now = [0.0]
    limiter = limits.RestartLimiter(10, 60.0, clock=lambda: now[0])
    limiter.count('actor/1', 'crash')
    now[0] = 60.0
    limiter.count('actor/1', 'crash')
    now[0] = 90.0
    with pytest.raises(
      limits.RestartsExceededError,
      match=r'actor/1 must not fail twice within 60 s, and did after 30 s: boo',
    ):
      limiter.count('actor/1', 'boo')
    assert limiter.num_restarts == 2

  def test_so_many_in_a_life_are_allowed(self):
    limiter = limits.RestartLimiter(2, 0.0)
    limiter.count('replay', 'x')
    limiter.count('replay', 'x')
    with pytest.raises(
      limits.RestartsExceededError, match='no more than 2 times in a run'
    ):
      limiter.count('replay', 'x')

  def test_settings_are_checked(self):
    with pytest.raises(
      ValueError, match=r'max_restarts \(-1\) must not be negative; choose 10'
    ):
      settings.Settings(max_restarts=-1)
    with pytest.raises(ValueError, match=r'num_devices \(0\) must be at least'):
      settings.Settings(num_devices=0)


class TestLearner:
  @pytest.mark.parametrize(
    ('num_devices', 'message'),
    [
      (5, r'num_devices \(5\) must not be more than .* 4 \(cpu\); choose 4'),
      (3, r'batch_size \(4\) must divide by the number of devices \(3\)'),
    ],
  )
  def test_devices_are_checked(self, make_experiment, num_devices, message):
    made = learner.Learner(
      make_experiment(),
      'unused',
      settings.Settings(num_devices=num_devices),
      'localhost:1',
      None,
    )
    with pytest.raises(processes.FatalError, match=message):
      made._make_mesh()


class TestCounter:
  @pytest.fixture
  def node(self, make_experiment, tmp_path):
    made = counter.Counter(make_experiment(), str(tmp_path), 2, 50)
    yield made
    made._close_loggers()

  def _base(self, **counts):
    counts = {
      'actor_steps': 0,
      'episodes': 0,
      'learner_steps': 0,
      'seconds': 0.0,
      **counts,
    }
    return {'counts': counts, 'returns': [1.0, 3.0]}

  def test_nothing_is_granted_before_the_learner_tells_where_to_begin(
    self, node
  ):
    assert node.register_actor(0) is None
    assert node.report_actor(0, 0, [], (2, 10)) == (0, False)
    node.report_learner(4, self._base(actor_steps=40, episodes=5), [])
    assert node.register_actor(0) == 40
    assert node.report_actor(0, 0, [], (2, 10)) == (10, False)
    counts = node.status()['counts']
    assert (counts['actor_steps'], counts['episodes']) == (40, 5)
    assert node.status()['mean_return'] == 2.0

  def test_a_learner_that_was_restored_does_not_put_the_counter_back(
    self, node
  ):
    node.report_learner(0, self._base(), [])
    node.report_actor(0, 30, [], (2, 10))
    status = node.report_learner(1, self._base(actor_steps=10), [])
    assert status['counts']['actor_steps'] == 30
    assert status['counts']['learner_steps'] == 1

  def test_episodes_are_counted_and_logged(self, node, tmp_path):
    node.report_learner(0, self._base(), [('learner', {'loss': 2.0})])
    rows = [{'episode_return': 5.0, 'episode_length': 4, 'actor': 1}] * 2
    node.report_actor(1, 8, rows, (2, 10))
    logged = loggers.read_jsonl(loggers.log_path(tmp_path, 'train'))
    assert [row['episodes'] for row in logged] == [2, 2]
    assert logged[0]['actor'] == 1
    learner = loggers.read_jsonl(loggers.log_path(tmp_path, 'learner'))
    assert learner == [{'loss': 2.0}]
    np.testing.assert_allclose(node.status()['mean_return'], 14 / 4)

  def test_evaluations_are_due_at_their_steps_and_at_the_end(self, node):
    node.report_learner(0, self._base(), [])
    assert node.poll_evaluator() == counter.WAIT
    node.report_actor(0, 50, [], (2, 10))
    assert node.poll_evaluator() == counter.EVALUATE
    node.report_evaluation([1.0, 2.0], [4, 4])
    assert node.poll_evaluator() == counter.WAIT
    node.report_actor(0, 50, [], (2, 10))
    assert node.poll_evaluator() == counter.EVALUATE
    node.report_evaluation([1.0, 2.0], [4, 4])
    assert node.poll_evaluator() == counter.LEAVE

  def test_nodes_leave_in_turns(self, node):
    node.report_learner(0, self._base(), [])
    assert not node.report_replay({'queue': [1, 8]})
    assert not node.report_learner(0, self._base(), [])['leave']
    node.finish('evaluator')
    assert node.report_learner(0, self._base(), [])['leave']
    for name in ('learner', 'actor/0'):
      node.finish(name)
    assert not node.report_replay({'queue': [1, 8]})
    node.finish('actor/1')
    assert node.report_replay({'queue': [1, 8]})
    node.report_learner(0, self._base(), [])  # It was started anew.
    assert not node.report_replay({'queue': [1, 8]})

  def test_the_table_tells_of_each_node(self, node):
    node.report_learner(7, self._base(actor_steps=40), [])
    node.report_actor(1, 10, [], (2, 10), 3)
    node.report_replay({'queue': [5, 8]})
    text = table.format_status(
      node.status(), 100, (12.0, 3.5), {'learner': 2, 'actor/1': 0}
    )
    assert '50 of 100 steps | 12 steps/s | 3.5 updates/s | 7 updates' in text
    assert 'return 2' in text
    assert 'queue 5/8' in text
    assert 'restarts 2' in text
    assert 'failed environments 3' in text


class _Flaky:
  """Fails some times, then answers."""

  def __init__(self, num_failures, message='unavailable'):
    self.left = num_failures
    self.message = message

  def f(self, x):
    self.left -= 1
    if self.left >= 0:
      raise RuntimeError(self.message)
    return x


class TestRemote:
  def test_it_calls_until_it_gets_an_answer(self):
    assert processes.Remote(_Flaky(2), 'counter').call('f', 5) == 5
    assert processes.Remote(_Flaky(1), 'counter').try_call('f', 5) is None

  def test_it_gives_up(self):
    remote = processes.Remote(_Flaky(10**9), 'counter', patience_s=0.1)
    with pytest.raises(
      processes.UnreachableError, match=r'counter must answer f within 0\.1 s'
    ):
      remote.call('f', 5)

  def test_what_the_node_itself_raised_is_not_tried_again(self):
    flaky = _Flaky(9, 'Python exception was raised on the server: no good')
    remote = processes.Remote(flaky, 'counter')
    with pytest.raises(processes.FatalError, match='no good'):
      remote.call('f', 5)
    assert flaky.left == 8


def test_a_replay_server_that_is_not_there_is_told():
  with pytest.raises(
    processes.UnreachableError,
    match=r'replay \(localhost:1\) must answer within 1 s, and did not.*raise',
  ):
    processes.connect_to_replay('localhost:1', 1.0)


class TestProgram:
  def test_labels(self, make_experiment, tmp_path):
    made = program.make_distributed_experiment(
      make_experiment(), 3, 50, run_dir=tmp_path
    )
    assert {label: len(nodes) for label, nodes in made.groups.items()} == {
      'counter': 1,
      'replay': 1,
      'learner': 1,
      'actor': 3,
      'evaluator': 1,
    }
    made = program.make_distributed_experiment(
      make_experiment(), 3, run_dir=tmp_path
    )
    assert 'evaluator' not in made.groups

  def test_a_label_used_twice_is_refused(self, make_experiment, tmp_path):
    mine = lp.Program('mine')
    mine.add_node(lp.PyNode(print), label='learner')
    with pytest.raises(
      ValueError, match=r"labels \['learner'\] must not be used twice"
    ):
      program.make_distributed_experiment(
        make_experiment(), 1, run_dir=tmp_path, program=mine
      )

  def test_what_cannot_be_pickled_is_named(self, make_experiment, tmp_path):
    lock = threading.Lock()
    with pytest.raises(
      ValueError, match=r'environment_factory .* must be picklable'
    ):
      program.make_distributed_experiment(
        make_experiment(environment_factory=lambda seed: (lock, seed)),
        1,
        run_dir=tmp_path,
      )

  def test_more_actors_than_fit_are_refused(self, make_experiment, tmp_path):
    with pytest.raises(
      ValueError, match=r'num_actors \(100000\) must fit into memory.*choose \d'
    ):
      program.make_distributed_experiment(
        make_experiment(), 100_000, run_dir=tmp_path
      )

  @pytest.mark.parametrize(
    ('options', 'num_actors', 'message'),
    [
      ({}, 0, r'num_actors \(0\) must be at least 1'),
      ({'checkpointing': None}, 1, r'checkpointing \(None\) must be set'),
    ],
  )
  def test_other_bad_input(
    self, make_experiment, tmp_path, options, num_actors, message
  ):
    with pytest.raises(ValueError, match=message):
      program.make_distributed_experiment(
        make_experiment(**options), num_actors, run_dir=tmp_path
      )

  def test_a_port_in_use_is_refused(self, make_experiment, tmp_path):
    with contextlib.closing(socket.create_server(('', 0))) as server:
      port = server.getsockname()[1]
      with pytest.raises(
        OSError, match=rf'replay_port \({port}\) must be free'
      ):
        program.make_distributed_experiment(
          make_experiment(replay_port=port), 1, run_dir=tmp_path
        )

  def test_who_needs_no_accelerator_keeps_to_the_cpu_and_a_thread(
    self, make_experiment, tmp_path
  ):
    made = program.make_distributed_experiment(
      make_experiment(replay_port=12345),
      2,
      run_dir=tmp_path,
      settings=settings.Settings(inference_server=True),
    )
    commands = supervision.make_commands(made)
    try:
      names = [command.name for command in commands.list]
      assert names == [
        'counter', 'replay', 'learner', 'inference', 'actor/0', 'actor/1',
      ]  # fmt: skip
      assert commands.addresses['replay'] == 'localhost:12345'
      assert set(commands.addresses) == set(names[:4])
      for command in commands.list:
        environment = command.environment
        accelerated = command.name in ('learner', 'inference')
        assert (environment.get('JAX_PLATFORMS') == 'cpu') != accelerated
        assert ('CUDA_VISIBLE_DEVICES' in environment) != accelerated
        fraction = environment.get('XLA_PYTHON_CLIENT_MEM_FRACTION')
        assert fraction == ('0.450' if accelerated else None)
    finally:
      supervision.remove_files(commands.list)

  def test_how_much_of_an_accelerator_is_taken_may_be_told(self, monkeypatch):
    labels = ['learner', 'actor']
    name = 'XLA_PYTHON_CLIENT_MEM_FRACTION'
    assert supervision.make_environments(labels)['learner'][name] == '0.900'
    monkeypatch.setenv(name, '0.2')
    assert supervision.make_environments(labels)['learner'][name] == '0.2'


class TestEnvironments:
  def test_the_last_steps_are_taken_in_some_of_the_environments(
    self, make_experiment
  ):
    made = environments.make_environments(make_experiment(), 3, (0, 1), 'x')
    made.reset()
    action = np.zeros(3, np.int32)
    made.limit = 3
    made.step(action)
    made.limit = 2
    with pytest.raises(environments.BudgetMet):
      made.step(action)

  def test_what_an_environment_raises_is_told_apart(self, make_experiment):
    def fail(seed):
      raise KeyError(seed)

    with pytest.raises(environments.EnvironmentFailure, match='KeyError'):
      environments.make_environments(
        make_experiment(environment_factory=fail), 1, (0,), 'x'
      )

  def test_seeds_follow_from_the_entropy(self, make_experiment):
    seeds = []

    def make(seed):
      seeds.append(seed)
      return _make_fake(seed)

    for entropy in [(0, 1), (0, 2), (0, 1)]:
      environments.make_environments(
        make_experiment(environment_factory=make), 2, entropy, 'x'
      )
    assert seeds[:2] == seeds[4:]
    assert not set(seeds[:2]) & set(seeds[2:4])
    assert all(0 <= seed < 2**31 for seed in seeds)


class _StillActor:
  """Chooses the first action everywhere."""

  def __init__(self, num_environments):
    self._action = np.zeros(num_environments, np.int32)
    self.num_steps = 0

  def update(self):
    pass

  def observe_first(self, timestep):
    del timestep

  def select_action(self, observation):
    del observation
    return self._action

  def observe(self, action, timestep):
    del action
    self.num_steps += int((timestep.step_type != 0).sum())


class _NoAdder:
  def reset(self):
    pass


class _Failing(fakes.FakeEnvironment):
  """Raises in its 30th step."""

  num_steps = 0

  def step(self, action):
    self.num_steps += 1
    if self.num_steps == 30:
      raise OSError('the game crashed')
    return super().step(action)


class TestActorLoop:
  @pytest.fixture
  def make_loop(self, make_experiment, tmp_path):
    nodes = []

    def make(max_restarts=1000, **options):
      config = make_experiment(num_environments=3, **options)
      node = counter.Counter(config, str(tmp_path), 1, None)
      nodes.append(node)
      base = {'actor_steps': 0, 'episodes': 0, 'learner_steps': 0}
      node.report_learner(
        0, {'counts': {**base, 'seconds': 0.0}, 'returns': []}, []
      )
      loop = acting.ActorLoop(
        config,
        0,
        settings.Settings(max_restarts=max_restarts, restart_period_s=0.0),
        processes.Remote(node, 'counter'),
        threading.Event(),
      )
      assert loop.register() == 0
      return loop, node

    yield make
    for node in nodes:
      node._close_loggers()

  @pytest.mark.parametrize('max_steps', [1, 100, 403])
  def test_the_budget_is_met_exactly(self, make_loop, max_steps):
    loop, node = make_loop(max_num_actor_steps=max_steps)
    actor = _StillActor(3)
    loop.run(actor, _NoAdder())
    assert node.status()['counts']['actor_steps'] == max_steps
    # But for the last few, which are taken and not learned from.
    assert max_steps - 3 < actor.num_steps <= max_steps

  def test_environments_that_raise_are_made_anew(self, make_loop, capsys):
    loop, node = make_loop(
      max_num_actor_steps=403,
      environment_factory=functools.partial(_Failing, SPEC, 4, False),
    )
    loop.run(_StillActor(3), _NoAdder())
    status = node.status()
    assert status['counts']['actor_steps'] == 403
    assert status['failures']['actor/0'] >= 4
    assert 'OSError: the game crashed' in capsys.readouterr().out

  def test_environments_that_raise_too_often_end_the_run(self, make_loop):
    loop, _ = make_loop(
      max_restarts=2,
      max_num_actor_steps=403,
      environment_factory=functools.partial(_Failing, SPEC, 4, False),
    )
    with pytest.raises(
      processes.FatalError,
      match=r'environments of actor/0 must fail no more than 2 times.*crashed',
    ):
      loop.run(_StillActor(3), _NoAdder())


def test_an_environment_that_hangs_ends_its_process(
  make_experiment, monkeypatch, capfd
):

  ended = threading.Event()

  def end(status):
    assert status == 1
    ended.set()

  class Hanging(fakes.FakeEnvironment):
    def step(self, action):
      assert ended.wait(30.0)
      return super().step(action)

  monkeypatch.setattr(environments.os, '_exit', end)
  monkeypatch.setattr(environments, '_WATCH_S', 0.01)
  made = environments.make_environments(
    make_experiment(
      environment_factory=functools.partial(Hanging, SPEC, 4, False)
    ),
    1,
    (0,),
    'x',
  )
  environments.Watchdog('actor/3', 0.1, made).start()
  made.reset()
  made.step(np.zeros(1, np.int32))
  assert (
    'environments of actor/3 must step within 0.1 s' in capfd.readouterr().err
  )
