"""Accepts what users pass as an environment, and says what is wrong with it."""

import contextlib
import copy
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import import_guard, types
from ftwax.environments import functional, jax_adapters, vector

_IN_JAX = (functional.FunctionalEnvironment, functional.FunctionalGame)

# Arguments of functions that make vectors.
_NUMBERS_OF_ROWS = 'num_envs', 'num_environments'

# Attributes of Gymnasium's vectors.
_OF_VECTORS = 'num_envs', 'single_observation_space', 'single_action_space'

# Anything that `accept` accepts.
Environment = (
  str
  | type
  | Callable[..., Any]
  | functional.FunctionalEnvironment
  | functional.FunctionalGame
)


class _Copying(dm_env.Environment):
  """Copies observations, whose arrays some environments use again."""

  def __init__(self, environment: dm_env.Environment):
    self._environment = environment
    for name in ('observation', 'action', 'reward', 'discount'):
      setattr(self, f'{name}_spec', getattr(environment, f'{name}_spec'))

  def __getattr__(self, name: str) -> Any:
    return getattr(self._environment, name)

  def reset(self) -> dm_env.TimeStep:
    return self._copy(self._environment.reset())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    return self._copy(self._environment.step(action))

  def close(self) -> None:
    self._environment.close()

  def observation_spec(self) -> types.SpecTree: ...

  def action_spec(self) -> types.SpecTree: ...

  def _copy(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    observation = jax.tree.map(np.array, timestep.observation)
    return timestep._replace(observation=observation)


def adapt(environment: Any, seed: int, **options: Any) -> Any:
  """Wraps an environment so that its observations are the caller's own.

  Args:
    environment: a Gymnasium environment or its name, a dm_env environment, or
      anything else, which is returned unchanged.
    seed: seed of a Gymnasium environment.
    **options: options of `gymnasium.make`, if a name is given.

  Raises:
    ValueError: if there is no environment of that name.
  """
  adapted = wrap(environment, seed, **options)
  if isinstance(environment, dm_env.Environment):
    return _Copying(adapted)
  return adapted


def wrap(environment: Any, seed: int, **options: Any) -> Any:
  """Wraps a Gymnasium environment; returns other environments unchanged.

  Args:
    environment: an environment, or the name of a Gymnasium environment.
    seed: seed of a Gymnasium environment.
    **options: options of `gymnasium.make`, if a name is given.

  Raises:
    ValueError: if there is no environment of that name.
  """
  if isinstance(environment, str):
    if environment.partition(':')[0] in jax_adapters.LIBRARIES:
      return jax_adapters.make(environment)
    if ':' in environment:  # It may come from a stranger's folder.
      raise ValueError(
        f'environment ({environment!r}) must name no package, which Gymnasium'
        ' would import; pass a function of a seed that imports it and calls'
        ' gymnasium.make.'
      )
    with import_guard.guarded():
      import gymnasium
    try:
      with _entry_guard(gymnasium.registry.get(environment))():
        environment = gymnasium.make(environment, **options)
    except gymnasium.error.Error as error:
      # Of a name that is none, it raises the plain class.
      unknown = (gymnasium.error.Error, gymnasium.error.UnregisteredEnv)
      if type(error) is not unknown[0] and not isinstance(error, unknown[1]):
        raise
      raise ValueError(
        f'environment ({environment!r}) must be a name that Gymnasium knows:'
        f' {error} If a package registers it, import that package first.'
      ) from None
  if jax_adapters.is_pure(environment):
    return jax_adapters.from_brax(environment)
  is_vector = _is_vector(environment)
  if not is_vector and not _is_gymnasium(environment, 'Env'):
    return environment
  from ftwax.environments import gymnasium_adapter

  if is_vector:
    return gymnasium_adapter.GymnasiumVectorEnvironment(environment, seed)
  return gymnasium_adapter.GymnasiumEnvironment(environment, seed)


def accept(environment: Any) -> Environment:
  """Returns an environment as a field of an experiment has it.

  Args:
    environment: the name of a Gymnasium environment; a class; a function that
      makes an environment or a game; a JAX environment or game; or a Gymnasium
      environment, of which copies are made.

  Raises:
    TypeError: if it is something else, or cannot be copied.
  """
  is_vector = _is_vector(environment)
  if _is_gymnasium(environment, 'Env') and not is_vector:
    return _copies(environment)
  if jax_adapters.is_pure(environment):
    return jax_adapters.from_brax(environment)
  if isinstance(environment, (str, type, *_IN_JAX)):
    return environment
  if hasattr(environment, 'step') or not callable(environment):
    raise types.InvalidTypeError(
      f'environment ({environment!r}) must be the name of a Gymnasium'
      ' environment, a class, a function of a seed, or a JAX environment or'
      f' game; {_remedy(environment)}.'
    )
  return environment


def make_factory(environment: Environment) -> Callable[..., Any]:
  """Returns a function that makes an environment or a game, given a seed.

  Args:
    environment: from `accept`. A class or function gets the seed by the name
      `seed`, or as its only required argument, or else is called without. One
      that requires `num_envs` or `num_environments` makes a vector. A
      JAX environment or game is returned for every seed.

  Raises:
    TypeError: if a class or function needs other arguments than a seed.
  """
  if isinstance(environment, str):
    return functools.partial(wrap, environment)
  if isinstance(environment, _IN_JAX):
    return functools.partial(_get, environment)
  if isinstance(environment, vector.VectorFactory):
    return environment
  try:
    signature = inspect.signature(environment)
  except ValueError:  # Of some built-in functions.
    return environment
  for name in _NUMBERS_OF_ROWS:
    parameter = signature.parameters.get(name)
    if parameter is not None and parameter.default is parameter.empty:
      takes_seed = 'seed' in signature.parameters
      make = functools.partial(_make_rows, environment, name, takes_seed)
      return vector.VectorFactory(make)
  if 'seed' in signature.parameters and _binds(signature, seed=0):
    return functools.partial(_make_seeded, environment)
  is_class = isinstance(environment, type)
  for arguments in ((),) if is_class else ((), (0,)):
    if not _binds(signature, *arguments):
      continue
    if arguments:
      return environment
    return functools.partial(_make_without_seed, environment)
  name = getattr(environment, '__name__', None) or describe(environment)
  raise types.InvalidTypeError(
    f'environment ({name}{signature}) must be made from a seed, or from'
    f' nothing; choose environment=lambda seed: {name}(...).'
  )


def _binds(signature: inspect.Signature, *arguments: Any, **named: Any) -> bool:
  """Returns whether a function can be called with arguments."""
  try:
    signature.bind(*arguments, **named)
  except TypeError:
    return False
  return True


def describe(environment: Any) -> str:
  """Returns the name of an environment, for that of an experiment.

  A class or function has a name of its own. A partial function has that of its
  first argument, such as an id, or of what it calls; a lambda that of what it
  calls. A JAX environment has that of the environment that it adapts, or else
  of the module or function that made it.
  """
  if isinstance(environment, str):
    return environment
  if isinstance(environment, functools.partial):
    first = environment.args[0] if environment.args else None
    spec = getattr(first, 'spec', None)  # Of Gymnasium.
    own = environment.__dict__.get('__name__')
    for name in first, getattr(spec, 'id', None), own:
      if isinstance(name, str):
        return name
    return describe(environment.func)
  if isinstance(environment, _IN_JAX):
    return _describe_maker(environment.reset)
  if getattr(environment, '__name__', None) == '<lambda>':
    code: Any = environment.__code__
    used: list[str] = [*code.co_names, *code.co_freevars]
    found = [value for value in code.co_consts if isinstance(value, str)]
    found += [name for name in used if name[:1].isupper()]
    found += [name for name in used if name != 'make'][-1:]
    return [*found, 'environment'][0]
  for field in ('__name__', 'id', 'name'):
    if isinstance(name := getattr(environment, field, None), str):
      return name
  return type(environment).__name__


def _describe_maker(function: Any) -> str:
  """Returns the name of the environment that a function resets."""
  while isinstance(function, functools.partial):
    function = function.func
  if not hasattr(function, '__closure__'):
    return describe(function)
  inner = inspect.getclosurevars(function).nonlocals
  if 'environment' in inner:
    return describe(inner['environment'])
  if 'reset' in inner:  # Of `jax_adapters.adapt`.
    return _describe_maker(inner['reset'])
  owner = function.__qualname__.partition('.')[0]
  if owner.strip('_') not in ('make', 'reset', '<lambda>'):
    return owner.removeprefix('make_')
  modules = function.__module__.split('.')
  # The module, or the package below `ftwax.environments`.
  name = modules[2] if modules[:2] == ['ftwax', 'environments'] else modules[-1]
  return name.strip('_') if name != '__main__' else 'environment'


def check_made(made: Any) -> None:
  """Raises a TypeError unless `made` is a dm_env environment."""
  if not isinstance(made, dm_env.Environment):
    raise types.InvalidTypeError(
      'environment must make an environment or a game, but made a'
      f' {type(made).__name__}; {_remedy(made)}.'
    )


def _remedy(environment: Any) -> str:
  """Returns what to do with an environment that is not accepted."""
  kind = type(environment).__name__
  if _is_vector(environment):
    return (
      'pass a function of a seed that makes it, or of num_envs and seed:'
      ' lambda num_envs, seed: gymnasium.make_vec(name, num_envs)'
    )
  if hasattr(environment, 'possible_agents') or hasattr(
    environment, 'agent_iter'
  ):
    return (
      'pass a function of a seed that wraps it in a'
      ' pettingzoo_adapter.PettingZooGame'
    )
  if type(environment).__module__.split('.')[0] == 'gym':
    return 'port it from gym to gymnasium, or wrap it by the package shimmy'
  if isinstance(environment, dm_env.Environment) or hasattr(
    environment, 'outcome'
  ):
    # Copies would share the state of its random numbers.
    return f'pass a function that makes one: lambda seed: {kind}(...)'
  if hasattr(environment, 'step'):
    return f'derive {kind} from gymnasium.Env or dm_env.Environment'
  return (
    "choose 'CartPole-v1', or return a dm_env.Environment, a gymnasium.Env, a"
    ' games.GameEnvironment, or a functional environment or game'
  )


def _entry_guard(
  spec: Any,
) -> Callable[[], contextlib.AbstractContextManager[None]]:
  """Returns what guards the imports by which Gymnasium makes an environment.

  A program may have registered a module of its own, which may import others.
  """
  entry = getattr(spec, 'entry_point', None) or 'gymnasium'
  name = entry if isinstance(entry, str) else entry.__module__
  return import_guard.around(name.partition(':')[0])


def _is_gymnasium(environment: Any, kind: str) -> bool:
  # Imported if any of its classes is.
  library: Any = sys.modules.get('gymnasium')
  for name in kind.split('.'):
    library = getattr(library, name, None)
  return library is not None and isinstance(environment, library)


def _is_vector(environment: Any) -> bool:
  """Returns whether an environment of Gymnasium's is a vector.

  By its base class, or by its attributes, as some derive from `gymnasium.Env`
  alone. Others have both bases, such as envpool's.
  """
  return _is_gymnasium(environment, 'vector.VectorEnv') or (
    _is_gymnasium(environment, 'Env')
    and all(hasattr(environment, name) for name in _OF_VECTORS)
  )


def _copies(environment: Any) -> Callable[[int], Any]:
  """Returns a function that copies a Gymnasium environment."""
  make = functools.partial(_copy, environment)
  try:
    make(0)
  except Exception as error:
    kind = type(environment.unwrapped).__name__
    raise types.InvalidTypeError(
      f'environment ({environment!r}) must be copyable, and is not ({error});'
      f' pass a function that makes one: lambda seed: {kind}(...).'
    ) from None
  # Recorded as its class is.
  for name in ('__module__', '__name__', '__qualname__'):
    setattr(make, name, getattr(type(environment.unwrapped), name))
  return make


def _copy(environment: Any, seed: int) -> Any:
  return wrap(copy.deepcopy(environment), seed)


def _make_rows(
  environment: Any, name: str, takes_seed: bool, num_rows: int, seed: int
) -> Any:
  """Makes a vector with a number of rows, which its maker takes by a name."""
  options = {'seed': seed} if takes_seed else {}
  return wrap(environment(**{name: num_rows}, **options), seed)


def _make_seeded(environment: Any, seed: int) -> Any:
  return wrap(environment(seed=seed), seed)


def _make_without_seed(make: Any, seed: int) -> Any:
  return wrap(make(), seed)


def _get(environment: Any, seed: int) -> Any:
  del seed
  return environment
