"""What is printed while something takes time."""

import jax
import pytest

from ftwax import compilation


def test_compiling_is_announced_before_and_timed(capsys):
  with compilation.shown('a run: compiling'):
    assert capsys.readouterr().out == 'a run: compiling...\n'
  out = capsys.readouterr().out
  assert out.startswith('a run: compiling took ') and out.count('\n') == 1


def test_what_takes_long_to_compile_is_counted():
  seen = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: seen.append(event)
  )
  jax.jit(lambda x: x + 1)(1.0)
  # JAX names the event so.
  event = '/jax/core/compile/backend_compile_duration'
  assert event in seen
  before = compilation.num_compiled()
  for seconds in (0.01, 0.5):
    jax.monitoring.record_event_duration_secs(event, seconds)
    jax.monitoring.record_event_duration_secs('/another', seconds)
  assert compilation.num_compiled() == before + 1


@pytest.mark.parametrize(
  ('backend', 'flags', 'names'),
  [
    ('cpu', '', {'xla_backend_optimization_level'}),
    ('cpu', '--xla_backend_optimization_level=3', set()),
    (
      'gpu',
      '',
      {'xla_gpu_enable_command_buffer', 'xla_gpu_graph_min_graph_size'},
    ),
    (
      'gpu',
      '--xla_gpu_enable_command_buffer=',
      {'xla_gpu_graph_min_graph_size'},
    ),
    ('tpu', '', set()),
  ],
)
def test_each_backend_has_its_options_unless_the_user_sets_them(
  monkeypatch, backend, flags, names
):
  given = []

  def jit(function, compiler_options):
    given.append(compiler_options or {})
    return function

  monkeypatch.setattr(jax, 'jit', jit)
  monkeypatch.setattr(jax, 'default_backend', lambda: backend)
  monkeypatch.setenv('XLA_FLAGS', flags)
  compilation.jit(lambda x: x)
  compilation.jit_unoptimized(lambda x: x)
  assert given[0].keys() == names
  assert 'xla_gpu_enable_command_buffer' not in given[1]


def test_this_version_of_jax_knows_the_options_of_gpus():
  options = compilation._GRAPHS
  assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2
