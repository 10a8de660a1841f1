# /// script
# requires-python = "==3.10.*"
# dependencies = [
#   "numpy==1.26.4",
#   "protobuf==3.19.6",
#   "tensorflow-cpu==2.8.4",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: FTW's torso and its temporal hierarchy of LSTMs in TensorFlow.

A standalone script: `uv run` reads the block above, builds a separate
environment and runs this file. Prints one JSON line with the least seconds of
the processor of the torso and of the network, forward and backward, on 16
sequences of 20 steps of 84x84x3, and of one step of acting at batch 1.

Each measured function is a single `tf.function`. As in our network, the torso
takes all frames at once, the input part of the gates is computed for all steps
at once, and the loop over time is unrolled, which runs (but does not trace)
faster than `tf.while_loop`.
"""

import argparse
import json
import os
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

import numpy as np
import tensorflow as tf

NUM_STEPS, BATCH_SIZE, NUM_ACTIONS = 20, 16, 5
HIDDEN, LATENT, FEATURES, PERIOD = 256, 256, 256, 10
NUM_INPUTS = FEATURES + NUM_ACTIONS + 1
CONVOLUTIONS = ((8, 3, 32, 4), (4, 32, 64, 2), (3, 64, 64, 1), (3, 64, 64, 1))


def make_weights(*shape):
  scale = 1.0 / np.sqrt(np.prod(shape[:-1]))
  return tf.Variable(tf.random.normal(shape, stddev=scale))


class Network(tf.Module):
  def __init__(self):
    super().__init__()
    self.filters = [make_weights(k, k, i, o) for k, i, o, _ in CONVOLUTIONS]
    self.torso_w = make_weights(11 * 11 * 64, FEATURES)
    seen = HIDDEN + 2 * LATENT + LATENT
    self.fast_inputs = make_weights(NUM_INPUTS, 4 * HIDDEN)
    self.fast_w = make_weights(seen + HIDDEN, 4 * HIDDEN)
    self.slow_w = make_weights(HIDDEN + HIDDEN, 4 * HIDDEN)
    self.fast_latent = make_weights(HIDDEN, 2 * LATENT)
    self.slow_latent = make_weights(HIDDEN, 2 * LATENT)
    self.policy = make_weights(LATENT, NUM_ACTIONS)
    self.value = make_weights(LATENT, 1)
    sizes = [32, 64, 64, 64, FEATURES, 4 * HIDDEN, 4 * HIDDEN]
    sizes += [2 * LATENT, 2 * LATENT, NUM_ACTIONS, 1]
    self.biases = [tf.Variable(tf.zeros((size,))) for size in sizes]

  def torso(self, frames):
    x = tf.cast(frames, tf.float32) / 255.0

    def convolve(index, x):
      stride = CONVOLUTIONS[index][-1]
      x = tf.nn.conv2d(x, self.filters[index], stride, 'SAME')
      return x + self.biases[index]

    x = tf.nn.relu(convolve(0, x))
    x = tf.nn.relu(convolve(1, x))
    x = x + convolve(2, x)
    x = x + convolve(3, tf.nn.relu(x))
    x = tf.reshape(tf.nn.relu(x), (-1, 11 * 11 * 64))
    return x @ self.torso_w + self.biases[4]

  def embed(self, frames, actions, rewards):
    parts = [self.torso(frames), tf.one_hot(actions, NUM_ACTIONS)]
    return tf.concat([*parts, tf.tanh(rewards)[:, None]], -1)

  def step(self, gates, noise, state):
    hidden, cell, slow_hidden, slow_cell, loc, scale, sample, count = state
    tick = (count % PERIOD == 0)[:, None]
    slow_gates = tf.concat([hidden, slow_hidden], -1) @ self.slow_w
    new_hidden, new_cell = lstm(slow_gates + self.biases[6], slow_cell)
    new_loc, new_scale = latent(new_hidden @ self.slow_latent + self.biases[8])
    slow_hidden = tf.where(tick, new_hidden, slow_hidden)
    slow_cell = tf.where(tick, new_cell, slow_cell)
    loc = tf.where(tick, new_loc, loc)
    scale = tf.where(tick, new_scale, scale)
    seen = tf.concat([slow_hidden, loc, scale, sample, hidden], -1)
    hidden, cell = lstm(gates + seen @ self.fast_w, cell)
    fast_loc, fast_scale = latent(hidden @ self.fast_latent + self.biases[7])
    sample = fast_loc + fast_scale * noise
    return hidden, cell, slow_hidden, slow_cell, loc, scale, sample, count + 1

  def unroll(self, frames, actions, rewards, state):
    batch_size = state[0].shape[0]
    gates = self.embed(frames, actions, rewards) @ self.fast_inputs
    gates = tf.reshape(gates + self.biases[5], (-1, batch_size, 4 * HIDDEN))
    noise = tf.random.normal((gates.shape[0], batch_size, LATENT))
    samples = []
    for t in range(gates.shape[0]):
      state = self.step(gates[t], noise[t], state)
      samples.append(state[6])
    samples = tf.stack(samples)
    logits = samples @ self.policy + self.biases[9]
    return logits, samples @ self.value + self.biases[10], state


def lstm(gates, cell):
  i, g, f, o = tf.split(gates, 4, -1)
  cell = tf.sigmoid(f + 1.0) * cell + tf.sigmoid(i) * tf.tanh(g)
  return tf.sigmoid(o) * tf.tanh(cell), cell


def latent(numbers):
  loc, scale = tf.split(numbers, 2, -1)
  return loc, tf.nn.softplus(scale) * (0.1 / np.log(2.0)) + 1e-6


def zero_state(batch_size):
  zeros = [tf.zeros((batch_size, HIDDEN)) for _ in range(7)]
  return (*zeros, tf.zeros((batch_size,), tf.int32))


def make_inputs(num_frames):
  rng = np.random.default_rng(0)
  frames = rng.integers(0, 256, (num_frames, 84, 84, 3), np.uint8)
  actions = rng.integers(0, NUM_ACTIONS, (num_frames,))
  rewards = rng.normal(size=(num_frames,)).astype(np.float32)
  return tf.constant(frames), tf.constant(actions), tf.constant(rewards)


def measure(call, seconds):
  for _ in range(3):
    call()
  times, end = [], time.perf_counter() + seconds
  while not times or time.perf_counter() < end:
    before = time.process_time()
    call()
    times.append(time.process_time() - before)
  return min(times)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--seconds', type=float, default=10.0)
  seconds = parser.parse_args().seconds
  network = Network()
  inputs = make_inputs(NUM_STEPS * BATCH_SIZE)

  @tf.function
  def torso_gradient(frames):
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(network.torso(frames) ** 2)
    variables = [*network.filters, network.torso_w, *network.biases[:5]]
    return [loss, *tape.gradient(loss, variables)]

  @tf.function
  def network_gradient(*inputs):
    with tf.GradientTape() as tape:
      logits, value, _ = network.unroll(*inputs, zero_state(BATCH_SIZE))
      loss = tf.reduce_mean(logits**2) + tf.reduce_mean(value**2)
    return [loss, *tape.gradient(loss, network.trainable_variables)]

  @tf.function
  def act(inputs, state):
    return network.unroll(*inputs, state)

  state, one = zero_state(1), make_inputs(1)

  def act_once():
    nonlocal state
    logits, _, state = act(one, state)
    logits.numpy()

  report = {
    'torso': measure(lambda: torso_gradient(inputs[0])[0].numpy(), seconds),
    'rpth_lstm': measure(lambda: network_gradient(*inputs)[0].numpy(), seconds),
    'acting': measure(act_once, seconds),
    'tensorflow': tf.__version__,
  }
  print(json.dumps(report), flush=True)


if __name__ == '__main__':
  main()
