"""Checks of the shapes of arguments: nothing broadcasts in silence.

A function that takes arrays of agreed shapes names them first:

    shapes.check('vtrace', v_tm1=(v_tm1, 'T'), r_t=(r_t, 'T'))

A shape is a word for each axis. A name stands for one size in the whole call,
a number for itself, `_` for any size, and `...` for any number of axes, which
are the same in the whole call. An empty shape is that of a scalar. Shapes are
known when a function is traced, so a check costs nothing in compiled code.
"""

from typing import Any

import numpy as np

from ftwax import import_guard

_REST = '...'
_ANY = '_'


def check(function: str, /, **arguments: tuple[Any, str]) -> None:
  """Checks arguments against the shapes that they should have together.

  Args:
    function: name of the function, for the message.
    **arguments: an array and its shape by the name of the argument.

  Raises:
    ValueError: naming the first argument that differs from those before it.
  """
  sizes: dict[str, Any] = {}
  for name, (array, words) in arguments.items():
    _check_argument(function, name, np.shape(array), words.split(), sizes)


def check_scalars(function: str, /, **arguments: Any) -> None:
  """Checks that arguments are numbers, not arrays of several.

  Args:
    function: name of the function, for the message.
    **arguments: numbers or arrays [] by the name of the argument.

  Raises:
    ValueError: naming the first argument that has an axis.
  """
  check(function, **{name: (value, '') for name, value in arguments.items()})


def check_leaves(
  function: str,
  argument: str,
  tree: Any,
  prefix: tuple[int, ...],
  num_more: int | None = None,
) -> None:
  """Checks that all arrays of an argument begin with the same axes.

  Args:
    function: name of the function, for the message.
    argument: name of the argument.
    tree: leaves [*prefix, ...].
    prefix: sizes of the axes.
    num_more: number of axes that follow; None for any number.

  Raises:
    ValueError: naming the first leaf that differs.
  """
  with import_guard.guarded():
    import jax  # Here: the rest also checks arrays of NumPy without it.

  for path, leaf in jax.tree.leaves_with_path(tree):
    shape = np.shape(leaf)
    rest = len(shape) - len(prefix)
    if shape[: len(prefix)] != prefix or num_more not in (None, rest):
      axes = ['...'] if num_more is None else ['_'] * num_more
      raise ValueError(
        f'{argument}{jax.tree_util.keystr(path)} of {function} must have the'
        f' shape [{", ".join([*map(str, prefix), *axes])}], got {list(shape)};'
        ' give it these axes, since nothing is broadcast.'
      )


def _check_argument(
  function: str,
  name: str,
  shape: tuple[int, ...],
  words: list[str],
  sizes: dict[str, Any],
) -> None:
  """Checks one argument, and adds to `sizes` what it says of names."""
  axes = _align(words, shape)
  found = dict(sizes)
  fits = axes is not None
  for word, size in axes or ():
    if word.isdigit():
      fits &= size == int(word)
    elif word != _ANY:
      fits &= size == found.setdefault(word, size)
  if not fits:
    raise ValueError(
      f'{name} of {function} must have the shape [{", ".join(words)}]'
      f'{_explain(words, sizes)}, got {list(shape)}; give it these axes, since'
      ' nothing is broadcast.'
    )
  sizes.update(found)


def _align(
  words: list[str], shape: tuple[int, ...]
) -> list[tuple[str, Any]] | None:
  """Returns each word with its size, or None if the ranks differ."""
  if _REST not in words:
    same_rank = len(words) == len(shape)
    return list(zip(words, shape, strict=True)) if same_rank else None
  start = words.index(_REST)
  end = len(shape) - (len(words) - start - 1)
  if end < start:
    return None
  return [
    *zip(words[:start], shape[:start], strict=True),
    (_REST, shape[start:end]),
    *zip(words[start + 1 :], shape[end:], strict=True),
  ]


def _explain(words: list[str], sizes: dict[str, Any]) -> str:
  """Returns what is known of the names in a shape, for the message."""
  known = [
    f'{word} = {list(sizes[word]) if word == _REST else sizes[word]}'
    for word in words
    if word in sizes
  ]
  return f' with {", ".join(known)}' if known else ''
