"""A differentiable neural computer (DNC) learns the repeat-copy task.

The input consists of a few random bit patterns and a number of repeats. The
output must repeat the patterns that many times and end with a marker (Graves et
al., 2016, "Hybrid computing using a neural network with dynamic external
memory"). The loss is the sigmoid cross-entropy of the outputs, in bits per
sequence.

Run `uv run research/repeat_copy.py`. It trains a DNC and an LSTM of the same
size with several seeds, and writes losses and plots of inputs, targets,
outputs, read weights and write weights to `runs/repeat_copy`.
"""

import dataclasses
import json
import pathlib
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt
import optax

from ftwax.cli import flags, launch
from ftwax.networks import cores, recurrent_cores


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this experiment."""

  core: str = flags.flag(
    'exact',
    'Linkage of the DNC; or an LSTM instead.',
    ['exact', 'sparse', 'none', 'lstm'],
  )
  seeds: int = flags.flag(3, 'Number of seeds.')
  updates: int = flags.flag(20_000, 'Updates per seed.')
  report_every: int = flags.flag(500, 'Updates between printed losses.')
  learning_rate: float = flags.flag(1e-3, 'Learning rate of Adam.')
  num_slots: int = flags.flag(16, 'Slots of the memory.')
  word_size: int = flags.flag(16, 'Numbers in each slot.')
  hidden_size: int = flags.flag(64, 'Units of the LSTM.')
  run_dir: str = flags.flag('runs/repeat_copy', 'Output directory.')

  def __post_init__(self) -> None:
    """Checks the numbers."""
    flags.check_positive(
      self, 'seeds', 'updates', 'report_every', 'num_slots', 'word_size',
      'hidden_size',
    )  # fmt: skip


NUM_BITS, MAX_LENGTH, MAX_REPEATS, BATCH_SIZE = 4, 2, 2, 16
NUM_STEPS = MAX_LENGTH * (MAX_REPEATS + 1) + 3


class Batch(NamedTuple):
  """Sequences, padded with zeros to `NUM_STEPS`.

  Attributes:
    inputs: float32 [T, B, NUM_BITS + 2]: bits, start marker, repeats.
    targets: float32 [T, B, NUM_BITS + 1]: bits, end marker.
    mask: float32 [T, B], 1 at steps whose output counts.
  """

  inputs: jax.Array
  targets: jax.Array
  mask: jax.Array


def make_batch(key: jax.Array) -> Batch:
  """Draws a batch of sequences."""
  key_length, key_repeats, key_bits = jax.random.split(key, 3)
  shape = (1, BATCH_SIZE)
  length = jax.random.randint(key_length, shape, 1, MAX_LENGTH + 1)
  repeats = jax.random.randint(key_repeats, shape, 1, MAX_REPEATS + 1)
  bits = jax.random.bernoulli(key_bits, 0.5, (MAX_LENGTH, BATCH_SIZE, NUM_BITS))
  t = jnp.arange(NUM_STEPS)[:, None]

  def bits_at(index: jax.Array, is_shown: jax.Array) -> jax.Array:
    index = jnp.clip(index, 0, MAX_LENGTH - 1)
    chosen = jnp.take_along_axis(bits, index[..., None], axis=0)
    return jnp.where(is_shown[..., None], chosen, 0.0)

  # Start marker, `length` patterns, number of repeats.
  is_start = jnp.broadcast_to(t == 0, (NUM_STEPS, BATCH_SIZE))
  shown = bits_at(t - 1, (t >= 1) & (t <= length))
  told = jnp.where(t == length + 1, repeats / 10, 0.0)
  # Then `length * repeats` patterns and the end marker.
  said = t - (length + 2)
  num_said = length * repeats
  answer = bits_at(said % length, (said >= 0) & (said < num_said))
  return Batch(
    inputs=jnp.concatenate(
      [shown, is_start[..., None].astype(float), told[..., None]], axis=-1
    ),
    targets=jnp.concatenate(
      [answer, (said == num_said)[..., None].astype(float)], axis=-1
    ),
    mask=((said >= 0) & (said <= num_said)).astype(float),
  )


def make_network(name: str, options: Options) -> hk.Transformed:
  """Makes a network that maps inputs [T, B, ...] to logits and weights."""

  def unroll(inputs: jax.Array) -> Any:
    start = jnp.zeros(inputs.shape[:2], bool)
    if name == 'lstm':
      module: Any = recurrent_cores.LSTM(options.hidden_size)
    else:
      memory = cores.Memory(
        num_slots=options.num_slots, word_size=options.word_size, linkage=name
      )
      module = cores.DNC(
        options.hidden_size, memory=memory, output_size=None, clip_value=20.0
      )()
    state = module.initial_state(inputs.shape[1])
    if hk.running_init():
      module(inputs[0], state)
    output, _ = module.unroll(inputs, start, state)
    logits = hk.Linear(NUM_BITS + 1)(output.features)
    return jnp.clip(logits, -20.0, 20.0), output.auxiliary

  return hk.without_apply_rng(hk.transform(unroll))


def loss_in_bits(logits: jax.Array, batch: Batch) -> jax.Array:
  """Returns the cross-entropy of outputs, in bits, averaged over sequences."""
  errors = optax.sigmoid_binary_cross_entropy(logits, batch.targets)
  errors = jnp.sum(errors, axis=-1) * batch.mask
  return jnp.mean(jnp.sum(errors, axis=0)) / jnp.log(2.0)


class Result(NamedTuple):
  """The result of training one core.

  Attributes:
    name: name of the core.
    params: trained parameters, leaves [num_seeds, ...].
    losses: mean bits per sequence, [num_reports][num_seeds].
  """

  name: str
  params: hk.Params
  losses: list[list[float]]


def make_update(name: str, options: Options) -> tuple[Any, Any]:
  """Returns functions that initialize and update one seed."""
  network = make_network(name, options)
  optimizer = optax.chain(
    optax.clip_by_global_norm(50.0), optax.adam(options.learning_rate)
  )

  def init(key: jax.Array) -> Any:
    params = network.init(key, make_batch(key).inputs)
    return params, optimizer.init(params)

  def update(carry: Any, key: jax.Array) -> Any:
    params, opt_state = carry
    batch = make_batch(key)

    def loss(params: hk.Params) -> jax.Array:
      return loss_in_bits(network.apply(params, batch.inputs)[0], batch)

    value, gradient = jax.value_and_grad(loss)(params)
    updates, opt_state = optimizer.update(gradient, opt_state)
    return (optax.apply_updates(params, updates), opt_state), value

  return init, update


def train(name: str, options: Options) -> Result:
  """Trains all seeds at once, with a new batch for each update."""
  init, update = make_update(name, options)
  keys = jax.vmap(jax.random.PRNGKey)(jnp.arange(options.seeds))
  carry = jax.jit(jax.vmap(init))(keys)

  @jax.jit
  def run(carry: Any, report: int) -> Any:
    def draw(key: jax.Array) -> jax.Array:
      key = jax.random.fold_in(key, 1 + report)
      return jax.random.split(key, options.report_every)

    step_keys = jnp.swapaxes(jax.vmap(draw)(keys), 0, 1)
    carry, values = jax.lax.scan(jax.vmap(update), carry, step_keys)
    return carry, jnp.mean(values, axis=0)

  losses, updates = [], 0
  for report in range(-(-options.updates // options.report_every)):
    carry, values = run(carry, report)
    losses.append(values.tolist())
    updates += options.report_every
    bits = '  '.join(f'{value:.3f}' for value in losses[-1])
    print(f'{name} update {updates}: {bits} bits', flush=True)
  return Result(name, carry[0], losses)


def draw_picture(
  result: Result, seed: int, path: pathlib.Path, options: Options
) -> None:
  """Plots inputs, outputs and memory weights for one sequence."""
  batch = make_batch(jax.random.PRNGKey(1_000))
  params = jax.tree.map(lambda leaf: leaf[seed], result.params)
  logits, auxiliary = make_network(result.name, options).apply(
    params, batch.inputs
  )
  # The longest sequence of the batch.
  row = int(jnp.argmax(jnp.sum(batch.mask, axis=0)))
  outputs = jax.nn.sigmoid(logits) * batch.mask[..., None]
  panels = {
    'inputs': batch.inputs[:, row],
    'targets': batch.targets[:, row],
    'outputs': outputs[:, row],
  }
  if auxiliary:
    panels['write weights'] = jnp.sum(auxiliary['write_weights'][:, row], 1)
    reads = auxiliary['read_weights'][:, row]
    for head in range(reads.shape[1]):
      panels[f'read weights {head}'] = reads[:, head]
  figure, axes = plt.subplots(
    1, len(panels), figsize=(2.2 * len(panels), 4), layout='constrained'
  )
  for axis, (title, values) in zip(axes, panels.items(), strict=True):
    axis.imshow(values, cmap='gray_r', vmin=0.0, vmax=1.0, aspect='auto')
    axis.set_title(title, fontsize=9)
    axis.set_ylabel('step')
  figure.suptitle(f'{result.name}, seed {seed}')
  figure.savefig(path, dpi=120)
  plt.close(figure)


def draw_losses(
  results: list[Result], path: pathlib.Path, report_every: int
) -> None:
  """Plots the losses of all seeds."""
  figure, axis = plt.subplots(figsize=(6, 4), layout='constrained')
  for index, result in enumerate(results):
    updates = [(i + 1) * report_every for i in range(len(result.losses))]
    lines = axis.semilogy(updates, result.losses, color=f'C{index}')
    lines[0].set_label(result.name)
  axis.set_xlabel('updates')
  axis.set_ylabel('bits per sequence')
  axis.axhline(0.1, color='gray', linewidth=0.5)
  axis.legend()
  figure.savefig(path, dpi=120)
  plt.close(figure)


def main(options: Options) -> None:
  """Trains the cores and plots results."""
  directory = pathlib.Path(options.run_dir)
  directory.mkdir(parents=True, exist_ok=True)
  names = dict.fromkeys([options.core, 'lstm'])
  results = []
  for name in names:
    results.append(train(name, options))
    for seed in range(options.seeds):
      draw_picture(results[-1], seed, directory / f'{name}_{seed}.png', options)
  draw_losses(results, directory / 'losses.png', options.report_every)
  summary = [
    {key: x for key, x in result._asdict().items() if key != 'params'}
    for result in results
  ]
  (directory / 'losses.json').write_text(json.dumps(summary, indent=2))
  print(f'\nFigures and losses are in {directory}.')


if __name__ == '__main__':
  launch.main(__file__)
