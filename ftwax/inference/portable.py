"""Greedy agents as files that other programs run: StableHLO and ONNX.

A file is one step of the policy, with the agent's parameters and statistics of
observations, as a function of named arrays. Inputs are the parts of the
`observation`, masks of actions among them, the `reward` of the last step,
`first`, which is true at the first step of an episode, and the `state` that the
last call returned as `next_state`, zeros at first. Outputs are the parts of the
`action`, their `logits` and `next_state`. All have an axis of rows in front, of
any length: one file serves one environment and many.
"""

import contextlib
import functools
import logging
import pathlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import dm_env
import haiku as hk
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

# Numbers of rows at which a file is compared with its agent.
CHECKED_ROWS = 1, 3, 64

# The axis of rows in the shapes of a file.
ROWS = 'rows'

# Steps of a played game between the beginnings of neighbouring rows.
_STAGGER = 7

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

# What ONNX lacks, by its mark in the text of a program.
_NOT_IN_ONNX = {
  'c64[': 'complex numbers, as the LRU has',
  'cumprod': 'sorted usages, as memories of more than 64 slots have',
  'scan[': 'loops',
  'while[': 'loops',
}

# Packages whose frames are not where a network counts its rows.
_NOT_OURS = tuple(
  str(pathlib.Path(str(package.__file__)).parent) for package in (hk, jax, np)
)


def write(
  agent: loaded_agent.LoadedAgent, path: pathlib.Path, file_format: str
) -> Step:
  """Writes an agent to a file; see the module.

  Args:
    agent: the agent, loaded with `greedy=True`.
    path: path of the file.
    file_format: 'onnx', which requires the extra `onnx` and has the game's
      specs as its property `game`, or 'stablehlo'.

  Returns:
    The step as the file has it: a function from and to NumPy arrays [B, ...],
    for any B.

  Raises:
    ValueError: if the agent samples, has kernels of a GPU or needs to know the
      number of rows, or ONNX lacks a part of it.
  """
  step = _make_step(agent)
  row = example(agent, 1)
  (rows,) = export.symbolic_shape(ROWS)
  inputs = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), row
  )
  closed, outputs = _trace(step, inputs, row)
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
    call = jax.jit(export.deserialize(content).call)
    return lambda arrays: jax.device_get(call(arrays))
  return _write_onnx(agent, path, closed, inputs, sorted(outputs))


def _trace(
  step: Step, inputs: dict[str, Any], row: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
  """Returns the program of a step for any number of rows, and its outputs."""
  try:
    closed, outputs = jax.make_jaxpr(step, return_shape=True)(inputs)
  except Exception as error:
    jax.eval_shape(step, row)  # What fails for one row is another fault.
    frames = traceback.extract_tb(error.__traceback__)
    place = [each for each in frames if not each.filename.startswith(_NOT_OURS)]
    reason = str(error).strip().partition('\n')[0]
    raise ValueError(
      f'network (line {place[-1].lineno} of {place[-1].filename}, in'
      f' {place[-1].name}) must act on any number of rows for a file to serve'
      f' them, and refuses an axis of unknown length ({type(error).__name__}:'
      f' {reason}); make its arrays by jax.numpy from the shapes of its inputs,'
      ' without int(), NumPy or a comparison of the number of rows.'
    ) from error
  return closed, outputs


def _write_onnx(
  agent: loaded_agent.LoadedAgent,
  path: pathlib.Path,
  closed: Any,
  inputs: dict[str, Any],
  outputs: Sequence[str],
) -> Step:
  """Writes a program as ONNX; see `write`."""
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
  try:
    model = jax2onnx.to_onnx(
      lambda *leaves: _evaluate(closed, leaves),
      jax.tree.leaves(inputs),
      input_names=sorted(inputs),
    )
  except Exception as error:
    reason = str(error).strip().partition('\n')[0]
    raise ValueError(
      'format (onnx) must have all parts of the agent, and its converter'
      f' refuses one ({type(error).__name__}: {reason}); choose stablehlo.'
    ) from error
  for value, name in zip(model.graph.output, outputs, strict=True):
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
    zip(outputs, session.run(None, arrays), strict=True)
  )


def check(
  agent: loaded_agent.LoadedAgent,
  step: Step,
  games: game_vectors.GameVector,
  num_steps: int = 1_000,
) -> dict[int, float]:
  """Compares a file with its agent, each with its own states, on played games.

  Each row sees the steps of a seat from a step of its own on, and begins an
  episode there and wherever the seat does.

  Args:
    agent: the agent, which plays on all seats.
    step: what `write` returned.
    games: the agent's game.
    num_steps: number of steps.

  Returns:
    For each number of rows of `CHECKED_ROWS`, the largest difference of the
    logits, relative to those above 1.

  Raises:
    ValueError: if one is above `TOLERANCE`.
  """
  played = _play(agent, games, num_steps)
  differences = {}
  for num_rows in CHECKED_ROWS:
    difference = _compare(agent, step, played, num_rows)
    if not difference <= TOLERANCE:
      raise ValueError(
        f'parity ({difference:.1e} with {num_rows} rows) must be at most'
        f' {TOLERANCE:.0e} for a file to act as its agent; choose the other'
        ' format.'
      )
    differences[num_rows] = difference
  return differences


def _play(
  agent: loaded_agent.LoadedAgent,
  games: game_vectors.GameVector,
  num_steps: int,
) -> dm_env.TimeStep:
  """Returns the steps of all seats, leaves [num_steps, S, ...]."""
  rows = games.reset()
  state = agent.initial_state(len(rows.step_type))
  select = jax.jit(agent.actor.select_action)
  played = []
  for _ in range(num_steps):
    played.append(jax.tree.map(np.array, rows))
    action, state = select(agent.variables, rows, state)
    rows = games.step(jax.device_get(action))
  return jax.tree.map(lambda *leaves: np.stack(leaves), *played)


def _compare(
  agent: loaded_agent.LoadedAgent,
  step: Step,
  played: dm_env.TimeStep,
  num_rows: int,
) -> float:
  """Returns the largest difference of logits; see `check`."""
  num_steps, num_seats = played.step_type.shape
  seats = np.arange(num_rows) % num_seats
  starts = np.arange(num_rows) * _STAGGER
  state = agent.initial_state(num_rows)
  select = jax.jit(agent.actor.select_action)
  carried = example(agent, num_rows)['state']
  largest = 0.0
  for t in range(num_steps):
    at = (starts + t) % num_steps, seats
    rows = jax.tree.map(lambda leaf, at=at: leaf[at], played)
    if t == 0:
      rows = rows._replace(step_type=np.full(num_rows, types.FIRST, np.int32))
    _, state = select(agent.variables, rows, state)
    outputs = step(_to_inputs(rows, carried))
    for name, expected in _named(
      'logits', jax.device_get(state.logits)
    ).items():
      scale = np.maximum(1.0, np.abs(expected))
      difference = np.max(np.abs(outputs[name] - expected) / scale)
      largest = np.maximum(largest, difference)  # Keeps NaN.
    carried = np.where(
      rows.step_type[:, None] == types.ABSENT, carried, outputs['next_state']
    )
  return float(largest)


def describe(
  agent: loaded_agent.LoadedAgent, step: Step
) -> dict[str, Mapping[str, str]]:
  """Returns dtypes and shapes of a file's 'inputs' and 'outputs' by name."""
  inputs = example(agent, 1)
  return {
    title: {
      name: f'{array.dtype.name} [{", ".join(map(str, shape))}]'
      for name, array in sorted(arrays.items())
      for shape in [(ROWS, *array.shape[1:])]
    }
    for title, arrays in (('inputs', inputs), ('outputs', step(inputs)))
  }


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


def _make_step(agent: loaded_agent.LoadedAgent) -> Step:
  """Returns the step that a file has, a function of JAX arrays."""
  initial = agent.initial_state(1)
  observations = agent.game_spec.environment.observations
  names = list(_named('observation', observations))

  def step(inputs: dict[str, Any]) -> dict[str, Any]:
    timestep = dm_env.TimeStep(
      step_type=jnp.where(inputs['first'], types.FIRST, types.MID),
      reward=inputs['reward'],
      discount=jnp.ones_like(inputs['first'], jnp.float32),
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
  """Inverts `_pack`, given the state of a row; integers stay exact.

  What a greedy step does not read stays that of the given row.
  """
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
    outputs = _evaluate_one(equation, list(map(read, equation.invars)))
    values.update(zip(equation.outvars, outputs, strict=True))
  return [read(variable) for variable in jaxpr.outvars]


def _evaluate_one(equation: Any, inputs: list[Any]) -> Sequence[Any]:
  """Evaluates one equation of a program; see `_evaluate`."""
  name, params = equation.primitive.name, equation.params
  body = params.get('jaxpr') or params.get('call_jaxpr')
  if body and name not in ('scan', 'while'):
    return _evaluate(body, inputs)
  if name == 'platform_index':  # A file's operations are those of CPUs.
    return [
      next(
        np.int32(index)
        for index, platforms in enumerate(params['platforms'])
        if platforms is None or 'cpu' in platforms
      )
    ]
  if name == 'cond' and not isinstance(inputs[0], jax.core.Tracer):
    branch = np.clip(int(inputs[0]), 0, len(params['branches']) - 1)
    return _evaluate(params['branches'][branch], inputs[1:])
  if name == 'cond':
    sides = [_evaluate(branch, inputs[1:]) for branch in params['branches']]
    return [
      jax.lax.select_n(inputs[0].astype(bool), *pair)
      for pair in zip(*sides, strict=True)
    ]
  if name == 'optimization_barrier':
    return inputs
  # What the converter refuses where the number of rows is a symbol.
  if name == 'rem' and jnp.issubdtype(inputs[0].dtype, jnp.integer):
    value, divisor = inputs
    return [value - divisor * jax.lax.div(value, divisor)]
  if name == 'pad' and all(
    min(low, high) >= 0 and not between
    for low, high, between in params['padding_config']
  ):
    value, filling = inputs
    return [_pad(value, filling, params['padding_config'])]
  if name == 'reduce_window_max':
    return [_max_pool(inputs[0], params)]
  is_constant = not any(
    isinstance(value, jax.core.Tracer) for value in inputs
  ) and not any(
    export.is_symbolic_dim(size)
    for variable in equation.outvars
    for size in variable.aval.shape
  )
  # The converter takes the length of joined constants for the number of rows.
  with (
    jax.ensure_compile_time_eval() if is_constant else contextlib.nullcontext()
  ):
    outputs = equation.primitive.bind(*inputs, **params)
  return outputs if equation.primitive.multiple_results else [outputs]


def _pad(
  value: Any, filling: Any, config: Sequence[tuple[int, int, int]]
) -> Any:
  """Returns `jax.lax.pad` by joining, without padding between elements."""
  for axis, (low, high, _) in enumerate(config):
    parts = [value]
    for at, num in ((0, low), (1, high)):
      if num > 0:
        shape = (*value.shape[:axis], num, *value.shape[axis + 1 :])
        parts.insert(at * len(parts), jnp.broadcast_to(filling, shape))
    value = jnp.concatenate(parts, axis)
  return value


def _max_pool(value: Any, params: Mapping[str, Any]) -> Any:
  """Returns maxima over windows, each the maximum of slices of all rows."""
  lowest = np.array(-np.inf, value.dtype)
  value = _pad(value, lowest, [(*sides, 0) for sides in params['padding']])
  sizes, strides = params['window_dimensions'], params['window_strides']
  slices = [
    value[
      tuple(
        slice(start, length - size + start + 1, stride)
        for start, length, size, stride in zip(
          starts, value.shape, sizes, strides, strict=True
        )
      )
    ]
    for starts in np.ndindex(*sizes)
  ]
  return functools.reduce(jnp.maximum, slices)
