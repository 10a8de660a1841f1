"""A loop over time with few kernels a step, forward and backward.

On an accelerator a launch takes longer than a step of a small core, so what
counts is the number of kernels in a loop. Reverse-mode differentiation of a
loop stacks each intermediate result of a step on its own: 14 arrays for an
LSTM, 36 for a temporal hierarchy. Here a step stacks one vector, with its
state before the step and its output. In the backward pass,

- the intermediate results of all `T` steps are computed from the states, at
  once, since the states are known;
- the loop only carries the gradient of the state from step to step;
- the gradients of weights and inputs follow from those of the states, for all
  steps at once: those of weights are products over `T * B` rows.
"""

import functools
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import scans, trees, types


def scan(
  step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any
) -> tuple[Any, Any]:
  """Does what `jax.lax.scan` does, with a backward pass of few kernels.

  Args:
    step: `(carry, x) -> (carry, y)`; it may close over arrays.
    carry: leaves [B, ...].
    xs: leaves [T, B, ...].

  Returns:
    The last carry, and the `y` of all steps, leaves [T, B, ...].
  """
  # Modules create their parameters in Haiku's loop.
  if hk.running_init() or not scans.counts_launches():
    return hk.scan(step, carry, xs)
  # Arrays that `step` closes over become arguments, which have gradients.
  closed, shapes = jax.make_jaxpr(step, return_shape=True)(
    carry, trees.take(xs, 0)
  )

  def pure(consts: Any, carry: Any, x: Any) -> Any:
    leaves = jax.core.eval_jaxpr(
      closed.jaxpr, consts, *jax.tree.leaves((carry, x))
    )
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

  return _scan(pure, closed.consts, carry, xs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(step: Any, consts: Any, carry: Any, xs: Any) -> tuple[Any, Any]:
  return scans.scan(functools.partial(step, consts), carry, xs)


def _forward(step: Any, consts: Any, carry: Any, xs: Any) -> Any:
  def keep(before: Any, x: Any) -> tuple[Any, Any]:
    after, y = step(consts, before, x)
    return after, (before, y)

  end, (carries, ys) = scans.scan(keep, carry, xs, in_blocks=True)
  return (end, ys), (consts, carries, xs)


def _backward(step: Any, residuals: Any, cotangents: Any) -> Any:
  consts, carries, xs = residuals
  end, ys = map(_floats, cotangents)

  def outputs(consts: Any, carry: Any, x: Any) -> list[types.Array]:
    return _floats(step(consts, carry, x))

  pull, leaves = _linearize_all(functools.partial(outputs, consts), carries, xs)

  def back(after: Any, inputs: tuple[Any, Any]) -> tuple[Any, Any]:
    rows, y = inputs
    return pull(rows, [*after, *y]), after

  begin, after = scans.scan(
    back, end, (leaves, ys), reverse=True, in_blocks=True
  )

  def all_outputs(consts_: Any, xs_: Any) -> list[types.Array]:
    given = _with_floats(consts, consts_), carries, _with_floats(xs, xs_)
    return jax.vmap(outputs, (None, 0, 0))(*given)

  _, pull_all = jax.vjp(all_outputs, _floats(consts), _floats(xs))
  of_consts, of_xs = pull_all([*after, *ys])
  return (
    _gradient(consts, of_consts),
    _gradient(carries, begin),
    _gradient(xs, of_xs),
  )


_scan.defvjp(_forward, _backward)


def _linearize_all(
  function: Callable[[Any, Any], list[types.Array]], carries: Any, xs: Any
) -> tuple[Callable[[Any, Any], Any], list[types.Array]]:
  """Computes the intermediate results of all steps.

  Args:
    function: `(carry, x)` to the outputs of one step that have gradients.
    carries: the states before the steps, leaves [T, B, ...].
    xs: leaves [T, B, ...].

  Returns:
    A function of the results of one step and gradients of its outputs, which
    returns those of its carry; and the results of all steps, leaves [T, ...].
  """
  structure: Any = None

  def linearize(carry: Any, x: Any) -> list[types.Array]:
    nonlocal structure
    _, pull = jax.vjp(
      lambda floats: function(_with_floats(carry, floats), x), _floats(carry)
    )
    leaves, structure = jax.tree.flatten(pull)
    return leaves

  closed = jax.make_jaxpr(linearize)(*trees.take((carries, xs), 0))
  # Weights are the same at all steps and stay outside of the loop.
  varies = _find_varying(closed.jaxpr)
  leaves = jax.vmap(
    functools.partial(jax.core.eval_jaxpr, closed.jaxpr, closed.consts),
    out_axes=[0 if each else None for each in varies],
  )(*jax.tree.leaves((carries, xs)))

  def pull(rows: list[types.Array], cotangents: Any) -> Any:
    row = iter(rows)
    step_leaves = [
      next(row) if each else leaf
      for leaf, each in zip(leaves, varies, strict=True)
    ]
    return jax.tree.unflatten(structure, step_leaves)(cotangents)[0]

  return pull, [leaf for leaf, each in zip(leaves, varies, strict=True) if each]


def _find_varying(jaxpr: Any) -> list[bool]:
  """Returns which outputs of a jaxpr depend on its inputs."""
  varying = {id(each) for each in jaxpr.invars}
  for equation in jaxpr.eqns:
    if any(id(each) in varying for each in equation.invars):
      varying |= {id(each) for each in equation.outvars}
  return [id(each) in varying for each in jaxpr.outvars]


def _is_float(leaf: Any) -> bool:
  return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _floats(tree: Any) -> list[types.Array]:
  """Returns the leaves that have gradients."""
  return [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]


def _with_floats(tree: Any, floats: list[types.Array]) -> Any:
  """Replaces the leaves that have gradients."""
  new = iter(floats)
  return jax.tree.map(lambda leaf: next(new) if _is_float(leaf) else leaf, tree)


def _gradient(tree: Any, floats: list[types.Array]) -> Any:
  """Returns a gradient of `tree`, None for leaves without."""
  new = iter(floats)
  return jax.tree.map(lambda leaf: next(new) if _is_float(leaf) else None, tree)
