"""Values that no run can have are refused before there is a directory."""

import functional_fakes
import pytest
import run_helpers

from ftwax.agents import impala

CONFIG = impala.IMPALAConfig(hidden_size=8, sequence_length=5, batch_size=4)


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.mark.parametrize('runtime', ['local', 'device', 'distributed'])
@pytest.mark.parametrize(
  ('option', 'value', 'message'),
  [
    ('eval_every', -5, r'eval_every \(-5\) must be at least 1'),
    ('eval_every', '5 hours', r"eval_every \('5 hours'\) must be"),
    ('num_eval_episodes', 0, r'num_eval_episodes \(0\) must be at least 1'),
    ('num_eval_episodes', -2, r'num_eval_episodes \(-2\) must be at least 1'),
    ('seed', -1, r'seed \(-1\) must be from 0 to 4294967295'),
    ('seed', 2**32, r'seed \(4294967296\) must be from 0'),
    ('replay_port', 0, r'replay_port \(0\) must be from 1 to 65535'),
    ('replay_port', 2**16, r'replay_port \(65536\) must be from 1'),
    (
      'num_environments',
      4 * 10**9,
      r'num_environments \(4000000000\) must fit into memory.*; choose \d+ or',
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
