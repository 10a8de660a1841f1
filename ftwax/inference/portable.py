"""Greedy agents as files that other programs run: StableHLO and ONNX.

A file is one step of the policy, with the agent's parameters and statistics of
observations, as a function of named arrays. Inputs are the parts of the
`observation`, masks of actions among them, the `reward` of the last step,
`first`, which is true at the first step of an episode, and the `state` that the
last call returned as `next_state`, zeros at first. Outputs are the parts of the
`action`, their `logits` and `next_state`. All have an axis of rows in front.
"""

import functools
import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from jax import export, flatten_util
from jax.extend import core

from ftwax import extras, trees, types
from ftwax.environments import game_vectors
from ftwax.inference import loaded_agent
from ftwax.records import files, game_files

# The largest difference between the logits of a file and its agent.
TOLERANCE = 1e-4

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

# What ONNX lacks, by its mark in the text of a program.
_NOT_IN_ONNX = {
  'c64[': 'complex numbers, as the LRU has',
  'cumprod': 'sorted usages, as memories of more than 64 slots have',
  'scan[': 'loops',
  'while[': 'loops',
}


def write(
  agent: loaded_agent.LoadedAgent,
  path: pathlib.Path,
  file_format: str,
  num_rows: int = 1,
) -> Step:
  """Writes an agent to a file; see the module.

  Args:
    agent: the agent, loaded with `greedy=True`.
    path: path of the file.
    file_format: 'onnx', which requires the extra `onnx` and has the game's
      specs as its property `game`, or 'stablehlo'.
    num_rows: B, the number of rows of each call.

  Returns:
    The step as the file has it: a function from and to NumPy arrays [B, ...].

  Raises:
    ValueError: if the agent samples or has kernels of a GPU, or ONNX lacks a
      part of it.
  """
  step = _make_step(agent, num_rows)
  inputs = example(agent, num_rows)
  closed, outputs = jax.make_jaxpr(step, return_shape=True)(inputs)
  if 'random_' in str(closed):
    raise ValueError(
      'agent must be loaded with greedy=True, since a file has no random keys;'
      ' sample from its logits.'
    )
  if 'pallas_call' in str(closed):
    raise ValueError(
      'agent must be loaded on a CPU, since a file has no kernels of a GPU; set'
      ' JAX_PLATFORMS=cpu.'
    )
  if file_format == 'stablehlo':
    exported = export.export(jax.jit(step), platforms=['cpu', 'cuda'])(inputs)
    content = exported.serialize()
    files.write_synced(path, bytes(content))
    call: Any = export.deserialize(content).call
    return lambda arrays: jax.device_get(call(arrays))
  for mark, part in _NOT_IN_ONNX.items():
    if mark in str(closed):
      raise ValueError(
        f'format (onnx) must have all parts of the agent, and lacks {part};'
        ' choose stablehlo.'
      )
  with extras.required('jax2onnx', 'onnx'):
    import jax2onnx
    import onnx
    import onnxruntime
  logging.getLogger('onnx_ir').setLevel(logging.ERROR)  # Of types it drops.
  model = jax2onnx.to_onnx(
    lambda *leaves: _evaluate(closed, leaves),
    jax.tree.leaves(inputs),
    input_names=sorted(inputs),
  )
  for value, name in zip(model.graph.output, sorted(outputs), strict=True):
    # Two may be the same, as an action and its location.
    model.graph.node.append(
      onnx.helper.make_node('Identity', [value.name], [name])
    )
    value.name = name
  onnx.helper.set_model_props(
    model, {'game': game_files.to_json(agent.game_spec)}
  )
  files.write_synced(path, model.SerializeToString())
  session = onnxruntime.InferenceSession(path)
  return lambda arrays: dict(
    zip(sorted(outputs), session.run(None, arrays), strict=True)
  )


def check(
  agent: loaded_agent.LoadedAgent,
  step: Step,
  games: game_vectors.GameVector,
  num_rows: int = 1,
  num_steps: int = 1_000,
) -> float:
  """Compares a file with its agent, each with its own states, on played games.

  Args:
    agent: the agent, which plays on all seats.
    step: what `write` returned.
    games: the agent's game, with at least `num_rows` seats.
    num_rows: B, the rows of `step`.
    num_steps: number of steps.

  Returns:
    The largest difference of the logits, relative to those above 1.

  Raises:
    ValueError: if it is above `TOLERANCE`.
  """
  rows = games.reset()
  state = agent.initial_state(len(rows.step_type))
  select = jax.jit(agent.actor.select_action)
  carried = example(agent, num_rows)['state']
  largest = 0.0
  for _ in range(num_steps):
    action, state = select(agent.variables, rows, state)
    seen = jax.tree.map(lambda leaf: np.asarray(leaf)[:num_rows], rows)
    outputs = step(_to_inputs(seen, carried))
    for name, value in _named('logits', jax.device_get(state.logits)).items():
      expected = value[:num_rows]
      scale = np.maximum(1.0, np.abs(expected))
      difference = np.max(np.abs(outputs[name] - expected) / scale)
      largest = np.maximum(largest, difference)  # Keeps NaN.
    carried = np.where(
      seen.step_type[:, None] == types.ABSENT, carried, outputs['next_state']
    )
    rows = games.step(jax.device_get(action))
  if not largest <= TOLERANCE:
    raise ValueError(
      f'parity ({largest:.1e}) must be at most {TOLERANCE:.0e} for a file to'
      ' act as its agent; choose the other format.'
    )
  return float(largest)


def example(
  agent: loaded_agent.LoadedAgent, num_rows: int
) -> dict[str, types.NumpyArray]:
  """Returns inputs of a file, zeros [num_rows, ...] by name."""
  spec = agent.game_spec.environment
  rows = dm_env.TimeStep(
    np.zeros(num_rows, np.int32),
    np.zeros((num_rows, *spec.rewards.shape), np.float32),
    None,
    jax.tree.map(
      lambda leaf: np.zeros((num_rows, *leaf.shape), leaf.dtype),
      spec.observations,
    ),
  )
  return _to_inputs(rows, np.zeros_like(_pack(agent.initial_state(num_rows))))


def _make_step(agent: loaded_agent.LoadedAgent, num_rows: int) -> Step:
  """Returns the step that a file has, a function of JAX arrays."""
  initial = agent.initial_state(num_rows)
  observations = agent.game_spec.environment.observations
  names = list(_named('observation', observations))

  def step(inputs: dict[str, Any]) -> dict[str, Any]:
    timestep = dm_env.TimeStep(
      step_type=jnp.where(inputs['first'], types.FIRST, types.MID),
      reward=inputs['reward'],
      discount=jnp.ones(num_rows),
      observation=jax.tree.unflatten(
        jax.tree.structure(observations), [inputs[name] for name in names]
      ),
    )
    taken, state = agent.actor.select_action(
      agent.variables, timestep, _unpack(inputs['state'], initial)
    )
    return {
      **_named('action', taken),
      **_named('logits', state.logits),
      'next_state': _pack(state),
    }

  return step


def _to_inputs(rows: dm_env.TimeStep, state: Any) -> dict[str, Any]:
  return {
    **_named('observation', jax.tree.map(np.asarray, rows.observation)),
    'first': np.asarray(rows.step_type) == types.FIRST,
    'reward': np.asarray(rows.reward, np.float32),
    'state': state,
  }


def _named(name: str, tree: Any) -> dict[str, Any]:
  """Returns the leaves of a tree by names, such as observation/position."""
  leaves = jax.tree.leaves_with_path(tree)
  keystr = functools.partial(jax.tree_util.keystr, simple=True, separator='/')
  return {
    '/'.join(filter(None, (name, keystr(path)))): leaf for path, leaf in leaves
  }


def _pack(state: types.ActorState) -> types.Array:
  """Returns what a greedy step reads of a state, float32 [B, n]."""
  return jax.vmap(lambda row: flatten_util.ravel_pytree(row)[0])(_real(state))


def _unpack(packed: Any, initial: types.ActorState) -> types.ActorState:
  """Inverts `_pack`, given a state of the same shapes; integers stay exact."""
  row = trees.take(_real(initial), 0)
  recurrent_state, action = jax.tree.map(
    lambda leaf, part: (
      jax.lax.complex(*part)
      if isinstance(part, tuple)
      else part.astype(leaf.dtype)
    ),
    (initial.recurrent_state, initial.action),
    jax.vmap(flatten_util.ravel_pytree(row)[1])(packed),
  )
  return initial._replace(recurrent_state=recurrent_state, action=action)


def _real(state: types.ActorState) -> Any:
  """Returns what is carried in float32; complex leaves become pairs."""
  return jax.tree.map(
    lambda leaf: (
      (leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else jnp.float32(leaf)
    ),
    (state.recurrent_state, state.action),
  )


def _evaluate(program: Any, arguments: Sequence[Any]) -> list[Any]:
  """Evaluates a program by simple operations alone.

  The converter has its own forms of whole functions, of which one gives the
  code for no action a wrong vector. Of a branch both sides are evaluated.
  """
  jaxpr = getattr(program, 'jaxpr', program)
  values = dict(zip(jaxpr.invars, arguments, strict=True))
  values.update(
    zip(jaxpr.constvars, getattr(program, 'consts', ()), strict=True)
  )

  def read(variable: Any) -> Any:
    if isinstance(variable, core.Literal):
      return variable.val
    return values[variable]

  for equation in jaxpr.eqns:
    inputs = [read(variable) for variable in equation.invars]
    params = equation.params
    body = params.get('jaxpr') or params.get('call_jaxpr')
    if body and equation.primitive.name not in ('scan', 'while'):
      outputs = _evaluate(body, inputs)
    elif equation.primitive.name == 'cond':
      sides = [_evaluate(branch, inputs[1:]) for branch in params['branches']]
      outputs = [
        jax.lax.select_n(inputs[0].astype(bool), *pair)
        for pair in zip(*sides, strict=True)
      ]
    elif equation.primitive.name == 'optimization_barrier':
      outputs = inputs
    else:
      outputs = equation.primitive.bind(*inputs, **params)
      if not equation.primitive.multiple_results:
        outputs = [outputs]
    values.update(zip(equation.outvars, outputs, strict=True))
  return [read(variable) for variable in jaxpr.outvars]
