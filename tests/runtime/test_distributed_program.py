"""The program of an experiment, and what it refuses."""

import contextlib
import socket
import threading

import distributed_helpers
import launchpad as lp
import pytest

from ftwax.agents import impala
from ftwax.population import population_config
from ftwax.runtime.distributed import (
  node_commands,
  node_learner,
  processes,
  program,
  settings,
  shares,
)


class TestProgram:
  def test_labels(self, tmp_path):
    made = program.make_distributed_experiment(
      distributed_helpers.make_experiment(),
      50,
      run_dir=tmp_path,
      settings=settings.Settings(num_actors=3),
    )
    assert {label: len(nodes) for label, nodes in made.groups.items()} == {
      'counter': 1,
      'replay': 1,
      'learner': 1,
      'actor': 3,
      'evaluator': 1,
    }
    made = program.make_distributed_experiment(
      distributed_helpers.make_experiment(), run_dir=tmp_path
    )
    assert 'evaluator' not in made.groups

  @pytest.mark.parametrize(('num_actors', 'waits'), [(1, False), (2, True)])
  def test_actors_wait_if_they_fill_a_batch(self, tmp_path, num_actors, waits):
    # Of 4 trajectories; an actor writes 2 at a time.
    made = program.make_distributed_experiment(
      distributed_helpers.make_experiment(),
      run_dir=tmp_path,
      settings=settings.Settings(num_actors=num_actors),
    )
    (settled,) = {
      argument
      for node in made.groups['actor']
      for argument in node._func_args
      if isinstance(argument, settings.Settings)
    }
    assert settled == settings.Settings(
      num_actors=num_actors, actors_wait=waits
    )

  def test_a_label_used_twice_is_refused(self, tmp_path):
    mine = lp.Program('mine')
    mine.add_node(lp.PyNode(print), label='learner')
    with pytest.raises(
      ValueError, match=r"labels \['learner'\] must not occur twice"
    ):
      program.make_distributed_experiment(
        distributed_helpers.make_experiment(), run_dir=tmp_path, program=mine
      )

  def test_what_cannot_be_pickled_is_named(self, tmp_path):
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r'environment .* must be picklable'):
      program.make_distributed_experiment(
        distributed_helpers.make_experiment(
          environment=lambda seed: (lock, seed)
        ),
        run_dir=tmp_path,
      )

  def test_more_actors_than_fit_are_refused(self, tmp_path):
    with pytest.raises(
      ValueError, match=r'num_actors \(100000\) must fit into memory.*choose \d'
    ):
      program.make_distributed_experiment(
        distributed_helpers.make_experiment(),
        run_dir=tmp_path,
        settings=settings.Settings(num_actors=100_000),
      )

  def test_a_run_without_checkpoints_is_refused(self, tmp_path):
    with pytest.raises(ValueError, match=r'checkpointing \(None\) must be set'):
      program.make_distributed_experiment(
        distributed_helpers.make_experiment(checkpointing=None),
        run_dir=tmp_path,
      )

  def test_a_port_in_use_is_refused(self, tmp_path):
    with contextlib.closing(socket.create_server(('', 0))) as server:
      port = server.getsockname()[1]
      with pytest.raises(
        OSError, match=rf'replay_port \({port}\) must be free'
      ):
        program.make_distributed_experiment(
          distributed_helpers.make_experiment(replay_port=port),
          run_dir=tmp_path,
        )

  def test_who_needs_no_accelerator_keeps_to_the_cpu_and_a_thread(
    self, tmp_path
  ):
    made = program.make_distributed_experiment(
      distributed_helpers.make_experiment(replay_port=12345),
      run_dir=tmp_path,
      settings=settings.Settings(inference_server=True),
    )
    commands = node_commands.make_commands(made, tmp_path)
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
      path = command.arguments[command.arguments.index('--data_file') + 1]
      assert path.startswith(str(tmp_path))

  def test_flags_of_the_user_are_kept(self, monkeypatch):
    monkeypatch.setenv('XLA_FLAGS', '--mine=1')
    made = node_commands.make_environments(['learner', 'actor'])
    assert 'XLA_FLAGS' not in made['learner']  # It inherits them.
    assert made['actor']['XLA_FLAGS'] == (
      '--mine=1 --xla_cpu_multi_thread_eigen=false'
    )

  def test_how_much_of_an_accelerator_is_taken_may_be_told(self, monkeypatch):
    labels = ['learner', 'actor']
    name = 'XLA_PYTHON_CLIENT_MEM_FRACTION'
    assert node_commands.make_environments(labels)['learner'][name] == '0.900'
    monkeypatch.setenv(name, '0.2')
    assert node_commands.make_environments(labels)['learner'][name] == '0.2'


class TestSeveralLearners:
  def _make(self, tmp_path, num_actors=3, **options):
    return program.make_distributed_experiment(
      distributed_helpers.make_experiment(**options),
      run_dir=tmp_path,
      settings=settings.Settings(num_learners=2, num_actors=num_actors),
    )

  def test_each_has_a_replay_node_and_actors(self, tmp_path):
    made = self._make(tmp_path, replay_port=12345)
    commands = node_commands.make_commands(made, tmp_path)
    assert [command.name for command in commands.list] == [
      'counter', 'replay/0', 'replay/1', 'learner/0', 'learner/1',
      'actor/0', 'actor/1', 'actor/2',
    ]  # fmt: skip
    ports = [
      [address.resolve() for address in node.addresses]
      for node in made.groups['replay']
    ]
    assert ports == [['localhost:12345'], ['localhost:12346']]
    # An actor: the first learner, then the one from which variables come.
    clients = [node._func_args[4:6] for node in made.groups['actor']]
    for actor, (seats, (variables,)) in enumerate(clients):
      assert (seats._address is variables._address) == (actor % 2 == 0)
    shares_of_actors = [
      node._func_args[3][0].dereference() for node in made.groups['actor']
    ]
    assert shares_of_actors == [ports[0], ports[1], ports[0]]

  @pytest.mark.parametrize(
    ('options', 'message'),
    [
      (
        {'agent': impala.IMPALAConfig(batch_size=5, max_queue_size=8)},
        r'batch_size \(5\) must divide by num_learners \(2\).*choose 6',
      ),
      ({'num_actors': 1}, r'num_actors \(1\) must be at least num_learners'),
      (
        {'population': population_config.PopulationConfig(3)},
        r'num_learners \(2\) must divide num_members \(3\), .*; choose 1',
      ),
    ],
  )
  def test_what_cannot_be_shared_out_is_refused(
    self, tmp_path, options, message
  ):
    with pytest.raises(ValueError, match=message):
      self._make(tmp_path, **options)

  def test_a_builder_of_a_share(self):
    config = distributed_helpers.make_experiment()
    share = shares.replay_config(config, 2)
    assert (share.batch_size, share.max_queue_size) == (2, 4)
    assert shares.replay_config(config, 1) == config.agent

  def test_nodes_that_are_restarted_together(self):
    one = settings.Settings(num_actors=3)
    assert shares.dependents(one, 1)['replay'] == [
      'learner', 'actor/0', 'actor/1', 'actor/2',
    ]  # fmt: skip
    two = settings.Settings(num_learners=2, num_actors=3)
    assert shares.dependents(two, 1) == {
      'replay/0': ['learner/0', 'learner/1', 'actor/0', 'actor/2'],
      'replay/1': ['learner/0', 'learner/1', 'actor/1'],
      'learner/0': ['learner/1'],
      'learner/1': ['learner/0'],
    }
    of_members = shares.dependents(two, 4)
    assert of_members['replay/1'] == [
      'learner/1', 'actor/0', 'actor/1', 'actor/2',
    ]  # fmt: skip
    assert 'learner/0' not in of_members


class TestDevices:
  @pytest.mark.parametrize(
    ('num_devices', 'message'),
    [
      (
        5,
        r'num_devices \(5\) must be at most the number .* 4 \(cpu\); choose 4',
      ),
      (3, r'batch_size \(4\) must divide by the number of devices \(3\)'),
    ],
  )
  def test_devices_are_checked(self, num_devices, message):
    with pytest.raises(processes.FatalError, match=message):
      node_learner.make_mesh(
        distributed_helpers.make_experiment(),
        settings.Settings(num_devices=num_devices),
        1,
      )
