"""Linear probes of the information in an agent's recurrent state.

A probe is a logistic regression from states to the answer of a yes-no question,
as in Jaderberg et al., 2019 (arXiv:1807.01281), figure 3. If it is accurate in
episodes that it was not fitted to, the state encodes the answer linearly.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ftwax import types

_NUM_STEPS = 400
_LEARNING_RATE = 0.03
_L2 = 1e-3


class Probe(NamedTuple):
  """Probes of `Q` questions on states of `D` numbers.

  Attributes:
    mean: [D], mean of the states that it was fitted to.
    scale: [D], their standard deviation.
    weights: float32 [D, Q].
    bias: float32 [Q].
  """

  mean: types.NumpyArray
  scale: types.NumpyArray
  weights: types.NumpyArray
  bias: types.NumpyArray


class Scores(NamedTuple):
  """Accuracy of probes, [Q] each.

  Attributes:
    accuracy: fraction of correct answers.
    majority: fraction of the more frequent answer.
    auc: probability that a state with the answer yes has a higher score than
      one with the answer no; 0.5 is chance; NaN if all answers are equal.
  """

  accuracy: types.NumpyArray
  majority: types.NumpyArray
  auc: types.NumpyArray


def fit(states: types.NumpyArray, answers: types.NumpyArray) -> Probe:
  """Fits a probe to each question.

  Args:
    states: [n, D].
    answers: bool [n, Q].
  """
  mean, scale = states.mean(axis=0), states.std(axis=0) + 1e-6
  inputs = jnp.asarray((states - mean) / scale, jnp.float32)
  labels = jnp.asarray(answers, jnp.float32)
  optimizer = optax.adam(_LEARNING_RATE)

  def loss(params: tuple[types.Array, types.Array]) -> types.Array:
    weights, bias = params
    logits = inputs @ weights + bias[None]
    entropy = optax.sigmoid_binary_cross_entropy(logits, labels)
    return entropy.mean(axis=0).sum() + _L2 * jnp.sum(weights**2)

  @jax.jit
  def run() -> tuple[types.Array, types.Array]:
    params = (
      jnp.zeros((inputs.shape[1], labels.shape[1])),
      jnp.zeros((labels.shape[1],)),
    )

    def step(carry: tuple, _: None) -> tuple[tuple, None]:  # type: ignore[type-arg]
      params, state = carry
      updates, state = optimizer.update(jax.grad(loss)(params), state)
      return (optax.apply_updates(params, updates), state), None

    carry = (params, optimizer.init(params))
    return jax.lax.scan(step, carry, length=_NUM_STEPS)[0][0]

  return Probe(mean, scale, *map(np.asarray, run()))


def score(
  probe: Probe, states: types.NumpyArray, answers: types.NumpyArray
) -> Scores:
  """Scores probes on states that they were not fitted to.

  Args:
    probe: from `fit`.
    states: [n, D].
    answers: bool [n, Q].
  """
  logits = (states - probe.mean) / probe.scale @ probe.weights + probe.bias
  share = answers.mean(axis=0)
  return Scores(
    accuracy=np.mean((logits > 0.0) == answers, axis=0),
    majority=np.maximum(share, 1.0 - share),
    auc=np.array(
      [_auc(*pair) for pair in zip(logits.T, answers.T, strict=True)]
    ),
  )


def _auc(logits: types.NumpyArray, answers: types.NumpyArray) -> float:
  """Returns the area under the ROC curve, by ranks (Mann and Whitney, 1947)."""
  num_yes, num_no = int(answers.sum()), int((~answers).sum())
  if not num_yes or not num_no:
    return float('nan')
  _, index, counts = np.unique(logits, return_inverse=True, return_counts=True)
  ranks = (np.cumsum(counts) - 0.5 * (counts - 1.0))[index]
  above = ranks[answers].sum() - 0.5 * num_yes * (num_yes + 1.0)
  return float(above / (num_yes * num_no))


def principal_axes(
  states: types.NumpyArray, num_axes: int = 2
) -> types.NumpyArray:
  """Returns the unit directions of largest variance, [D, num_axes]."""
  centred = states - states.mean(axis=0)
  values, vectors = np.linalg.eigh(np.cov(centred.T))
  return vectors[:, np.argsort(-values)[:num_axes]]
