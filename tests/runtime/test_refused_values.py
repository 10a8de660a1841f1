"""Values that no run can have are refused before there is a directory."""

import math

import functional_fakes
import pytest
import run_helpers

import ftwax
from ftwax.agents import impala, ppo
from ftwax.environments import catch
from ftwax.networks import cores, torsos
from ftwax.records import run_directory
from ftwax.runtime import sweeps

CONFIG = impala.IMPALAConfig(
  core=cores.LSTM(8), sequence_length=5, batch_size=4
)


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: torsos.Torso(hidden_sizes=(-3,)), r'\(\(-3,\)\) of Torso must be'),
    (lambda: torsos.Torso(hidden_sizes=(4, 0)), r'must be at least 1'),
    (lambda: torsos.Torso(hidden_sizes=('x',)), r'must be at least 1'),
    (lambda: cores.StackedLSTM((0,)), r'hidden_sizes .* at least 1'),
    (lambda: cores.LSTM(forget_bias=math.nan), r'forget_bias \(nan\) of LSTM'),
    (lambda: cores.LSTM(forget_bias=math.inf), r'forget_bias \(inf\) of LSTM'),
    (lambda: cores.GRU(2.5), r'hidden_size \(2.5\) of GRU must be an integer'),
    (
      lambda: ppo.PPOConfig(learning_rate=math.inf),
      r'learning_rate .* be finite',
    ),
    (
      lambda: ppo.PPOConfig(entropy_cost=math.inf),
      r'entropy_cost .* be finite',
    ),
    (lambda: ppo.PPOConfig(learning_rate=math.nan), r'\(nan\) must be'),
  ],
)
def test_an_agent_with_impossible_numbers_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
  ppo.PPOConfig(max_gradient_norm=math.inf, max_abs_reward=math.inf)


@pytest.mark.parametrize('runtime', ['local', 'device', 'distributed'])
@pytest.mark.parametrize('size', [10**9, 10**7])
def test_a_network_that_does_not_fit_is_refused(tmp_path, runtime, size):
  config = ppo.PPOConfig(core=cores.LSTM(size))
  run = run_helpers.make_run(runtime, tmp_path)
  with pytest.raises(
    ValueError, match=r'network \([\d,]+ parameters, .* must fit into memory'
  ):
    run(run_helpers.make_experiment(config, _make_matching))
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('runtime', ['local', 'device', 'distributed'])
@pytest.mark.parametrize(
  ('option', 'value', 'message'),
  [
    ('eval_every', -5, r'eval_every \(-5\) must be at least 1'),
    ('eval_every', '5 hours', r"eval_every \('5 hours'\) must be"),
    ('num_eval_episodes', 0, r'num_eval_episodes \(0\) must be at least 1'),
    ('num_eval_episodes', -2, r'num_eval_episodes \(-2\) must be at least 1'),
    ('seed', -1, r'seed \(-1\) must be at least 0 and at most 4294967295'),
    ('seed', 2**32, r'seed \(4294967296\) must be at least 0'),
    (
      'num_environments',
      2 * 10**9,
      r'num_environments \(2000000000\) must fit into memory.*; choose \d+ or',
    ),
  ],
)
def test_it_is_refused_alike_in_all_runtimes(
  tmp_path, runtime, option, value, message
):
  run = run_helpers.make_run(runtime, tmp_path)
  of_run = option in ('eval_every', 'num_eval_episodes')
  with pytest.raises(ValueError, match=message):
    run(
      run_helpers.make_experiment(
        CONFIG, _make_matching, **({} if of_run else {option: value})
      ),
      **({option: value} if of_run else {}),
    )
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('runtime', ['device', 'distributed', 'local', 'sweep'])
def test_a_directory_that_cannot_be_made_is_refused_at_once(runtime, tmp_path):
  def run(run_dir):
    experiment = ftwax.ExperimentConfig(CONFIG, catch.make(), 100)
    if runtime == 'sweep':
      return sweeps.run(experiment, [{}], seeds=[0], run_dir=run_dir)
    return ftwax.run(experiment, runtime=runtime, run_dir=run_dir)

  file = tmp_path / 'file'
  file.write_text('of somebody')
  for wrong, message in (
    (file, 'must be new or empty'),
    (tmp_path, 'must be new or empty'),
    (file / 'run', 'must be writable, .*; choose another directory'),
    ('/proc/no/run', 'must be writable, .*; choose another directory'),
    ('', 'must be a path, but is empty'),
  ):
    with pytest.raises(run_directory.RunDirectoryError, match=message):
      run(wrong)
  assert file.read_text() == 'of somebody'
  assert list(tmp_path.iterdir()) == [file]
