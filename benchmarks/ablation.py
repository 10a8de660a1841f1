"""Capture the flag with the main experiment, ablations of it, and PPO.

    uv run benchmarks/ablation.py --num_seeds=3 --num_workers=2
    uv run benchmarks/ablation.py --game=small_cue --variants=with_noise

Each run is `experiments/capture_the_flag.py` with one change, in its own
process on one core. The variants are the ablations of Jaderberg et al. (2019,
arXiv:1807.01281), figure 4, and PPO with a larger LSTM in the same population.
The core of the experiment is an LSTM, so `with_hierarchy` adds what the paper's
ablation takes away, and others have other cores. `--agent=paper` starts from
the whole agent instead. During training, members are evaluated against the
scripted players of the game.

Runs are kept in `--directory`: finished runs are not repeated and interrupted
runs are resumed, so the table can be completed over days. A score is 1 for a
win and 0.5 for a draw, averaged over the scripted players and the random
player. The 95% intervals next to the means over seeds are bootstrapped over
runs. At equal time, the score is that of the step that a variant has reached in
the processor time of the fastest one, compiling and evaluations included. In
games for memories a second table has the share of captures that score, which is
a half for members that do not know the cue.
"""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import common
import figures
import numpy as np

import ftwax
from ftwax import hyperparameters, types
from ftwax.agents import ftw, ppo
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag as game_lib
from ftwax.experiments import capture_the_flag  # noqa: TID251
from ftwax.networks import cores, torsos
from ftwax.records import loggers
from ftwax.reporting import evaluation_curves
from ftwax.runtime import experiment as experiment_lib


@dataclasses.dataclass(frozen=True)
class Options(capture_the_flag.Options):
  """Flags of this benchmark."""

  directory: str = flags.flag(
    'runs/ablation', 'Directory in which runs are kept.'
  )
  variants: tuple[str, ...] = flags.flag((), 'Names; all by default.')
  first_seed: int = flags.flag(0, 'The first seed.')
  num_seeds: int = flags.flag(3, 'Runs of each variant.')
  num_workers: int = flags.flag(2, 'Runs at a time.')
  variant: str | None = flags.flag(
    None, 'Does the run of one variant with --seed, and nothing else.'
  )
  cpu: int = flags.flag(0, 'The processor of this run.')


# Processor time of a run, a line each time that it was started.
_CPU_FILE = 'cpu_seconds.txt'

_NUM_EVALUATIONS = 8

# Of all members together.
_NUM_EVALUATION_EPISODES = 192

# Last part of a run in which captures are counted.
_LAST = 0.1

_Experiment = experiment_lib.ExperimentConfig


class _Curve(NamedTuple):
  """Evaluations of a run.

  Attributes:
    steps: float [n], environment steps.
    scores: float [n] by opponent, mean over members.
    cpu_seconds: processor time of the whole run; NaN if it is not known.
  """

  steps: types.Floats
  scores: Mapping[str, types.Floats]
  cpu_seconds: float

  @property
  def mean_score(self) -> types.Floats:
    """Mean over all opponents, [n]."""
    return np.mean(list(self.scores.values()), axis=0)


def main_experiment(experiment: _Experiment) -> _Experiment:
  """The experiment as it stands: PPO's loss with an LSTM of 64 units."""
  return experiment


def with_core(
  experiment: _Experiment, core: str, noise_scale: float = 0.0
) -> _Experiment:
  """Another core; in latents of a hierarchy noise that the learner shares."""
  level = experiment.agent.core
  hierarchy = cores.RPTH(
    level,
    latent_size=16,
    memory=capture_the_flag.MEMORY,
    slow_period=hyperparameters.UniformInteger(5, 20),
    fast_to_slow_gradient_scale=hyperparameters.LogUniform(0.1, 1.0),
    noise_scale=noise_scale,
  )
  return _with_config(experiment, core=ftw.named_core(core, hierarchy))


def without_evolved_rewards(experiment: _Experiment) -> _Experiment:
  """Internal rewards fixed at the means of their priors."""
  priors = experiment.agent.internal_rewards_prior
  means = tuple(
    hyperparameters.Constant(0.5 * (prior.low + prior.high)) for prior in priors
  )
  return _with_config(experiment, internal_rewards_prior=means)


def without_evolution(experiment: _Experiment) -> _Experiment:
  """Members that keep their initial values and never copy."""
  population = experiment.population.replace(exploits=False)
  return experiment.replace(population=population)


def self_play(experiment: _Experiment) -> _Experiment:
  """One agent against itself, rewarded only by the score of the game."""
  worth = {
    'i_captured_the_flag': 1.0,
    'teammate_captured_the_flag': 1.0,
    'opponent_captured_the_flag': -1.0,
  }
  rewards = tuple(
    hyperparameters.Constant(worth.get(name, 0.0))
    for name in game_lib.EVENT_NAMES
  )
  population = experiment.population.replace(num_members=1, exploits=False)
  # All steps are its own: its learning rate falls as slowly as theirs.
  config = experiment.agent.decayed_over(1.1 * experiment.max_num_actor_steps)
  return experiment.replace(
    agent=config.replace(internal_rewards_prior=rewards), population=population
  )


def ppo_lstm(experiment: _Experiment) -> _Experiment:
  """PPO with an LSTM in the same population, with the same internal rewards."""
  ours = experiment.agent
  config = ppo.PPOConfig(
    core=cores.LSTM(128, forget_bias=1.0),
    skip_connection=False,
    torso=torsos.Torso(hidden_sizes=(128,)),
    sequence_length=32,
    batch_size=32,
    num_epochs=3,
    num_minibatches=4,
    internal_rewards_prior=ours.internal_rewards_prior,
    decay=ours.decay,
    learning_rate=hyperparameters.LogUniform(3e-4, 2e-3),
    entropy_cost=hyperparameters.LogUniform(2e-3, 2e-2),
  )
  # Its updates have other sizes.
  config = config.decayed_over(
    1.1 * experiment.max_num_actor_steps, experiment.population.num_members
  )
  return experiment.replace(agent=config)


VARIANTS: dict[str, Callable[[_Experiment], _Experiment]] = {
  'main_experiment': main_experiment,
  'without_recurrence': functools.partial(with_core, core='feed_forward'),
  'with_gru': functools.partial(with_core, core='gru'),
  'with_lru': functools.partial(with_core, core='lru'),
  'with_hierarchy': functools.partial(with_core, core='rpth'),
  'with_noise': functools.partial(with_core, core='rpth', noise_scale=1.0),
  'with_memory': functools.partial(with_core, core='rpth_dnc', noise_scale=1.0),
  'without_evolved_rewards': without_evolved_rewards,
  'without_evolution': without_evolution,
  'self_play': self_play,
  'ppo_lstm': ppo_lstm,
}


def _with_config(experiment: _Experiment, **changes: Any) -> _Experiment:
  """Changes options of the agent's config."""
  config = experiment.agent.replace(**changes)
  return experiment.replace(
    agent=config,
  )


def run(options: Options, variant: str) -> None:
  """Runs or resumes a variant."""
  os.sched_setaffinity(0, {options.cpu})
  experiment = VARIANTS[variant](capture_the_flag.build(options))
  directory = run_directory(options, variant, options.seed)
  try:
    ftwax.run(
      experiment,
      experiment.max_num_actor_steps // _NUM_EVALUATIONS,
      _NUM_EVALUATION_EPISODES // experiment.population.num_members,
      runtime='device',
      run_dir=directory,
      resume=directory.exists(),
    )
  finally:  # An interrupted run goes on in another process.
    if directory.exists():
      with (directory / _CPU_FILE).open('a') as file:
        file.write(f'{time.process_time():.0f}\n')


def run_directory(options: Options, variant: str, seed: int) -> pathlib.Path:
  """Returns where a run is kept."""
  return pathlib.Path(options.directory) / f'{variant}-seed{seed}'


def _run_all(
  options: Options, variants: Sequence[str], seeds: Sequence[int]
) -> None:
  """Does the unfinished runs, some at a time, each on one core."""
  free: queue.Queue[int] = queue.Queue()
  for core in sorted(os.sched_getaffinity(0))[: options.num_workers]:
    free.put(core)

  def run_one(variant: str, seed: int) -> None:
    directory = run_directory(options, variant, seed)
    curve = _read_curve(directory)
    if curve is not None and curve.steps[-1] >= options.max_num_actor_steps:
      return
    core = free.get()
    directory.parent.mkdir(parents=True, exist_ok=True)
    flag_values = [f'--variant={variant}', f'--seed={seed}', f'--cpu={core}']
    print(f'{variant}, seed {seed}: started on core {core}', flush=True)
    try:
      with directory.with_suffix('.log').open('ab') as log:
        subprocess.run(
          [sys.executable, *sys.argv, *flag_values],
          stdout=log,
          stderr=subprocess.STDOUT,
          check=True,
        )
    finally:
      free.put(core)
    print(f'{variant}, seed {seed}: done', flush=True)

  with concurrent.futures.ThreadPoolExecutor(options.num_workers) as pool:
    runs = [
      pool.submit(run_one, variant, seed)
      for seed in seeds
      for variant in variants
    ]
    for done in runs:
      done.result()


def _read_curve(directory: pathlib.Path) -> _Curve | None:
  """Reads the evaluations of a run; None before the first."""
  evaluations = evaluation_curves.read(directory)
  if evaluations is None:
    return None
  path = directory / _CPU_FILE
  return _Curve(
    evaluations.steps,
    dict(zip(evaluations.opponents, evaluations.scores.T, strict=True)),
    float(np.sum(np.loadtxt(path))) if path.exists() else np.nan,
  )


def _print_table(
  options: Options, curves: Mapping[str, Sequence[_Curve]]
) -> None:
  opponents = list(next(iter(curves.values()))[0].scores)
  cpu_seconds = {
    variant: np.mean([run.cpu_seconds for run in runs])
    for variant, runs in curves.items()
  }
  least = np.min(list(cpu_seconds.values()))
  rows = []
  for variant, runs in curves.items():
    share = least / cpu_seconds[variant]
    early = [
      np.interp(share * run.steps[-1], run.steps, run.mean_score)
      for run in runs
    ]
    scores = [
      f'{np.mean([run.scores[name][-1] for run in runs]):.2f}'
      for name in opponents
    ]
    score = common.summarize([run.mean_score[-1] for run in runs])
    rows.append(
      [variant, len(runs), score, common.summarize(early), *scores]
      + [f'{cpu_seconds[variant]:.0f}']
    )
  common.print_table(
    f'Capture the flag after {options.max_num_actor_steps:,} steps',
    ['variant', 'seeds', 'score (95%)', 'at equal time', *opponents, 'CPU s'],
    rows,
  )


def _captures(directory: pathlib.Path) -> tuple[float, float]:
  """Returns captures a player and game, and the share of them that scores.

  Others count as those of a teammate for each of the two opponents; see
  `events.count`.
  """
  rows = loggers.read_jsonl(loggers.log_path(directory, 'train'))
  counts = np.array([row['event_returns'] for row in rows])
  counts = counts[-int(np.ceil(_LAST * len(counts))) :].mean(axis=0)
  own, of_teammates = (
    counts[game_lib.EVENT_NAMES.index(f'{who}_captured_the_flag')]
    for who in ('i', 'teammate')
  )
  captures = 0.5 * (own + of_teammates)
  return captures, own / captures


def _print_captures(
  options: Options, variants: Sequence[str], seeds: Sequence[int]
) -> None:
  rows = []
  for variant in variants:
    captures = np.array(
      [_captures(run_directory(options, variant, seed)) for seed in seeds]
    )
    rows.append([variant, *map(common.summarize, captures.T)])
  common.print_table(
    f'Captures a player and game, last {_LAST:.0%} of training',
    ['variant', 'captures', 'share that scores'],
    rows,
  )


def _plot(
  options: Options, curves: Mapping[str, Sequence[_Curve]]
) -> pathlib.Path:
  """Draws scores over steps and over time, with the bands of the table."""
  figure = figures.make(9.0, 3.6)
  panels = figure.subplots(1, 2, sharey=True)
  for index, (variant, runs) in enumerate(curves.items()):
    steps = runs[0].steps
    # Evaluations of different runs may be a few calls apart.
    scores = np.array(
      [np.interp(steps, run.steps, run.mean_score) for run in runs]
    )  # [seeds, n]
    low, high = np.array([common.interval(column) for column in scores.T]).T
    color = f'C{index}'
    minutes = np.mean([run.cpu_seconds for run in runs]) / 60
    for axes, x in zip(
      panels, (steps, minutes * steps / steps[-1]), strict=True
    ):
      axes.plot(x, scores.mean(axis=0), color=color, label=variant)
      axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
  for axes, label in zip(panels, ('steps', 'minutes on a core'), strict=True):
    figures.style(axes)
    axes.set_xlabel(label, fontsize=8)
  panels[0].set_ylabel('score', fontsize=8)
  panels[0].legend(fontsize=7, frameon=False)
  path = pathlib.Path(options.directory) / 'ablation.png'
  path.write_bytes(figures.to_png(figure))
  return path


def _compare(
  options: Options, variants: Sequence[str], seeds: Sequence[int]
) -> None:
  """Does all runs and prints the results."""
  unknown = set(variants) - set(VARIANTS)
  if unknown:
    raise ValueError(
      f'--variants {sorted(unknown)} must be among {list(VARIANTS)}.'
    )
  _run_all(options, variants, seeds)
  curves: dict[str, list[_Curve]] = {}
  for variant in variants:
    for seed in seeds:
      curve = _read_curve(run_directory(options, variant, seed))
      assert curve is not None, f'{variant} with seed {seed} has ended'
      curves.setdefault(variant, []).append(curve)
  print(common.machine_line())
  _print_table(options, curves)
  if options.game in capture_the_flag.MEMORY_GAMES:
    _print_captures(options, variants, seeds)
  print(f'\nCurves: {_plot(options, curves)}')


def main(options: Options) -> None:
  """Does one run, or all runs and the table."""
  if options.variant is not None:
    run(options, options.variant)
    return
  first = options.first_seed
  _compare(
    options,
    options.variants or list(VARIANTS),
    range(first, first + options.num_seeds),
  )


if __name__ == '__main__':
  launch.main(__file__)
