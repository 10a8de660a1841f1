"""Pytrees as arrays in a safetensors file, named by their path in the tree.

A name is the path with slashes, e.g. `params/torso/linear/w`. Reading such a
file runs no code, and other frameworks can read it too.
"""

import os
import pathlib

import jax
import numpy as np
import safetensors
import safetensors.numpy

from ftwax import types


def write(path: pathlib.Path, tree: types.ArrayTree) -> None:
  """Writes the leaves of a tree to a file."""
  # safetensors stores the buffer of an array as it is, whatever its strides.
  leaves = {
    name: np.array(leaf, order='C') for name, leaf in _named(tree).items()
  }
  path.write_bytes(safetensors.numpy.save(leaves))


def read(
  path: str | os.PathLike[str], template: types.ArrayTree
) -> types.ArrayTree:
  """Reads a tree.

  Args:
    path: path of the file.
    template: a tree of the same structure, shapes and dtypes, of arrays or
      `jax.ShapeDtypeStruct`.

  Returns:
    NumPy arrays in the structure of the template.

  Raises:
    ValueError: if there is no such file, it is damaged, or it holds a tree of
      another structure.
  """
  try:
    stored = safetensors.numpy.load(pathlib.Path(path).read_bytes())
  except (OSError, safetensors.SafetensorError) as error:
    raise ValueError(
      f'{os.fspath(path)} must be a file of arrays, and cannot be read'
      f' ({type(error).__name__}: {error}); restore it from a copy.'
    ) from None
  expected = _named(template)
  for name in {**expected, **stored}:
    there, wanted = stored.get(name), expected.get(name)
    if (
      there is None
      or wanted is None
      or (there.shape, there.dtype) != (wanted.shape, wanted.dtype)
    ):
      raise ValueError(
        f'{name} in {os.fspath(path)} ({_describe(there)}) must be'
        f' {_describe(wanted)} for this agent; use the config and the game that'
        ' these arrays were saved with.'
      )
  structure = jax.tree.structure(template)
  return jax.tree.unflatten(structure, [stored[name] for name in expected])


def _named(tree: types.ArrayTree) -> dict[str, types.Array]:
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree.leaves_with_path(tree)
  }


def _describe(leaf: types.Array | types.NumpyArray | None) -> str:
  return 'absent' if leaf is None else f'{leaf.dtype}{list(leaf.shape)}'
