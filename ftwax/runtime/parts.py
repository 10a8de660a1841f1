"""Checkpoints of a population that is held by several learners.

During a run, each learner saves its members and the keeper saves its part, in
separate folders. When the run ends or is resumed, the parts are merged into a
checkpoint like that of any other run.
"""

import pathlib
import shutil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import copies as copies_lib
from ftwax.population import evolution as evolution_lib
from ftwax.population import state as state_lib
from ftwax.records import checkpoints
from ftwax.runtime import generations, prepare, run_records

# Path of the members in the checkpoint of a run.
MEMBERS = f'{run_records.POPULATION}/members'

_FOLDER = 'parts'
_KEEPER, _LEARNER = 'keeper', 'learner-'


class LearnerPart(NamedTuple):
  """Checkpoint of a learner.

  Attributes:
    training: training states of its members, leaves [n, ...].
    copies: the last copies that its members made.
  """

  training: types.TrainingState
  copies: copies_lib.Copies


class KeeperPart(NamedTuple):
  """Checkpoint of the keeper.

  Attributes:
    population: population whose members contain only traits.
    numbers: int32 [K], number of each learner's last copies that are included
      in `population`.
  """

  population: state_lib.PopulationState
  numbers: types.NumpyArray


def learner_folder(directory: pathlib.Path, index: int) -> pathlib.Path:
  """Returns the folder of a learner's checkpoints."""
  return directory / _FOLDER / f'{_LEARNER}{index}'


def keeper_folder(directory: pathlib.Path) -> pathlib.Path:
  """Returns the folder of the keeper's checkpoints."""
  return directory / _FOLDER / _KEEPER


def make_template(made: prepare.Prepared) -> state_lib.PopulationState:
  """Returns the shapes and dtypes of a population."""

  def make(key: types.Key) -> state_lib.PopulationState:
    keys = jax.random.split(key, made.population.num_members)
    members = jax.vmap(made.learner.init)(keys)
    return generations.make_population(made, members, key)

  template: state_lib.PopulationState
  template = jax.eval_shape(make, jax.random.PRNGKey(0))
  return template


def without_parameters(
  population: state_lib.PopulationState,
) -> state_lib.PopulationState:
  """Returns a population whose members contain only traits."""
  traits = evolution_lib.traits(population.members)
  return population._replace(members=copies_lib.members_of_traits(traits))


def settle(
  part: KeeperPart,
  evolution: generations.Evolution,
  index: int,
  copies: copies_lib.Copies,
) -> KeeperPart:
  """Adds copies that a learner has made, unless they are already included.

  Args:
    part: checkpoint of the keeper before the copies.
    evolution: writes the copies to the lineage.
    index: index of the learner.
    copies: the last copies of the learner.

  Returns:
    The checkpoint with the copies included.
  """
  number = int(copies.number)
  if number <= int(part.numbers[index]):
    return part
  numbers = np.array(part.numbers)
  numbers[index] = number
  generation = copies_lib.as_generation(copies, part.population)
  return KeeperPart(evolution.commit(part.population, generation), numbers)


def collect(made: prepare.Prepared, directory: pathlib.Path) -> None:
  """Merges the parts into a checkpoint of the run, if there are any.

  Learners save at different times: unless the run ended normally, members may
  be as far apart in time as two checkpoints. Their traits always agree with the
  lineage.

  Args:
    made: parts of the experiment of the run.
    directory: directory of the run, which must not be running.

  Raises:
    CheckpointError: if all checkpoints of a part are damaged.
  """
  root, discarded = directory / _FOLDER, directory / f'tmp-{_FOLDER}'
  shutil.rmtree(discarded, ignore_errors=True)  # Left by a kill.
  if not root.exists():
    return
  if checkpoints.saved_steps(keeper_folder(directory)):
    # The keeper starts to save after all learners have.
    population, metadata = _read(made, directory)
    config = made.checkpointing or checkpoints.CheckpointingConfig()
    with checkpoints.Checkpointer(
      directory / 'checkpoints',
      config.max_to_keep,
      must_be_finite=lambda state: state.training.params,
    ) as checkpointer:
      checkpointer.save(
        metadata['counts']['actor_steps'],
        run_records.RunState(population),
        metadata,
      )
  root.rename(discarded)  # Atomic: partial deletion is unusable.
  shutil.rmtree(discarded)


def _read(
  made: prepare.Prepared, directory: pathlib.Path
) -> tuple[state_lib.PopulationState, dict[str, Any]]:
  """Returns the population merged from the parts and their newest metadata."""
  template = make_template(made)
  num_learners = len(list((directory / _FOLDER).glob(f'{_LEARNER}*')))
  evolution = generations.Evolution(made, directory)
  part, newest = restore(
    keeper_folder(directory), keeper_template(template, num_learners)
  )
  evolution.resume(part.population)
  share = made.population.num_members // num_learners
  shapes = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct((share, *leaf.shape[1:]), leaf.dtype),
    template.members,
  )
  rows = []
  for index in range(num_learners):
    own, metadata = restore(
      learner_folder(directory, index), learner_template(shapes)
    )
    part = settle(part, evolution, index, own.copies)
    rows.append(own.training)
    newest = max(newest, metadata, key=lambda one: one['counts']['actor_steps'])
  members = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
  traits = evolution_lib.traits(part.population.members)
  return part.population._replace(
    members=members._replace(**traits._asdict())
  ), newest


def restore(
  folder: pathlib.Path, template: Any, part: str | None = None
) -> tuple[Any, dict[str, Any]]:
  """Restores a folder's newest checkpoint, or a part; also returns metadata."""
  with checkpoints.Checkpointer(folder) as checkpointer:
    return checkpointer.restore(template, run_records.check_metadata, part)


def keeper_template(
  population: state_lib.PopulationState, num_learners: int
) -> KeeperPart:
  """Returns the keeper's checkpoint before the first copy.

  Args:
    population: complete population, or its shapes and dtypes.
    num_learners: K.
  """
  return KeeperPart(
    without_parameters(population), np.zeros(num_learners, np.int32)
  )


def learner_template(members: types.TrainingState) -> LearnerPart:
  """Returns a learner's checkpoint before the first copy.

  Args:
    members: training states of the learner, leaves [n, ...], or their shapes
      and dtypes.
  """
  traits = jax.tree.map(
    lambda leaf: np.zeros(leaf.shape, leaf.dtype), evolution_lib.traits(members)
  )
  numbers = np.zeros(len(traits.internal_rewards), np.int32)
  return LearnerPart(members, copies_lib.no_copies(traits, numbers))
