"""A temporal hierarchy with memory in plain JAX, from the paper's equations.

One row, one step at a time, nothing shared with the library: gradients are
those of autodiff. A level is a dict with the weights of its LSTM (`lstm`, over
the concatenated inputs, gates in the order input, cell, forget, output), and of
the projection (`output`) and the latent (`latent`); the interface's weights are
those of all levels.
"""

import jax
import jax.numpy as jnp


def scaled(x, factor):
  """Returns x, with the gradient multiplied by `factor`."""
  return factor * x + jax.lax.stop_gradient((1.0 - factor) * x)


def linear(layer, x):
  return x @ layer['w'] + layer['b']


def lstm(layer, x, h, c):
  i, g, f, o = jnp.split(linear(layer, jnp.concatenate([x, h])), 4)
  c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
  return jax.nn.sigmoid(o) * jnp.tanh(c), c


def content(memory, key, strength):
  norms = jnp.sqrt(jnp.sum(memory**2, 1) + 1e-6)
  norm = jnp.sqrt(jnp.sum(key**2) + 1e-6)
  return jax.nn.softmax(strength * (memory @ key) / (norms * norm + 1e-6))


def cut(numbers, sizes):
  """Cuts a vector into parts of these shapes."""
  parts, start = [], 0
  for shape in sizes:
    size = 1
    for side in shape:
      size *= side
    parts.append(numbers[start : start + size].reshape(shape))
    start += size
  assert start == len(numbers)
  return parts


def access(numbers, m, num_reads):
  """One access with one write head and exact links (Graves et al., 2016)."""
  n, w = m['memory'].shape
  r = num_reads
  shapes = [(r, w), (r,), (r, 3), (w,), (), (w,), (w,), (), (), (r,)]
  (
    read_keys,
    read_strengths,
    modes,
    write_key,
    write_strength,
    vector,
    erase,
    allocation_gate,
    write_gate,
    free_gates,
  ) = cut(numbers, shapes)
  oneplus = lambda x: 1.0 + jax.nn.softplus(x)  # noqa: E731
  allocation_gate, write_gate = jax.nn.sigmoid(
    jnp.stack([allocation_gate, write_gate])
  )
  free = jax.nn.sigmoid(free_gates)
  psi = jnp.prod(1.0 - free[:, None] * m['read_weights'], axis=0)
  written = jax.lax.stop_gradient(m['write_weights'])
  usage = (m['usage'] + written - m['usage'] * written) * psi
  u = 1e-6 + (1.0 - 1e-6) * usage
  order = jnp.argsort(u)
  before, allocation = 1.0, jnp.zeros(n)
  for j in range(n):
    allocation = allocation.at[order[j]].set((1.0 - u[order[j]]) * before)
    before = before * u[order[j]]
  by_content = content(m['memory'], write_key, oneplus(write_strength))
  w_t = write_gate * (
    allocation_gate * allocation + (1.0 - allocation_gate) * by_content
  )
  memory = m['memory'] * (1.0 - jnp.outer(w_t, jax.nn.sigmoid(erase)))
  memory = memory + jnp.outer(w_t, vector)
  link = (1.0 - w_t[:, None] - w_t[None, :]) * m['link']
  link = (link + jnp.outer(w_t, m['precedence'])) * (1.0 - jnp.eye(n))
  precedence = (1.0 - jnp.sum(w_t)) * m['precedence'] + w_t
  reads = []
  for k in range(r):
    backward, forward, by_key = jax.nn.softmax(modes[k])
    old = m['read_weights'][k]
    found = content(memory, read_keys[k], oneplus(read_strengths[k]))
    reads.append(
      backward * link.T @ old + forward * link @ old + by_key * found
    )
  reads = jnp.stack(reads)
  state = {
    'memory': memory,
    'read_weights': reads,
    'write_weights': w_t,
    'usage': usage,
    'link': link,
    'precedence': precedence,
  }
  return (reads @ memory).reshape(-1), state


def zero_state(num_levels, hidden_size, latent_size, memory_shape, num_reads):
  n, w = memory_shape
  return {
    'levels': [
      {
        'h': jnp.zeros(hidden_size),
        'c': jnp.zeros(hidden_size),
        'words': jnp.zeros(num_reads * w),
        'loc': jnp.zeros(latent_size),
        'scale': jnp.zeros(latent_size),
      }
      for _ in range(num_levels)
    ],
    'memory': {
      'memory': jnp.zeros((n, w)),
      'read_weights': jnp.zeros((num_reads, n)),
      'write_weights': jnp.zeros(n),
      'usage': jnp.zeros(n),
      'link': jnp.zeros((n, n)),
      'precedence': jnp.zeros(n),
    },
    'z': jnp.zeros(latent_size),
    'count': 0,
  }


def step(params, x, noise, state, period, factor):
  """One step of a row; `state['count']` is a plain integer.

  `period` is that of the slow level, whose powers are those of slower ones, or
  a tuple with one for each slow level. A level without `output` computes its
  latent from h and the words; one with as many numbers as latents has a fixed
  scale.
  """
  levels, memory = list(state['levels']), state['memory']
  num_reads = len(memory['read_weights'])
  if isinstance(period, tuple):
    periods = [1, *period]
  else:
    periods = [period**i for i in range(len(levels))]
  ticks = [state['count'] % one == 0 for one in periods]
  for i in reversed(range(len(levels))):
    if not ticks[i]:
      continue
    own, weights = levels[i], params['levels'][i]
    seen = []
    if i == 0:
      seen.append(x)
    if i + 1 < len(levels):
      slow = levels[i + 1]
      seen += [scaled(slow[k], factor) for k in ('h', 'words', 'loc', 'scale')]
    if i > 0:
      seen += [levels[i - 1]['h'], levels[i - 1]['words']]
    else:
      seen.append(state['z'])
    seen.append(own['words'])
    h, c = lstm(weights['lstm'], jnp.concatenate(seen), own['h'], own['c'])
    words, memory = access(linear(params['interface'], h), memory, num_reads)
    y = jnp.concatenate([h, words])
    if 'output' in weights:
      y = linear(weights['output'], y)
    y = linear(weights['latent'], y)
    loc, scale = y, jnp.full(y.shape, 0.1)
    if len(y) == 2 * len(noise):
      loc, scale = jnp.split(y, 2)
      scale = jax.nn.softplus(scale) * (0.1 / jnp.log(2.0)) + 1e-6
    levels[i] = {'h': h, 'c': c, 'words': words, 'loc': loc, 'scale': scale}
  z = levels[0]['loc'] + levels[0]['scale'] * noise
  count = state['count'] + 1
  return ticks, {'levels': levels, 'memory': memory, 'z': z, 'count': count}
