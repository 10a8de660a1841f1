"""Real runs as Launchpad programs with Reverb, on Python 3.10."""

import distributed_helpers
import launchpad as lp
import pytest
from absl import flags

from ftwax.records import checkpoints, loggers, run_directory
from ftwax.runtime import distributed
from ftwax.runtime.distributed import program


def test_a_program_has_the_nodes_of_the_run(tmp_path):
  made = program.make_program(
    distributed_helpers.make_experiment(),
    eval_every=50,
    run_dir=tmp_path,
    settings=distributed.Settings(num_actors=3),
  )
  counts = {label: len(nodes) for label, nodes in made.groups.items()}
  assert counts == {
    'replay': 1,
    'learner': 1,
    'actor': 3,
    'evaluator': 1,
    'coordinator': 1,
  }
  with pytest.raises(ValueError, match='must not occur twice in a program'):
    program.make_program(
      distributed_helpers.make_experiment(), run_dir=tmp_path, program=made
    )


def test_a_cluster_needs_ray():
  with pytest.raises(ValueError, match="must be 'local' with Launchpad"):
    program.make_program(
      distributed_helpers.make_experiment(),
      settings=distributed.Settings(cluster='auto'),
    )


@pytest.mark.slow
def test_launchpad_runs_to_the_end_and_resumes(tmp_path):
  make = distributed_helpers.make_experiment
  result = distributed.run_experiment(make(), 50, 4, run_dir=tmp_path / 'run')
  assert result.counts.actor_steps == 100
  assert result.counts.learner_steps >= 3
  assert result.state.steps == [result.counts.learner_steps]
  path = loggers.log_path(result.run_dir, 'evaluation')
  assert len(loggers.read_jsonl(path)) == 2
  resumed = distributed.run_experiment(
    make(max_num_actor_steps=150), run_dir=result.run_dir, resume=True
  )
  assert resumed.counts.actor_steps == 150
  assert checkpoints.saved_steps(result.run_dir / 'checkpoints')[-1] == 150


@pytest.mark.slow
def test_a_user_launches_the_program(tmp_path):
  experiment = distributed_helpers.make_experiment()
  run_dir = run_directory.create_at(tmp_path / 'run', experiment)
  made = program.make_program(experiment, run_dir=run_dir)
  flags.FLAGS.mark_as_parsed()
  lp.launch(made, launch_type='local_mp', terminal='current_terminal').wait()
  assert checkpoints.saved_steps(run_dir / 'checkpoints')[-1] == 100
