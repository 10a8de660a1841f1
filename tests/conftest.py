"""Strictness for every test: see also `filterwarnings` in pyproject.toml."""

import gc
import os
import pathlib
import secrets
import signal
import sys

import kept_functions

# Set before JAX is imported, and inherited by what tests start. Several CPU
# devices, so that code which assumes that there is one is found out. Most of a
# test's time is compilation; without optimizing machine code it takes half.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# What tests compile is compiled once, by whichever process, and kept for the
# next session; so are modules, where Python must not write beside its sources.
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
  os.environ['JAX_COMPILATION_CACHE_DIR'] = str(kept_functions.make_folder())
  os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
  os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
if 'PYTHONDONTWRITEBYTECODE' in os.environ:
  kept_functions.keep_modules()
kept_functions.add_flags(
  '--xla_force_host_platform_device_count=4',
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
  '--xla_cpu_parallel_codegen_split_count=1',
)

import equal_functions  # noqa: E402
import held_memory  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

from ftwax import import_guard  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')

# A shell that starts them in the background, or nohup, has them ignore these.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
if (
  hasattr(signal, 'SIGHUP')  # Not on Windows.
  and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
):
  signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Files of tests that import Reverb or acme: they need Python 3.10 and the extra
# acme. Their tests are marked with `python_310`, as single tests are that do.
_REVERB_HALF = [
  'acme',
  'agents/test_actor_and_learner.py',
  'agents/test_ftw_pair.py',
  'runtime/test_launchpad.py',
]
_HAS_REVERB_HALF = import_guard.is_installed('reverb')

collect_ignore_glob = [] if _HAS_REVERB_HALF else _REVERB_HALF


if _HAS_REVERB_HALF:
  import rlax  # noqa: E402, F401 Before what loads TensorFlow, as it must.

# Another one each time; processes of one session inherit it.
FUZZ_SEED = os.environ.setdefault(
  'FTWAX_FUZZ_SEED', str(secrets.randbelow(2**31))
)


def pytest_report_header(config):
  del config
  seed = f'FTWAX_FUZZ_SEED={FUZZ_SEED} repeats what tests/test_fuzz.py draws'
  if _HAS_REVERB_HALF:
    return [f'jax {jax.__version__}: both halves', seed]
  return [
    f'jax {jax.__version__}: without Reverb, acme and Launchpad, which need'
    f' Python 3.10 and --extra acme, and so without {", ".join(_REVERB_HALF)}',
    seed,
  ]


class _NamesFailures:
  """Names a failed test when it fails: others may take long after it."""

  def __init__(self, terminal):
    self._terminal = terminal

  def pytest_runtest_logreport(self, report):
    if report.failed:
      crash = getattr(report.longrepr, 'reprcrash', None)
      reason = crash.message if crash else str(report.longrepr)
      line = f'FAILED {report.nodeid} ({report.when}) {reason}'.splitlines()[0]
      self._terminal.write_line(f'\n{line}', red=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
  terminal = config.pluginmanager.get_plugin('terminalreporter')
  if terminal and not hasattr(config, 'workerinput'):
    config.pluginmanager.register(_NamesFailures(terminal))


# Folders whose files take long. They begin first, since a process that ends
# with such a file works alone.
_LONG = ('agents', 'docs', 'experiments', 'runtime', 'web')


@pytest.hookimpl(tryfirst=True)  # Before -m selects.
def pytest_collection_modifyitems(items):
  tests = pathlib.Path(__file__).parent
  items.sort(
    key=lambda item: item.path.relative_to(tests).parts[0] not in _LONG
  )
  for item in items:
    path = item.path.relative_to(tests).as_posix()
    if path.startswith(tuple(_REVERB_HALF)):
      item.add_marker('python_310')
    if item.get_closest_marker('python_310') and not _HAS_REVERB_HALF:
      reason = 'acme, Reverb and Launchpad need Python 3.10 and --extra acme'
      item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session):
  """Collects garbage rarely: JAX makes much, and modules are many."""
  del session
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 20, 100)


# What a test process holds at most.
_MAX_RESIDENT_BYTES = 2_000_000_000
_FREED_AT_BYTES = 1_500_000_000
_MAX_MAPS = 30_000  # Linux allows 65,530.


def pytest_runtest_teardown(item):
  """Frees early what a module compiled, if that is much."""
  del item
  if sys.platform == 'linux' and held_memory.resident_bytes() > _FREED_AT_BYTES:
    held_memory.free()


@pytest.fixture(scope='module', autouse=True)
def _frees_memory():
  """Frees what a module compiled, once it has shown that it fits."""
  yield
  if sys.platform != 'linux':
    return
  resident_bytes, maps = held_memory.measure()
  if held_memory.holds_compiled():  # It takes long where there is nothing, too.
    held_memory.free()
  assert resident_bytes < _MAX_RESIDENT_BYTES, (
    f'the test process holds {resident_bytes / 1e9:.1f} GB at the end of this'
    f' module, of {_MAX_RESIDENT_BYTES / 1e9:.0f} GB; split it, or compile less'
  )
  assert maps < _MAX_MAPS, (
    f'the test process has {maps:,} memory maps at the end of this module, of'
    f' {_MAX_MAPS:,}; split it, or compile less'
  )


@pytest.fixture
def key():
  return jax.random.PRNGKey(0)


@pytest.fixture(scope='module')
def compiles_once():
  """Compiles equal functions of a module's tests once."""
  with pytest.MonkeyPatch.context() as patch:
    equal_functions.share(patch)
    yield
