"""A population trained as For The Win was learns capture the flag.

Run `uv run experiments/capture_the_flag.py`. Matchmaking seats members in games
of two against two on generated maps, as opponents and as teammates. Members
that lose copy stronger ones and perturb hyperparameters and internal rewards.
At the end all members and the scripted players play a tournament on full-size
maps, and `report.html` in the run directory summarizes the run.
`ftwax.load(run_dir, member)` loads a member that acts.

Members are small: an LSTM on a vector of features, with PPO's loss and without
auxiliary tasks. `--agent=paper` has all parts of the FTW agent instead: pixels
of the view, a convolutional torso, the temporal hierarchy with a memory and
noise in its latents, pixel control and reward prediction. Two members train for
4M steps then, which takes about an hour on one core.

`--game=cue` is a game for memories: on larger maps, in longer games and without
a compass, only the first steps tell in which of two ways captures score.
`--game=small_cue` is hard in that alone: on the smallest maps without walls and
with a compass, a single member soon learns to capture flags.

`--demonstrations=DIR` learns from recorded games as well, such as those of the
strongest script, `ftwax record capture_the_flag --players=tactician --out=DIR`.
What they add to the loss fades over the run.

`--game=first_person` is the standard game in first person: players see what
rays ahead of them hit, and have no compass.

`--long` is a run of about an hour on two cores, with eight members. It starts
from wide priors of the internal rewards, as in the paper: apart from captures,
which make the score, nothing says which events are good. `--gpu` has sizes for
a GPU, on which each of these runs takes some minutes.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import ftwax
from ftwax import compilation, hyperparameters, registry, types
from ftwax.agents import ftw, ppo
from ftwax.agents.actor_critic import optimization, tasks
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag, delays, functional
from ftwax.inference import live_game, playable
from ftwax.networks import cores, entry_torsos, heads, torsos
from ftwax.population import exploring, population_config, tournament
from ftwax.records import rebuilding, tournament_files
from ftwax.replay import replay_options
from ftwax.reporting import outcome, report
from ftwax.runtime import evaluation, prepare, runs
from ftwax.runtime.device import matches

AGENTS = ('small', 'paper')
GAMES = ('standard', 'first_person', 'cue', 'small_cue')
MEMORY_GAMES = ('cue', 'small_cue')


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 13_000_000
  num_environments: int = 32
  eval_every: int = 2_000_000
  runtime: str = 'device'
  num_devices: int = 2
  long: bool = flags.flag(False, 'Eight members, 160M steps, wide priors.')
  gpu: bool = flags.flag(False, 'Thousands of games at a time, for a GPU.')
  num_members: int = flags.flag(2, 'Members of the population.')
  agent: str = flags.flag(
    'small',
    'A small agent without auxiliary tasks, or all parts of the FTW agent.',
    AGENTS,
  )
  game: str = flags.flag(
    'standard',
    'Rules, maps and views; cue and small_cue need memory.',
    GAMES,
  )
  core: str | None = flags.flag(
    None,
    "By default lstm, or rpth_dnc for the paper's agent; rpth is no better"
    ' here.',
    tuple(cores.NAMED),
  )
  team_critic: bool = flags.flag(
    False, 'A value that sees the whole game (MAPPO).'
  )
  max_delay: int = flags.flag(0, 'Most steps that actions come late.')
  burn_in_games: int = flags.flag(
    400, 'Games a member plays between chances to copy.'
  )
  games_per_pair: int = flags.flag(
    52, 'Tournament games between each pair of players.'
  )

  def defaults(self) -> dict[str, Any]:
    """Returns the sizes of other runs than the short one of small agents."""
    kind = 'long' if self.long else self.agent
    if self.gpu:
      return {'num_devices': 1, 'eval_every': 0, **_GPU_SIZES[kind]}
    if self.game in MEMORY_GAMES and kind == 'small':
      kind = self.game
    return _SIZES[kind]

  @property
  def is_short(self) -> bool:
    """Whether it is a short run of small agents in no game for memories."""
    needs_memory = self.game in MEMORY_GAMES
    is_long = self.long or self.gpu
    return self.agent == 'small' and not (is_long or needs_memory)

  def rules(self) -> capture_the_flag.CaptureTheFlagConfig:
    """Returns the rules with the changes of `environment`."""
    config = make_game_config(self.agent, self.game)
    made: capture_the_flag.CaptureTheFlagConfig = rebuilding.rebuild(
      self.changed_rules(), type(config), 'environment', config
    )
    return made

  def changed_rules(self) -> dict[str, Any]:
    """Returns the rules that `--config`, `--set` and flags change."""
    changes: Any = self.changes().get('environment')
    rules = dict(changes) if launch.is_rules(changes) else {}
    return {'team_state': True, **rules} if self.team_critic else rules


def _sizes(
  steps: int, members: int, games: int, burn_in: int
) -> dict[str, int]:
  return {
    'max_num_actor_steps': steps,
    'num_members': members,
    'num_environments': games,
    'burn_in_games': burn_in,
  }


_SIZES = {
  'small': {},
  'cue': _sizes(8_000_000, 4, 32, 1500),
  'small_cue': {
    'max_num_actor_steps': 2_000_000,
    'eval_every': 500_000,
    'num_members': 1,
  },
  # Two members of it take as long as twenty small ones.
  'paper': {'eval_every': 1_000_000, **_sizes(4_000_000, 2, 16, 400)},
  'long': {'eval_every': 10_000_000, **_sizes(160_000_000, 8, 64, 2000)},
}

# With these, runs of the standard game learned on an H200.
_GPU_SIZES = {
  'small': _sizes(500_000_000, 4, 2048, 96_000),
  'paper': _sizes(85_000_000, 4, 1024, 6000),
  'long': _sizes(350_000_000, 8, 2048, 30_000),
}


# The default walls and length, on wider maps.
_GAME = capture_the_flag.CaptureTheFlagConfig(height=11, width=15)

_CUE = capture_the_flag.CaptureTheFlagConfig(
  height=17, width=23, num_steps=600, compass=False, cue_steps=5
)
_CONFIGS = {
  'standard': _GAME,
  'first_person': _GAME.replace(observation='rays', compass=False),
  'cue': _CUE,
  'small_cue': dataclasses.replace(
    _CUE,
    height=7,
    width=11,
    wall_density=0.0,
    num_steps=100,
    tag_range=2,
    compass=True,
  ),
}


# Units of each layer.
_SIZE = 64

# Evolution may raise the costs of the latents up to the paper's.
_LATENT_COST = hyperparameters.LogUniform(1e-9, 1e-7, bounds=(1e-10, 0.1))
_LATENTS = tasks.LatentKL(_LATENT_COST, _LATENT_COST)

# Height and width of a cell of the view in pixels, for the paper's agent.
_TILE_SIZE = 3

# Of `rpth_dnc`.
MEMORY = cores.Memory(num_slots=16, word_size=16, num_reads=2)

# Pictures of rays for the paper's agent are 72x48.
_NUM_COLUMNS = 72

# A third of the view's side: with a cell of the map, pixel control would take a
# third of the run's time.
_PIXEL_CONTROL_SIZE = 7

# The paper's torso is for frames of 84x84 pixels. Here the first kernel covers
# a cell of the view.
_TORSO_LAYERS = ((16, _TILE_SIZE, _TILE_SIZE), (16, 3, 2))

# The paper's first layers, for pictures of rays, and 4x6 cells of them.
_COLUMNS_LAYERS = ((16, 8, 4), (16, 4, 2))
_COLUMNS_CONTROL_SIZE = 12

# Ranges of internal rewards by event.
_NARROW_RANGES = {
  'i_captured_the_flag': (0.5, 1.0),
  'i_picked_up_the_flag': (0.1, 0.5),
  'i_returned_the_flag': (0.05, 0.3),
  'teammate_captured_the_flag': (0.0, 0.5),
  'opponent_captured_the_flag': (-0.5, 0.0),
  'i_tagged_opponent_with_flag': (0.05, 0.3),
  'i_tagged_opponent_without_flag': (0.0, 0.1),
  'i_was_tagged_with_flag': (-0.2, 0.0),
  'i_was_tagged_without_flag': (-0.1, 0.0),
}
# Members of a short run that hardly value the flag would not learn in time, and
# those that hardly value tags tag less. Members that mind being tagged scored
# less against the tactician.
_SHORT_RANGES = {
  **_NARROW_RANGES,
  'i_picked_up_the_flag': (0.3, 0.5),
  'i_tagged_opponent_with_flag': (0.2, 0.4),
  'i_tagged_opponent_without_flag': (0.1, 0.2),
  'i_was_tagged_without_flag': (-0.03, 0.0),
}
# As long as nobody tells games apart, capturing must pay on the whole, and in
# games of the other kind it must not.
_CUE_RANGES = {
  **_NARROW_RANGES,
  'i_captured_the_flag': (0.9, 1.1),
  'i_picked_up_the_flag': (0.15, 0.35),
  'opponent_captured_the_flag': (-0.45, -0.35),
}
_WIDE_RANGES = {
  'i_captured_the_flag': (0.0, 1.0),
  'teammate_captured_the_flag': (0.0, 1.0),
  'opponent_captured_the_flag': (-1.0, 0.0),
}


@registry.register('capture_the_flag.game')
def make_game(
  agent: str, game: str, rules: Mapping[str, Any] | None = None
) -> functional.FunctionalGame:
  """Returns the game on full-size maps, as an agent sees it.

  Args:
    agent: one of `AGENTS`.
    game: one of `GAMES`.
    rules: fields of its config that differ.
  """
  return capture_the_flag.make(make_game_config(agent, game, rules))


@registry.register('capture_the_flag.training')
def make_training_game(
  agent: str,
  game: str,
  max_delay: int = 0,
  rules: Mapping[str, Any] | None = None,
) -> functional.FunctionalGame:
  """Returns the game on maps of several sizes, as in the paper.

  On small maps the flags are close, so members capture some before they can
  navigate. Games for memories tell what to remember for different times.
  """
  config = make_game_config(agent, game)
  of_training = {
    'min_height': 7,
    'min_width': 11,
    'max_cue_steps': config.num_steps if config.cue_steps else None,
  }
  config = make_game_config(agent, game, {**of_training, **(rules or {})})
  made = capture_the_flag.make(config)
  return delays.make(made, max_delay) if max_delay else made


def make_game_config(
  agent: str, game: str, rules: Mapping[str, Any] | None = None
) -> capture_the_flag.CaptureTheFlagConfig:
  """Returns the rules, with pictures for the paper's agent; see `make_game`."""
  if game not in _CONFIGS:
    raise ValueError(
      f'game ({game!r}) must be one of {[*_CONFIGS]}; choose one.'
    )
  config = _CONFIGS[game]
  seen: dict[str, Any] = {}
  if agent == 'paper' and config.observation == 'rays':
    seen = {'observation': 'columns', 'num_rays': _NUM_COLUMNS}
  elif agent == 'paper':
    seen = {'observation': 'rgb', 'tile_size': _TILE_SIZE}
  return config.replace(**{**seen, **(rules or {})})


def make_config(options: Options) -> ppo.PPOConfig:
  """Returns the agent's config, small enough for two cores."""
  game = options.rules()
  # An update takes at least one rollout of each seat of a member.
  num_rows = len(game.teams) * options.num_environments // options.num_members
  batch_size = max(32, num_rows)
  # In games for memories gradients reach from a game's end back to the cue.
  needs_memory = options.game in MEMORY_GAMES
  is_columns = game.observation == 'columns'
  layers = _COLUMNS_LAYERS if is_columns else _TORSO_LAYERS
  config = ppo.PPOConfig(
    core=_make_core(options),
    torso=torsos.Torso(
      functools.partial(entry_torsos.FTWTorso, _SIZE, layers),
      hidden_sizes=(_SIZE,),
    ),
    heads=heads.Heads((_SIZE,), (_SIZE,)),
    skip_connection=False,
    sequence_length=game.num_steps if needs_memory else 32,
    batch_size=batch_size,
    queue=replay_options.Queue(max_size=2 * batch_size),
    num_epochs=2,
    num_minibatches=8 if needs_memory else 4,
    internal_rewards_prior=_event_priors(options),
    decay=optimization.LinearDecay(names=('learning_rate', 'entropy_cost')),
    learning_rate=hyperparameters.LogUniform(5e-4, 2e-3),
    entropy_cost=hyperparameters.LogUniform(2e-3, 1e-2),
  )
  if options.game == 'small_cue':
    # Large minibatches are as good as many in these games, and faster.
    config = config.replace(
      learning_rate=2e-3,
      entropy_cost=5e-3,
      num_minibatches=8,
      normalize_observations=True,
    )
  if options.team_critic:
    config = config.replace(
      separate_value=True, value_core=cores.FeedForward(_SIZE)
    )
  if options.is_short:
    config = _with_short_rates(config, options)
  if cores.as_part(config.core).has_latents:
    config = config.replace(tasks=(*config.tasks, _LATENTS))
  # A run that is resumed for a little longer still learns.
  config = options.configure(config).decayed_over(
    1.1 * options.max_num_actor_steps, options.num_members
  )
  if options.agent != 'paper':
    return config
  size = _COLUMNS_CONTROL_SIZE if is_columns else _PIXEL_CONTROL_SIZE
  return _with_all_tasks(config, size)


def _with_short_rates(config: ppo.PPOConfig, options: Options) -> ppo.PPOConfig:
  """Returns the config of small agents in a short run.

  With half of both numbers, policies were nearly deterministic after a quarter
  of the run, and hardly changed any more (seed 100). With unrolls of 32 steps
  and as many optimizer steps for each, they had 0.3 to 0.4 of 3.4 nats left in
  the middle of a run of 3M steps, now 1.7 to 2.1.
  """
  config = config.replace(
    learning_rate=hyperparameters.LogUniform(2e-3, 3e-3),
    entropy_cost=hyperparameters.LogUniform(6e-3, 1e-2),
    sequence_length=128,
    num_minibatches=16,
  )
  if options.demonstrations is None:
    return config
  # Offline nothing else teaches.
  fading = () if options.offline else ('tasks.clone.cost',)
  # Rates with which four epochs change policies by a KL of some 0.02.
  return config.replace(
    num_epochs=4,
    learning_rate=hyperparameters.LogUniform(6e-4, 1.2e-3),
    tasks=(tasks.Clone(),),
    decay=optimization.LinearDecay(names=(*config.decay.names, *fading)),
  )


def _make_core(options: Options) -> Any:
  """Returns the core; in games for memories these first last for a game."""
  is_paper = options.agent == 'paper'
  length = options.rules().num_steps
  lasts: dict[str, Any] = (
    {'memory_length': length} if options.game in MEMORY_GAMES else {}
  )
  hierarchy = cores.RPTH(
    cores.LSTM(_SIZE, forget_bias=3.0 if is_paper else 1.0, **lasts),
    latent_size=16,
    memory=MEMORY,
    noise_scale=1.0 if is_paper else 0.0,
    slow_period=hyperparameters.UniformInteger(5, 20),
    fast_to_slow_gradient_scale=hyperparameters.LogUniform(0.1, 1.0),
  )
  name = options.core or ('rpth_dnc' if is_paper else 'lstm')
  core = ftw.named_core(name, hierarchy)
  return core.replace(**lasts) if hasattr(core, 'memory_length') else core


def _with_all_tasks(
  config: ppo.PPOConfig, pixel_control_size: int
) -> ppo.PPOConfig:
  """Returns the config with the tasks of the whole FTW agent.

  On pixels members meet flags late, after some 250k steps of each. All pairs
  did whose learning rates were 1.8e-3 to 2.5e-3 and whose entropy costs were
  0.008 to 0.018 (four seeds). Rates of 2.8e-3 and 4e-3 never did; with a cost
  of 0.004 policies were nearly deterministic before that.
  At a cost of pixel control of 0.02 its gradient is at first twice, later a
  quarter of the policy's; at 0.09 clipping leaves at most half of the whole.
  """
  return config.replace(
    tasks=(
      *config.tasks,
      tasks.PixelControl(
        cost=hyperparameters.LogUniform(3e-3, 3e-2, bounds=(1e-4, 1e-1)),
        cell_size=pixel_control_size,
      ),
      tasks.RewardPrediction(cost=hyperparameters.LogUniform(1e-2, 0.3)),
    ),
    learning_rate=hyperparameters.LogUniform(
      1.5e-3, 2.5e-3, bounds=(5e-4, 5e-3)
    ),
    entropy_cost=hyperparameters.LogUniform(8e-3, 1.6e-2, bounds=(5e-4, 5e-2)),
  )


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  # The tournament at the end: what it would refuse is refused here.
  tournament.round_robin(2, options.games_per_pair, options.rules().teams)
  # Records of runs with the usual rules have none.
  rules = options.changed_rules()
  changed = {'rules': rules} if rules else {}
  return ftwax.ExperimentConfig(
    name='capture_the_flag',
    agent=make_config(options),
    environment=functools.partial(
      make_training_game,
      options.agent,
      options.game,
      options.max_delay,
      **changed,
    ),
    evaluation=ftwax.Evaluation(
      functools.partial(make_game, options.agent, options.game, **changed),
      greedy=False,  # As in the tournament, by the same program.
    ),
    population=_make_population(options),
    steps_per_round=options.rules().num_steps,
    **options.fields(),
  )


def _make_population(options: Options) -> population_config.PopulationConfig:
  """Returns the options of the population.

  A first exploit before all members have begun to learn would leave copies of
  the member that began first, and the paper's few perturbations would keep them
  alike. With wide priors all members may value the flag so little that nobody
  ever captures it.
  """
  config = population_config.PopulationConfig(
    num_members=options.num_members,
    exploits=options.num_members > 1 and not options.offline,
    explore=exploring.Perturb(1.0),
    burn_in_games=options.burn_in_games,
    min_decided_fraction=0.1,
  )
  if not options.long:
    return config
  # The first member to capture flags may have the wrong sign for other events.
  # Crossover tries other signs, and large factors soon make a wrong one not
  # matter.
  return config.replace(
    explore=exploring.Perturb(0.3, (0.5, 2.0)), crossover_probability=0.3
  )


def _event_priors(options: Options) -> tuple[Any, ...]:
  """Returns priors of internal rewards.

  In a long run only events that change the score have a sign, as the score has.
  In a short run most events have one.
  """
  ranges, other = _NARROW_RANGES, (-0.05, 0.05)
  if options.long:
    ranges, other = _WIDE_RANGES, (-1.0, 1.0)
  elif options.game in MEMORY_GAMES:
    ranges = _CUE_RANGES
  elif options.is_short:
    ranges = _SHORT_RANGES
  return tuple(
    hyperparameters.Uniform(*ranges.get(name, other))
    for name in capture_the_flag.EVENT_NAMES
  )


def finish(
  made: ftwax.ExperimentConfig, result: runs.RunResult, options: Options
) -> None:
  """Plays the tournament, records games and writes the report."""
  game = make_game(options.agent, options.game, options.changed_rules())
  parts = prepare.prepare(made)
  variables = types.actor_variables(result.state)
  # As in evaluations, whose compiled functions play the tournament, too.
  plan = evaluation.make_plan(parts, options.num_eval_episodes)
  opponents = plan.opponents
  num_members = made.population.num_members
  with compilation.shown(f'{made.name}: compiling and playing a tournament'):
    results = matches.round_robin(
      jax.random.PRNGKey(made.seed),
      game,
      parts.evaluation_policy,
      variables,
      opponents,
      options.games_per_pair,
      plan.seats,
    )
  names = [*(f'member {i}' for i in range(num_members)), *opponents]
  summary = evaluation.summarize_for_report(
    results, game.teams, names, num_members
  )
  tournament_files.write(result.run_dir, summary)
  best, *others = [
    names[member] for member in np.argsort(-summary.ratings[:num_members])
  ]
  live_game.record_matches(
    playable.make('capture the flag', game, result.run_dir, made),
    [(best, other) for other in (*others[:1], 'tactician')],
    result.run_dir,
    made.seed,
  )
  path = report.make_report(result.run_dir)
  strength = outcome.find_strength(summary, None)
  if strength is not None:
    print('\n'.join(outcome.describe_strength(strength)))
  print(f'Report: {path}')


if __name__ == '__main__':
  launch.main(__file__)
