"""Strictness for every test: see also `filterwarnings` in pyproject.toml."""

import gc
import os
import secrets
import signal
import sys

# Set before JAX is imported, and inherited by what tests start. Several CPU
# devices, so that code which assumes that there is one is found out. Most of a
# test's time is compilation; without optimizing machine code it takes half.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
  os.environ.setdefault('JAX_ENABLE_COMPILATION_CACHE', 'false')
os.environ['XLA_FLAGS'] = ' '.join(
  [
    os.environ.get('XLA_FLAGS', ''),
    '--xla_force_host_platform_device_count=4',
    '--xla_backend_optimization_level=0',
    '--xla_llvm_disable_expensive_passes=true',
  ]
)

import equal_functions  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')

# A shell that starts them in the background, or nohup, has them ignore these.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
  signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests of the half that talks to Reverb and acme, which need Python 3.10.
_REVERB_HALF = [
  'replay/reverb',
  'agents/test_actor_and_learner.py',
  'agents/test_ftw_pair.py',
  'docs/test_acme_by_hand.py',
  'runtime/test_launchpad.py',
]
_HAS_REVERB_HALF = sys.version_info < (3, 11)

collect_ignore_glob = [] if _HAS_REVERB_HALF else _REVERB_HALF


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
    f' Python 3.10, and so without {", ".join(_REVERB_HALF)}',
    seed,
  ]


def pytest_collection_finish(session):
  """Collects garbage rarely: JAX makes much, and modules are many."""
  del session
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def key():
  return jax.random.PRNGKey(0)


@pytest.fixture(scope='module')
def compiles_once():
  """Compiles equal functions of a module's tests once."""
  with pytest.MonkeyPatch.context() as patch:
    equal_functions.share(patch)
    yield
