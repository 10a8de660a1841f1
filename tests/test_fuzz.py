"""Random values, commands, records, environments and faults: no traceback.

Whatever a user gives, a run begins, or ends by one of the errors whose message
is for the user. `FTWAX_FUZZ_SECONDS=3600 pytest -m '' tests/test_fuzz.py`
searches for an hour; in CI it takes 16 s. Each session draws other values;
its header has the seed that repeats them: `FTWAX_FUZZ_SEED=SEED pytest ...`.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import shutil
import time
import warnings

import dm_env
import fakes
import functional_fakes
import gymnasium
import hypothesis
import jax
import numpy as np
import pytest
from dm_env import specs
from hypothesis import strategies as st

from ftwax import errors, parts, types
from ftwax.agents import impala
from ftwax.cli import commands, launch, past_runs
from ftwax.environments import (
  environment_faults,
  gymnasium_adapter,
  validation,
  vector,
)
from ftwax.inference import loading
from ftwax.networks import cores
from ftwax.records import checkpoints, config_files, run_directory
from ftwax.runtime import comparison, runs
from ftwax.runtime import experiment as experiment_lib

pytestmark = pytest.mark.ci  # Other tests give the values found so far.

# Of all eight searches together.
_SECONDS = float(os.environ.get('FTWAX_FUZZ_SECONDS', '16')) / 8
_SEED = int(os.environ['FTWAX_FUZZ_SEED'])  # See conftest.py.

_CONFIG = impala.IMPALAConfig(
  core=cores.FeedForward(4), sequence_length=3, batch_size=4
)

_EXPECTED = errors.EXPECTED

_INTS = st.one_of(
  st.integers(-3, 70_000),
  st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 10**30]),
)
_FLOATS = st.one_of(
  st.floats(), st.sampled_from([0.0, -1.0, 1e300, math.nan, math.inf])
)
_NUMBERS = st.one_of(_INTS, _FLOATS)


def _search(test, *strategies):
  """Runs a test with what strategies draw until its time is over."""
  print(f'FTWAX_FUZZ_SEED={_SEED}')  # Shown if it fails.
  settings = hypothesis.settings(
    max_examples=10,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  end = time.monotonic() + _SECONDS
  for seed in itertools.count(_SEED):

    @settings
    @hypothesis.given(st.tuples(*strategies))
    def run(drawn):
      test(*drawn)

    hypothesis.seed(seed)(run)()
    if time.monotonic() > end:
      return


class _BegunError(Exception):
  """All checks are passed."""


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


def test_values_begin_a_run_or_are_refused(monkeypatch):
  def begin(*args):
    raise _BegunError

  monkeypatch.setattr(runs, 'execute', begin)
  fields = st.fixed_dictionaries(
    {},
    optional={
      'max_num_actor_steps': _INTS,
      'num_environments': _INTS,
      'seed': _INTS,
      'steps_per_round': _INTS,
      'opponent_share': _FLOATS,
      'replay': st.sampled_from([None, 'functional', 'other', '']),
    },
  )

  def test(options, save_every, eval_every, num_eval_episodes, runtime):
    with pytest.raises((*_EXPECTED, _BegunError)) as info:
      if save_every is not None:
        made = checkpoints.CheckpointingConfig(save_every)
        options = {**options, 'checkpointing': made}
      config = experiment_lib.ExperimentConfig(
        **{
          'agent': _CONFIG,
          'environment': _make_matching,
          'max_num_actor_steps': 100,
          'num_environments': 4,
          'replay': None if runtime == 'device' else 'functional',
          **options,
        }
      )
      runs.run_experiment(
        config, eval_every, num_eval_episodes, runtime=runtime
      )
    assert info.type is _BegunError or str(info.value)

  _search(
    test,
    fields,
    st.one_of(st.none(), _FLOATS),
    st.one_of(st.none(), _INTS),
    _INTS,
    st.sampled_from(['local', 'device', 'elsewhere']),
  )


def test_configs_make_an_agent_or_are_refused():
  names = [
    'core.hidden_size',
    'sequence_length',
    'batch_size',
    'num_epochs',
    'num_minibatches',
    'optimizer.max_skipped_updates',
    'queue.max_size',
    'queue.prefetch_size',
    'queue.timeout_s',
    'replay.capacity',
    'decay.to',
  ]
  spec = functional_fakes.make_matching().spec
  small = st.one_of(st.integers(-2, 40), _FLOATS)

  def test(fields, constants):
    try:
      config = _CONFIG.replace(**constants)
      for key, value in fields.items():
        part, _, name = key.rpartition('.')
        changed = value
        if part:
          changed = getattr(config, part).replace(**{name: value})
        config = config.replace(**{part or name: changed})
      network = config.make_network(spec)
      core = config.make_learner_core(network, spec)
      jax.eval_shape(core.init, jax.random.PRNGKey(0))
    except _EXPECTED as error:
      assert str(error)  # noqa: PT017

  _search(
    test,
    st.dictionaries(st.sampled_from(names), small, max_size=3),
    st.dictionaries(
      st.sampled_from([*parts.hyperparameters_of(type(_CONFIG)), 'decay']),
      _FLOATS,
      max_size=2,
    ),
  )


@pytest.fixture
def saved(tmp_path):
  """A checkpoint, and what it holds."""
  state = {'w': np.arange(6.0, dtype=np.float32), 'n': np.int32(3)}
  directory = tmp_path / 'saved'
  with checkpoints.Checkpointer(directory) as checkpointer:
    checkpointer.save(7, state, {'counts': {'actor_steps': 7}, 'returns': []})
  return directory, state


_JSON = st.recursive(
  st.one_of(st.none(), st.booleans(), _NUMBERS, st.text(max_size=5)),
  lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.dictionaries(
      st.sampled_from(['format', 'files', 'metadata', 'x']),
      inner,
      max_size=5,
    ),
  ),
  max_leaves=8,
)


def _sign(path):
  """Makes a manifest that was changed look whole."""
  content = (path / 'manifest.json').read_bytes()
  line = f'{hashlib.sha256(content).hexdigest()}  manifest.json\n'
  (path / 'manifest.sha256').write_text(line)


@pytest.mark.filterwarnings(
  'ignore::ftwax.records.checkpoints.DamagedCheckpointWarning'
)
def test_checkpoints_are_restored_whole_or_refused(saved, tmp_path):
  directory, state = saved
  files = [
    path.relative_to(directory)
    for path in sorted(directory.rglob('*'))
    if path.is_file()
  ]
  copy = tmp_path / 'copy'

  def check():
    with checkpoints.Checkpointer(copy) as checkpointer:
      try:
        restored, _ = checkpointer.restore(state)
      except checkpoints.CheckpointError as error:
        assert str(error)  # noqa: PT017
      else:
        jax.tree.map(np.testing.assert_array_equal, restored, state)

  def test(name, position, byte, value):
    for change in ('flip', 'cut', 'remove', 'json', 'field'):
      shutil.rmtree(copy, ignore_errors=True)
      shutil.copytree(directory, copy)
      path = copy / name
      manifest = copy / '0000000007' / 'manifest.json'
      content = bytearray(path.read_bytes())
      if change == 'flip':
        content[position % len(content)] = byte
        path.write_bytes(content)
      elif change == 'cut':
        path.write_bytes(content[: position % len(content)])
      elif change == 'remove':
        path.unlink()
      else:
        fields = json.loads(manifest.read_text())
        if change == 'field':
          fields[sorted(fields)[byte % len(fields)]] = value
        else:
          fields = value
        manifest.write_text(json.dumps(fields))
        _sign(manifest.parent)
      check()

  _search(
    test,
    st.sampled_from(files),
    st.integers(0, 4000),
    st.integers(0, 255),
    _JSON,
  )


_SPEC = types.EnvironmentSpec(
  observations={'x': specs.BoundedArray((2,), np.float32, 0.0, 1.0, 'x')},
  actions=specs.DiscreteArray(2, name='action'),
  rewards=specs.Array((), np.float32, 'reward'),
  discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
)


class _Replayed(dm_env.Environment):
  """Does in each call what the test says."""

  def __init__(self, calls):
    self._calls = iter(calls)

  observation_spec = lambda self: _SPEC.observations  # noqa: E731
  action_spec = lambda self: _SPEC.actions  # noqa: E731

  def reset(self):
    return self.step(None)

  def step(self, action):
    del action
    value = next(self._calls)
    if isinstance(value, BaseException):
      raise value
    return value


_ANYTHING = st.one_of(
  st.none(),
  _NUMBERS,
  st.text(max_size=3),
  st.lists(_NUMBERS, max_size=3),
  st.builds(np.asarray, st.lists(st.floats(), max_size=3)),
)
_OBSERVATIONS = st.one_of(
  _ANYTHING,
  st.builds(
    lambda values, dtype: {'x': np.asarray(values, dtype)},
    st.lists(st.floats(-2.0, 2.0, width=16), min_size=1, max_size=3),
    st.sampled_from([np.float32, np.float64, np.float16]),
  ),
)
_TIMESTEPS = st.one_of(
  st.builds(
    dm_env.TimeStep,
    st.one_of(st.sampled_from(list(dm_env.StepType)), st.integers(-1, 9)),
    _ANYTHING,
    _ANYTHING,
    _OBSERVATIONS,
  ),
  _ANYTHING,
)
_ERRORS = st.builds(
  lambda kind, text: kind(text),
  st.sampled_from(
    [RuntimeError, KeyError, AssertionError, StopIteration, SystemExit, OSError]
  ),
  st.text(max_size=20),
)


def test_timesteps_and_errors_are_an_environment_s_fault():
  def test(calls):
    made = vector.VectorEnvironment([_Replayed(calls)], 'mine')
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', RuntimeWarning)
      try:
        made.reset()
        for _ in calls[1:]:
          made.step(np.zeros(1, np.int32))
      except environment_faults.EnvironmentFault as fault:
        assert "'mine[0]'" in str(fault)  # noqa: PT017
        if not isinstance(fault, validation.InvalidTimestepError):
          assert '\n' not in str(fault)

  _search(
    test,
    st.lists(st.one_of(_TIMESTEPS, _ERRORS), min_size=1, max_size=4),
  )


class _ReplayedGymnasium(gymnasium.Env):
  """Returns in each call what the test says."""

  def __init__(self, spaces, calls):
    self.observation_space, self.action_space = spaces
    self._calls = iter(calls)

  def reset(self, *, seed=None, options=None):
    del seed, options
    return next(self._calls)

  def step(self, action):
    assert self.action_space.contains(action)
    return next(self._calls)


_BOX = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
_SPACES = st.one_of(
  st.sampled_from(
    [
      _BOX,
      gymnasium.spaces.Discrete(3, start=-1),
      gymnasium.spaces.MultiDiscrete([2, 3]),
      gymnasium.spaces.MultiBinary(2),
      gymnasium.spaces.Dict({'a': _BOX, 'b': gymnasium.spaces.Discrete(2)}),
      gymnasium.spaces.Tuple([_BOX]),
      gymnasium.spaces.Text(3),
      gymnasium.spaces.Sequence(_BOX),
    ]
  ),
  st.builds(
    lambda low, size, dtype: gymnasium.spaces.Box(low, low + 2, size, dtype),
    st.integers(0, 5),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from([np.uint8, np.int64, np.float64, np.float16]),
  ),
  st.none(),
)
_RESULTS = st.one_of(
  _ANYTHING,
  st.tuples(_ANYTHING, st.just({})),
  st.tuples(_ANYTHING, _ANYTHING, _ANYTHING, _ANYTHING, st.just({})),
  st.just((np.zeros(2, np.float32), {})),
  st.just((np.zeros(2, np.float32), 1.0, False, False, {})),
  _ERRORS,
)


def test_gymnasium_environments_are_played_or_at_fault():
  def test(spaces, calls):
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      environment = _ReplayedGymnasium(spaces, calls)
      try:
        made = vector.VectorEnvironment(
          [gymnasium_adapter.GymnasiumEnvironment(environment)], 'mine'
        )
        made.reset()
        action = fakes.sample(np.random.default_rng(0), made.action_spec())
        for _ in calls[1:]:
          made.step(jax.tree.map(lambda part: np.asarray(part)[None], action))
      except _EXPECTED as error:
        assert str(error)  # noqa: PT017

  _search(
    test,
    st.tuples(_SPACES, _SPACES),
    st.lists(_RESULTS, min_size=1, max_size=4),
  )


_WORDS = st.one_of(
  st.sampled_from(
    ['', '0', '-1', '1e3', 'nan', 'true', 'ppo', 'device', 'catch', '.', 'run']
    + [
      'agent.batch_size=3',
      'agent.core=lstm',
      'agent={}',
      'a.b.c=[',
      '=',
      '\0',
    ]
  ),
  _NUMBERS.map(str),
  st.text(max_size=6),
)
_FLAGS = st.builds(
  '--{}={}'.format,
  st.sampled_from([f.name for f in dataclasses.fields(launch.Options)]),
  _WORDS,
)


def test_command_lines_are_run_or_refused(tmp_path, monkeypatch):
  def begin(*args, **kwargs):
    raise _BegunError

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(runs, 'run_experiment', begin)
  monkeypatch.setattr(comparison, 'compare', begin)
  # Those that run until they are told to end, or check the machine.
  names = set(commands.COMMANDS) - {'watch', 'play', 'doctor'}

  def test(name, words, options):
    try:
      status = commands.main([name, *words, *options])
    except _BegunError:
      assert name == 'train'
    except SystemExit as end:
      status = end.code
      assert isinstance(status, int) or str(status)  # noqa: PT017

  _search(
    test,
    st.one_of(st.just('train'), st.sampled_from(sorted(names)), _WORDS),
    st.one_of(st.just(['catch']), st.lists(_WORDS, max_size=2)),
    st.lists(st.one_of(_FLAGS, _WORDS), max_size=3),
  )


@pytest.mark.filterwarnings('ignore:the loss of the run')
def test_opened_runs_are_read_or_refused(tmp_path):
  config = config_files.to_json(launch.find('catch').build())
  leaves = sorted(config_files.flatten(config))
  values = st.one_of(
    _JSON,
    st.sampled_from(
      ['game:make', 'ftwax.environments.catch:make', 'LogUniform(1, 2)', '(']
    ),
    st.fixed_dictionaries({'__type__': st.sampled_from(['a:B', 'os:system'])}),
  )
  run = tmp_path / 'run'
  run.mkdir()

  def test(key, value, is_cut):
    plain = json.loads(json.dumps(config))
    *parents, name = key.split('.')
    part = plain
    for parent in parents:
      part = part[int(parent) if isinstance(part, list) else parent]
    part[int(name) if isinstance(part, list) else name] = value
    text = json.dumps(plain)
    (run / 'config.json').write_text(text[: len(text) // (1 + is_cut)])
    for read in (lambda: past_runs.rebuild(str(run), None), lambda: load(run)):
      try:
        read()
      except _EXPECTED as error:
        assert str(error) and '\n' not in str(error)  # noqa: PT017

  load = loading.read_network
  _search(test, st.sampled_from(leaves), values, st.integers(0, 1))


def test_run_directories_are_opened_or_refused(tmp_path):
  made = run_directory.create_at(tmp_path / 'run', {'a': 1})
  names = [p.name for p in sorted(pathlib.Path(made).iterdir())]

  def test(name, content):
    copy = tmp_path / 'copy'
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(made, copy)
    if not isinstance(content, bytes):
      content = json.dumps(content).encode()
    (copy / name).write_bytes(content)
    try:
      run_directory.open_existing(copy, {'a': 1})
    except run_directory.RunDirectoryError as error:
      assert str(error)  # noqa: PT017

  _search(
    test,
    st.sampled_from(names),
    st.one_of(st.binary(max_size=40), _JSON),
  )
