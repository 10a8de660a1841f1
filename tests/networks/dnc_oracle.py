"""The DNC by loops in float64: one sequence, no batch, straight from the paper.

Graves et al., 2016, Methods. Independent of the library: nothing is shared.
"""

import numpy as np


def softmax(x):
  e = np.exp(x - np.max(x))
  return e / e.sum()


def content_weights(memory, key, strength, mask=None):
  mask = np.ones_like(key) if mask is None else mask
  similarity = []
  for row in memory:
    a, b = row * mask, key * mask
    norms = np.sqrt(np.sum(a * a) + 1e-6) * np.sqrt(np.sum(b * b) + 1e-6)
    similarity.append(np.dot(a, b) / (norms + 1e-6))
  return softmax(strength * np.array(similarity))


def retention(free_gates, read_weights):
  psi = np.ones(read_weights.shape[1])
  for gate, weights in zip(free_gates, read_weights, strict=True):
    psi = psi * (1 - gate * weights)
  return psi


def usage(usage_tm1, write_weights, psi):
  w = np.zeros_like(usage_tm1)
  for head in write_weights:
    w = w + head - w * head  # 1 - prod (1 - w)
  return (usage_tm1 + w - usage_tm1 * w) * psi


def allocation(u):
  u = 1e-6 + (1 - 1e-6) * u
  a = np.zeros_like(u)
  product = 1.0
  for slot in sorted(range(len(u)), key=lambda i: (u[i], i)):
    a[slot] = (1 - u[slot]) * product
    product *= u[slot]
  return a


def write_allocation(u, gates):
  weights = []
  for gate in gates:
    weights.append(allocation(u))
    u = u + (1 - u) * gate * weights[-1]
  return np.stack(weights)


def write(memory, write_weights, erase, vectors):
  memory = memory.copy()
  kept = np.ones_like(memory)
  added = np.zeros_like(memory)
  for w, e, v in zip(write_weights, erase, vectors, strict=True):
    for i in range(memory.shape[0]):
      kept[i] *= 1 - w[i] * e
      added[i] += w[i] * v
  return memory * kept + added


def precedence(p, w):
  return (1 - w.sum()) * p + w


def link(link_tm1, w, p):
  num_slots = len(w)
  new = np.zeros_like(link_tm1)
  for i in range(num_slots):
    for j in range(num_slots):
      if i != j:
        new[i, j] = (1 - w[i] - w[j]) * link_tm1[i, j] + w[i] * p[j]
  return new


def keep_largest(w, num_links):
  kept = np.zeros_like(w)
  order = sorted(range(len(w)), key=lambda i: (-w[i], i))[:num_links]
  for i in order:
    kept[i] = w[i]
  return kept * w.sum() / kept.sum() if kept.sum() > 0 else kept


def sparse_link(link_tm1, w, p, num_links):
  new = link(link_tm1, keep_largest(w, num_links), keep_largest(p, num_links))
  return np.where(new < 1 / num_links, 0.0, new)


def sharpen(d, s):
  d = (d + 1e-6) / np.max(d + 1e-6)
  return d**s / np.sum(d**s)


def access(interface, state, linkage, num_links=4, deallocation=False):
  """One access: `interface` and `state` are dicts of arrays without a batch."""
  s, x = dict(state), interface
  num_writes = len(x['write_gates'])
  if linkage == 'none':
    u = 0.99 * s['usage']
    order = sorted(range(len(u)), key=lambda i: (u[i], i))[:num_writes]
    alloc = np.eye(len(u))[order]
    memory = s['memory']
  else:
    psi = retention(x['free_gates'], s['read_weights'])
    u = usage(s['usage'], s['write_weights'], psi)
    alloc = write_allocation(u, x['allocation_gates'] * x['write_gates'])
    memory = s['memory'] * psi[:, None] if deallocation else s['memory']
  masks = x.get('write_masks', [None] * num_writes)
  w = []
  for h in range(num_writes):
    c = content_weights(
      s['memory'], x['write_keys'][h], x['write_strengths'][h], masks[h]
    )
    g = x['allocation_gates'][h]
    w.append(x['write_gates'][h] * (g * alloc[h] + (1 - g) * c))
  w = np.stack(w)
  memory = write(memory, w, x['erase'], x['write_vectors'])
  backward, forward, links, precedences = [], [], [], []
  for h in range(num_writes if linkage != 'none' else 0):
    before = s['link'][h], w[h], s['precedence'][h]
    if linkage == 'sparse':
      links.append(sparse_link(*before, num_links))
    else:
      links.append(link(*before))
    precedences.append(precedence(s['precedence'][h], w[h]))
    backward.append(s['read_weights'] @ links[-1])
    forward.append(s['read_weights'] @ links[-1].T)
  reads = []
  masks = x.get('read_masks', [None] * len(s['read_weights']))
  for r in range(len(s['read_weights'])):
    modes = [d[r] for d in backward] + [d[r] for d in forward]
    if 'sharpness' in x:
      modes = [sharpen(d, x['sharpness'][i][r]) for i, d in enumerate(modes)]
    modes.append(
      content_weights(
        memory, x['read_keys'][r], x['read_strengths'][r], masks[r]
      )
    )
    reads.append(np.dot(x['read_modes'][r], modes))
  reads = np.stack(reads)
  if linkage == 'none':
    u = u + w.sum(0) + reads.sum(0)
  return {
    'memory': memory,
    'read_weights': reads,
    'write_weights': w,
    'usage': u,
    'words': reads @ memory,
    'link': np.array(links),
    'precedence': np.array(precedences),
  }
