"""The page on metrics has every column of the logs, and no other."""

import importlib
import pathlib
import re

import jax
import pytest

import ftwax
from ftwax import population, records
from ftwax.agents import impala, ppo, r2d2
from ftwax.environments import capture_the_flag

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'docs' / 'how_to' / 'metrics.md'

# Stands for the part of a name that the task or the opponent gives.
_WILD = re.compile(r'[A-Z]{2,}')
_TASK = re.compile(
  '^(clone|latent_kl|pixel_control|reward_prediction|stay_close|value_replay)_'
)


def _documented():
  """Returns the names in the first column of all tables."""
  cells = re.findall(r'^\| (`.*?) \|', PAGE.read_text('utf-8'), re.MULTILINE)
  return [name for cell in cells for name in re.findall(r'`(.+?)`', cell)]


def _logged(run_dir):
  """Returns the columns of all logs of a run."""
  paths = sorted((run_dir / 'logs').rglob('*.jsonl'))
  return {name for path in paths for row in records.read_jsonl(path)
          for name in row}  # fmt: skip


def _undocumented(logged):
  patterns = [re.compile(_WILD.sub(r'[\\w.]+', name)) for name in _documented()]
  return {
    name
    for name in logged
    if not any(pattern.fullmatch(name) for pattern in patterns)
  }


def _run(directory, agent, environment, runtime='device', **options):
  experiment = ftwax.ExperimentConfig(
    **{
      'agent': agent,
      'environment': environment,
      'max_num_actor_steps': 1_500,
      **options,
    }
  )
  steps = experiment.max_num_actor_steps
  result = ftwax.run(
    experiment,
    eval_every=steps // 2,
    num_eval_episodes=4,
    runtime=runtime,
    run_dir=directory / 'run',
  )
  return result.run_dir


def test_columns_of_an_agent_are_on_the_page(tmp_path):
  config = ppo.PPOConfig(normalize_returns=True)
  run_dir = _run(tmp_path, config, 'CartPole-v1', 'local')
  logged = _logged(run_dir)
  assert {'return_scale', 'sample_age_steps', 'kl_old_new'} < logged
  assert not _undocumented(logged)


def test_columns_of_a_replay_are_on_the_page(tmp_path):
  run_dir = _run(tmp_path, r2d2.R2D2Config(), 'CartPole-v1', 'local')
  logged = _logged(run_dir)
  assert {'td_error', 'replay_size', 'value_loss'} < logged
  assert not {'entropy', 'policy_loss'} & logged
  assert not _undocumented(logged)


def test_columns_of_auxiliary_tasks_are_on_the_page(monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / 'tests' / 'agents'))
  batches = importlib.import_module('ftw_batches')
  config = batches.make_config(tasks=(*batches.TASKS, 'value_replay'))
  network = config.make_network(batches.SPEC)
  core = config.make_learner_core(network, batches.SPEC)
  state = jax.eval_shape(core.init, jax.random.PRNGKey(0))
  batch = batches.make_batch(0, network)
  _, metrics = jax.eval_shape(core.update, state, batch)
  assert {'pixel_control_live', 'value_replay_loss', 'rho'} < set(metrics)
  assert not _undocumented(metrics)


@pytest.mark.slow
def test_columns_of_a_population_are_on_the_page(tmp_path):
  run_dir = _run(
    tmp_path,
    impala.IMPALAConfig(batch_size=8, sequence_length=8),
    capture_the_flag.make(),
    population=population.PopulationConfig(num_members=4),
    num_environments=8,
    max_num_actor_steps=20_000,
  )
  logged = _logged(run_dir)
  assert {'rho', 'event_returns', 'scores/tactician', 'elo'} < logged
  assert not _undocumented(logged)


def test_names_on_the_page_are_in_the_library():
  sources = '\n'.join(
    path.read_text('utf-8') for path in (ROOT / 'ftwax').rglob('*.py')
  )
  parts = {
    part
    for name in _documented()
    for part in _TASK.sub('', _WILD.sub(' ', name)).split()
    if part.strip('_/')
  }
  assert len(parts) > 40
  for part in parts:
    assert part.strip('_/') in sources, part


def test_a_column_without_a_description_is_found():
  assert _undocumented({'loss', 'los', 'scores/a', 'TASK_loss'}) == {'los'}
