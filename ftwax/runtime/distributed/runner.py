"""Runs the nodes of an experiment on an engine."""

import contextlib
import functools
import pathlib
from collections.abc import Callable
from typing import Any

from ftwax.runtime import evaluation, prepare, recorded, run_records, runs
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.device import sizes
from ftwax.runtime.distributed import actor, learner
from ftwax.runtime.distributed import coordinator as coordinator_lib
from ftwax.runtime.distributed import engine as engine_lib
from ftwax.runtime.distributed import settings as settings_lib


def run_with(
  start_engine: Callable[[], engine_lib.Engine],
  parts: prepare.Prepared,
  directory: pathlib.Path,
  resume: bool = False,
  period: evaluation.Period | None = None,
  num_eval_episodes: int = 10,
  settings: settings_lib.Settings | None = None,
  see_records: Callable[[run_records.RunRecords], None] | None = None,
) -> runs.RunResult:
  """Runs the coordinator in this process, and nodes on an engine.

  Args:
    start_engine: makes the engine.
    parts: the parts of the experiment.
    directory: directory of the run.
    resume: whether to continue from the newest checkpoint.
    period: of evaluations; None for no evaluation.
    num_eval_episodes: see `run_experiment`.
    settings: numbers of nodes, and limits.
    see_records: gets the records of the run before it begins.
  """
  own_settings = settings or settings_lib.Settings()

  def make_run(
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ) -> coordinator_lib.Coordinator:
    (directory / 'output').mkdir(exist_ok=True)
    if see_records is not None:
      see_records(records)
    engine = start_engine()
    stack.callback(engine.close)
    num_episodes = num_eval_episodes if period else None
    engine.start(make_nodes(parts.experiment, own_settings, num_episodes))
    return coordinator_lib.Coordinator(
      engine,
      own_settings,
      period,
      parts,
      records,
      resume,
    )

  # The coordinator evaluates itself, beside the training.
  return runs.execute(
    make_run,
    parts,
    directory,
    resume,
    None,
    num_eval_episodes,
  )


def make_nodes(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  num_eval_episodes: int | None,
) -> dict[str, Callable[[], Any]]:
  """Returns functions that make the nodes of a run, by name.

  Args:
    experiment: an agent or a population, and its task.
    settings: numbers of nodes.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation; None for no evaluator.
  """
  # The coordinator alone writes logs.
  experiment = experiment.replace(loggers=())
  num_learners = settings.num_learners
  nodes: dict[str, Callable[[], Any]] = {}
  for index in range(num_learners):
    nodes[f'learner/{index}'] = functools.partial(
      make_node,
      experiment,
      learner.Learner,
      num_learners,
      index,
      settings.num_devices,
      settings.num_actors,
    )
  for index in range(settings.num_actors):
    nodes[f'actor/{index}'] = functools.partial(
      make_node,
      experiment,
      actor.Actor,
      num_learners,
      index,
    )
  if num_eval_episodes is not None:
    nodes[coordinator_lib.EVALUATOR] = functools.partial(
      make_node, experiment, actor.Evaluator, num_eval_episodes
    )
  return nodes


def make_node(
  experiment: experiment_lib.ExperimentConfig,
  kind: Callable[..., Any],
  *options: Any,
  **more: Any,
) -> Any:
  """Resolves an experiment and makes a node, in the node's process."""
  return kind(prepare.prepare(experiment), *options, **more)


def check(parts: prepare.Prepared, settings: settings_lib.Settings) -> None:
  """Checks a run before anything is started.

  Raises:
    ValueError: if it keeps no checkpoints, learners cannot share members, a
      ratio of samples cannot be met, or a replay does not hold a sample of each
      environment of all actors.
  """
  recorded.check(parts)
  sizes.make_sizes(parts)
  if parts.experiment.agent.learns_from_replay:
    # A stream for each row of each actor.
    parts.replays.make(settings.num_actors * parts.seating.seats_per_member)
  if parts.experiment.checkpointing is None:
    raise ValueError(
      'checkpointing (None) must be set in a distributed run, which continues'
      ' from its checkpoints when a learner dies; leave it out.'
    )
  num_members = parts.experiment.population.num_members
  num_learners = settings.num_learners
  if num_members % num_learners:
    raise ValueError(
      f'num_learners ({num_learners}) must divide num_members ({num_members}),'
      ' which learners share evenly; choose 1.'
    )
