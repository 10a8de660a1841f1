"""What is printed while something takes time."""

import jax

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
