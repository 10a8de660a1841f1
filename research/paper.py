"""Holds populations against the figures of the For The Win paper.

    uv run research/paper.py --budget=cpu
    uv run research/paper.py --budget=gpu
    uv run research/paper.py --rows delays maps

Each row of `docs/paper.md`, which this program writes, is a claim of Jaderberg
et al. (2019, arXiv:1807.01281) on agents that were trained in their game, what
`--run`, an agent with all parts and members in first person show of it in ours,
and whether it holds. A
claim holds, or does not hold, if the 95% interval of the number lies on one
side of the stated one. Intervals are bootstrapped over games.

Some rows need runs of their own, `PARTS`, which are trained first; a run that
was interrupted goes on. Runs and cells are kept in `--directory`, and those
that are there are not made again. `--people` are games that people played and
saved in a browser, as files. `--rows` prints some rows and writes no page.
"""

import dataclasses
import datetime
import functools
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import probes
import what_it_knows
import wide_priors

from ftwax import types
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag as game_lib
from ftwax.environments import delays as delays_lib
from ftwax.environments.capture_the_flag import browser
from ftwax.inference import exploiting, loaded_agent, loading
from ftwax.population import players
from ftwax.records import files
from ftwax.reporting import evaluation_curves, history, saved_games
from ftwax.runtime.device import matches

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / 'benchmarks'))

import common  # noqa: E402
import figures  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this benchmark."""

  run: str = flags.flag(
    'capture_the_flag', 'Directory of a run, or a population of ftwax.'
  )
  budget: str = flags.flag(
    'cpu', 'What trains the runs that rows need.', ('cpu', 'gpu')
  )
  people: str | None = flags.flag(None, 'Directory of saved games of people.')
  rows: tuple[str, ...] = flags.flag(
    (), 'Rows to print, by name; all by default.'
  )
  members: int = flags.flag(2, 'Members of a run that play, the first.')
  games: int = flags.flag(100, 'Games of each number.')
  seed: int = flags.flag(2_000, 'Seed of maps and actions.')
  directory: str = flags.flag('runs/paper', 'Where runs and rows are kept.')
  page: str = flags.flag(str(ROOT / 'docs' / 'paper.md'), 'The page.')


_EXPERIMENT = 'experiments/capture_the_flag.py --num_devices=1 --run_dir={}'
_PAPER = f'{_EXPERIMENT} --agent=paper --seed=77 --eval_every=0'


class Part(NamedTuple):
  """Commands that train a run in a directory, on CPUs and on a GPU.

  One core takes up to an hour for each, an H200 seven minutes; all of
  benchmarks/memory.py takes a day.
  """

  cpu: str
  gpu: str


def _part(command: str) -> Part:
  return Part(command, command)


PARTS = {
  'phases': _part(
    f'{_EXPERIMENT} --seed=20 --eval_every=1000000 --save_every_seconds=20'
    ' --set checkpointing.max_to_keep=100'
  ),
  'late': _part(
    f'{_EXPERIMENT} --seed=501 --eval_every=0 --max_delay=5'
    ' --max_num_actor_steps=24000000'
  ),
  'exploit': _part(
    '-m ftwax exploit capture_the_flag --run_dir={} --steps=3000000 --warm'
    ' --games=20 --evaluations=3 --fresh_games=400'
  ),
  'whole': Part(_PAPER, f'{_PAPER} --gpu'),
  'wide': Part(
    '', 'research/wide_priors.py --train --arm=copies --directory={}'
  ),
  'memory': _part('benchmarks/memory.py all --directory={}'),
}

HOLDS, FAILS = 'holds', 'does not hold'
OPEN, UNTRIED = 'undecided', 'not tried'

_Config = game_lib.CaptureTheFlagConfig

_SCRIPTS = ('random', 'wanderer', 'attacker', 'tactician')
_STRONGEST = _SCRIPTS[2:]

# Tasks of `benchmarks/memory.py` that were chosen for the hierarchy.
_MEMORY_TASKS = ('copying', 'recall_by_key', 't_maze_100')

# The untrained agent, three checkpoints and the trained agent.
_NUM_STAGES = 5

# Files of the maps of where members were, and of films of three phases.
_VISITS = 'visits.png'
_FILMS = ('phase_first.gif', 'phase_middle.gif', 'phase_last.gif')
_FILM_STEPS = 80

# No delay, and one that is as many steps as 333 ms in the paper's game.
_DELAYS = (0, 5)

# States of each situation on a map of states, and neighbours of a state.
_NUM_STATES, _NUM_NEIGHBOURS = 300, 10

# A difference of scores up to which teams count as equally strong.
_SLACK = 0.05


class Found(NamedTuple):
  """What was measured, in at most two numbers, and whether a claim holds."""

  text: str
  verdict: str


def judge(interval: tuple[float, float], threshold: float) -> str:
  """Returns whether a number is above a threshold."""
  low, high = interval
  if low > threshold:
    return HOLDS
  return FAILS if high < threshold else OPEN


# Plays.


@functools.lru_cache
def config_of(options: Options) -> _Config:
  """Returns full-size maps of the experiment, as the members see them."""
  (agent, *_) = load(options.run, options)
  return browser.read_config(agent.game_spec.environment, team_size=2)


def load(source: str, options: Options) -> list[loaded_agent.LoadedAgent]:
  """Returns the members of a run that play."""
  return loading.load_members(source, greedy=False)[: options.members]


def play(
  options: Options,
  config: _Config,
  actor: types.ActorCore,
  members: Sequence[types.ActorVariables],
  others: Mapping[str, players.Player],
  sides: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> types.Floats:
  """Plays `options.games` games of each pair of teams, half on either side.

  Args:
    options: flags.
    config: rules.
    actor: functions of the members.
    members: their variables.
    others: other players, by name; they are numbered after the members.
    sides: the players of both teams, of equal numbers of seats by member.

  Returns:
    Scores of the first team of each pair, [len(sides), games].
  """
  game = game_lib.make(config)
  rows = [
    [*team, *opponents] if number % 2 == 0 else [*opponents, *team]
    for team, opponents in sides
    for number in range(options.games)
  ]
  variables = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
  results = matches.play(
    jax.random.PRNGKey(options.seed),
    game,
    actor,
    variables,
    others,
    np.array(rows, np.int32),
  )
  scores = np.array([0.5 * (1.0 + result.outcome[0]) for result in results])
  scores = scores.reshape(len(sides), -1)
  scores[:, 1::2] = 1.0 - scores[:, 1::2]
  return scores


def scripts(config: _Config) -> dict[str, players.Player]:
  """Returns the random player and the scripts, by name."""
  game = game_lib.make(config)
  return {
    'random': players.uniform(game.spec.actions),
    **{name: players.scripted(one) for name, one in game.scripts.items()},
  }


def against_scripts(
  options: Options,
  config: _Config,
  names: Sequence[str],
  delays: Sequence[int] = (0,),
) -> types.Floats:
  """Plays teams of copies of members against teams of scripts.

  Args:
    options: flags.
    config: rules.
    names: the scripts.
    delays: steps after which actions of members take effect.

  Returns:
    Scores [delays, scripts, games].
  """
  agents = load(options.run, options)
  spec = game_lib.make(config).spec.actions
  members = [
    (agent.variables, jnp.int32(steps)) for steps in delays for agent in agents
  ]
  team = np.ones(config.team_size, np.int32)
  scores = play(
    options,
    config,
    delay(agents[0].actor, spec, max(delays)),
    members,
    {name: scripts(config)[name] for name in names},
    [
      (member * team, (len(members) + script) * team)
      for member in range(len(members))
      for script in range(len(names))
    ],
  )
  by_member = scores.reshape(len(delays), len(agents), len(names), -1)
  return by_member.swapaxes(1, 2).reshape(len(delays), len(names), -1)


def delay(
  actor: types.ActorCore, action_spec: types.SpecTree, longest: int
) -> types.ActorCore:
  """Makes the actions of an actor take effect later.

  Args:
    actor: the functions of the actor.
    action_spec: specs of its actions, of which 0 is to do nothing.
    longest: the longest delay, in steps.

  Returns:
    An actor whose variables are those of `actor` and its delay, int32 [].
  """

  def init(key: types.Key, batch_size: int) -> Any:
    nothing = jax.tree.map(
      lambda spec: jnp.zeros((longest, batch_size), spec.dtype), action_spec
    )
    return actor.init(key, batch_size), nothing

  def select_action(variables: Any, timestep: Any, state: Any) -> Any:
    (variables, steps), (inner, waiting) = variables, state
    action, inner = actor.select_action(variables, timestep, inner)
    taken, waiting = delays_lib.delay(waiting, action, steps)
    return taken, (inner, waiting)

  return actor._replace(init=init, select_action=select_action)


# Cells.


def strength(options: Options) -> Found:
  """Scores against all scripts."""
  (scores,) = against_scripts(options, config_of(options), _SCRIPTS)
  return _hardest(dict(zip(_SCRIPTS, scores, strict=True)))


def progress(options: Options) -> Found:
  """When members win more than half of their games against each script."""
  curve = evaluation_curves.read(_path(options, 'phases'))
  assert curve is not None
  passed = {
    name: curve.steps[scores > 0.5]
    for name, scores in zip(curve.opponents, curve.scores.T, strict=True)
  }
  first = [
    float(steps[0]) if len(steps) else np.inf for steps in passed.values()
  ]
  texts = [
    f'{name} {step / 1e6:.0f}M' if np.isfinite(step) else f'{name} never'
    for name, step in zip(passed, first, strict=True)
  ]
  holds = first == sorted(first) and np.isfinite(first[0])
  return Found(
    f'steps until wins: {", ".join(texts[-2:])}', HOLDS if holds else FAILS
  )


def learning_rate(options: Options) -> Found:
  """The learning rates that evolution leaves."""
  first, last = _traits(options.run)
  before, after = first['learning_rate'], last['learning_rate']
  gap = np.mean(before) - np.max(after), np.mean(before) - np.min(after)
  return Found(
    f'means {np.mean(before):.4f}, then {np.mean(after):.4f}', judge(gap, 0)
  )


def internal_rewards(options: Options) -> Found:
  """Signs of the rewards that evolution leaves where priors give none."""
  # Of events whose weights may begin with either sign.
  signs = {
    'i_picked_up_the_flag': 1,
    'i_returned_the_flag': 1,
    'i_tagged_opponent_with_flag': 1,
    'i_tagged_opponent_without_flag': 1,
    'i_was_tagged_with_flag': -1,
    'i_was_tagged_without_flag': -1,
  }
  best = _of_wide_priors(options)
  weights = dict(
    zip(game_lib.EVENT_NAMES, best.internal_rewards.T, strict=True)
  )
  right = np.ravel([sign * weights[name] > 0 for name, sign in signs.items()])
  return Found(
    f'share of the right signs {_number(right)}',
    judge(common.interval(right), 0.5),
  )


def knowledge(options: Options) -> Found:
  """Whether a probe finds more in a trained than in an untrained state."""
  record = _record(options)
  facts = record.facts
  stray = facts.flag_is_away & (facts.carries | facts.teammate_carries)
  areas = [
    _resampled(states, _probe(states, stray), stray)
    for states in (record.states, record.untrained)
  ]
  # Vectors of both views say which flags are at home.
  is_shown = config_of(options).observation in ('features', 'rays')
  seen = '; observations show it' if is_shown else ''
  return _compare(*areas, _percentiles, seen)


def units(options: Options) -> Found:
  """Whether single units encode situations, more so if trained."""
  facts = (record := _record(options)).facts
  areas = [
    np.mean(
      [
        _resampled(states, _best_unit(states, answer), answer)
        for answer in (facts.flag_is_away, facts.teammate_carries, facts.waits)
      ],
      axis=0,
    )
    for states in (record.states, record.untrained)
  ]
  return _compare(*areas, _percentiles)


def clusters(options: Options) -> Found:
  """Whether neighbours on a map of states are of one situation."""
  record = _record(options)
  situations = what_it_knows.situations(record.facts)
  shares = [
    _agreement(states, situations)
    for states in (record.states, record.untrained)
  ]
  found = _compare(*shares, common.interval)
  chance = 1 / len(what_it_knows.SITUATIONS)
  beyond = judge(common.interval(shares[0]), chance)
  return found._replace(verdict=_all_of([beyond, found.verdict]))


def _compare(
  trained: types.Floats,
  untrained: types.Floats,
  interval: Callable[[types.Floats], tuple[float, float]],
  more: str = '',
) -> Found:
  """Returns whether a number is larger after training."""
  return Found(
    f'trained {np.mean(trained):.2f}, untrained {np.mean(untrained):.2f}{more}',
    judge(interval(trained - untrained), 0),
  )


def phase(index: int, sign: int, options: Options) -> Found:
  """Whether a behaviour has its extreme in mid-training.

  Args:
    index: the behaviour; see `what_it_knows.behave`.
    sign: 1 for a maximum, -1 for a minimum.
    options: flags.
  """
  first, *middle, last = [share[:, index] for share in _phases(options)]
  extreme = max(middle, key=lambda one: sign * np.mean(one))
  verdicts = [
    judge(common.interval(sign * (extreme - np.mean(end))), 0)
    for end in (first, last)
  ]
  return Found(
    f'share of steps in mid-training {np.mean(extreme):.2f}, at the end'
    f' {np.mean(last):.2f}',
    _all_of(verdicts),
  )


@functools.lru_cache
def _phases(options: Options) -> list[types.Floats]:
  """Returns shares of behaviours in stages of training; draws pictures."""
  run = str(_path(options, 'phases'))
  options = dataclasses.replace(options, run=run)
  settings, config = _settings(options), config_of(options)
  stages = what_it_knows.load_stages(settings)
  if len(stages) < _NUM_STAGES:
    raise ValueError(
      f'{run} must keep {_NUM_STAGES - 1} checkpoints or more; remove it, so'
      ' that it is trained again.'
    )
  game = game_lib.make(config)
  names = list(stages)
  chosen = np.linspace(0, len(names) - 1, _NUM_STAGES).round().astype(int)
  facts = {
    name: what_it_knows.play(
      stages[name],
      stages['untrained'].variables,
      game,
      config,
      settings,
    ).facts
    for name in [names[index] for index in chosen]
  }
  visits = {
    name: what_it_knows.count_visits(each, config.height, config.width)
    for name, each in facts.items()
  }
  directory = pathlib.Path(options.directory)
  (directory / _VISITS).write_bytes(
    figures.to_png(what_it_knows.plot_visits(visits))
  )
  for film, name in zip(_FILMS, list(facts)[::2], strict=True):
    agent = stages[name]
    agent.record(
      game,
      directory / film,
      seats=[agent, agent, 'attacker', 'attacker'],
      seed=options.seed,
      max_num_steps=_FILM_STEPS,
      frames_per_second=12,
    )
  return [_shares(each) for each in facts.values()]


def mates(options: Options) -> Found:
  """The best members of several runs beside themselves and each other."""
  best = _of_wide_priors(options)
  num_agents = len(best.internal_rewards)
  agent, config = load(options.run, options)[0], config_of(options)
  pairs = [
    (first, second)
    for first in range(num_agents)
    for second in range(first, num_agents)
  ]
  scores = play(
    options,
    config,
    agent.actor,
    [jax.tree.map(lambda leaf, i=i: leaf[i], best) for i in range(num_agents)],
    {'tactician': scripts(config)['tactician']},
    [(pair, (num_agents, num_agents)) for pair in pairs],
  ).mean(axis=1)
  own = {pair[0]: scores[i] for i, pair in enumerate(pairs) if len({*pair}) < 2}
  gains = np.array(
    [
      scores[i] - 0.5 * (own[first] + own[second])
      for i, (first, second) in enumerate(pairs)
      if first != second
    ]
  )
  mean = np.mean([*own.values()])
  return Found(
    f'tactician: beside strangers {mean + np.mean(gains):.2f}, beside'
    f' themselves {mean:.2f}',
    judge(common.interval(gains), -_SLACK),
  )


def _of_wide_priors(options: Options) -> types.ActorVariables:
  """Returns the best member of each seed, leaves [seeds, ...]."""
  kept = wide_priors.Options(directory=str(_path(options, 'wide')))
  return wide_priors.read_best(kept, 'copies')


def strangers(options: Options) -> Found:
  """Members against those of another run."""
  member, others = load(options.run, options)[0], {}
  for index, agent in enumerate(load(str(_path(options, 'phases')), options)):
    others[str(index)] = agent.player
  teams = [((0, 0), (1 + i, 1 + i)) for i in range(len(others))]
  scores = play(
    options,
    config_of(options),
    member.actor,
    [member.variables],
    others,
    teams,
  ).ravel()
  return Found(_number(scores), judge(common.interval(scores), 0.5))


def maps(options: Options) -> Found:
  """Maps of sizes that no member has seen."""
  return _elsewhere(
    options,
    {
      f'{height}x{width}': {'height': height, 'width': width}
      for height, width in ((13, 17), (17, 23))
    },
  )


def team_sizes(options: Options) -> Found:
  """Teams of sizes that no member has played in."""
  return _elsewhere(
    options, {f'{size} a side': {'team_size': size} for size in (1, 3, 4)}
  )


def delays(options: Options) -> Found:
  """Scores with actions that take effect later."""
  scores = against_scripts(options, config_of(options), _STRONGEST, _DELAYS)
  on_time, late = scores.reshape(2, -1)
  return Found(
    f'late {np.mean(late):.2f}, on time {np.mean(on_time):.2f}',
    judge(common.interval(late - np.mean(on_time)), -_SLACK),
  )


def late(options: Options) -> Found:
  """The same, of members whose games drew delays."""
  run = str(_path(options, 'late'))
  return delays(dataclasses.replace(options, run=run))


def exploiter(options: Options) -> Found:
  """The bound of a best responder."""
  path = _path(options, 'exploit') / exploiting.FILE
  (*_, last) = json.loads(path.read_text('utf-8'))['bounds']
  # A payoff is 1 for a win and -1 for a loss.
  share, low, high = (
    0.5 * (1.0 + last[name]) for name in ('payoff', 'low', 'high')
  )
  return Found(
    f'a best response scores {share:.2f} ± {(high - low) / 2:.2f}',
    # Holds if the member is no easier to beat.
    judge((0.25 - high, 0.25 - low), 0),
  )


def hierarchy(options: Options) -> Found:
  """The hierarchy against an LSTM, on tasks that were chosen for it."""
  directory = str(_path(options, 'memory'))
  # The means of the last tenth of training, [cores, tasks, seeds].
  gains = np.array(
    [
      [
        _returns(directory, task, core) - _returns(directory, task, 'lstm')
        for task in _MEMORY_TASKS
      ]
      for core in ('rpth', 'rpth_dnc')
    ]
  ).reshape(2, -1)
  plain, with_memory = np.mean(gains, axis=1)
  return Found(
    f'return beyond an LSTM {plain:.2f}, with a DNC {with_memory:.2f}'
    ' ([which core](which_core.md#the-hierarchy-and-the-dnc), and [in first'
    ' person](how_to/first_person.md#does-memory-matter-here))',
    _all_of([judge(common.interval(one), 0) for one in gains]),
  )


def people(options: Options) -> Found:
  """Games of people at the members' pace, as the pages save them."""
  scores = _against_people(options.people) if options.people else []
  if not scores:
    return Found('needs `--people`, saved games', UNTRIED)
  return Found(
    f'{_number(scores)} in {len(scores)} games',
    judge(common.interval(scores), 0.5),
  )


def collaboration(options: Options) -> Found:
  """What people say of team mates, which no saved game holds."""
  del options
  return Found('saved games hold no judgement of team mates', UNTRIED)


class Claim(NamedTuple):
  """A claim of the paper.

  Attributes:
    text: what the paper says.
    find: measures it.
    needs: name of the part that it needs, if any.
    columns: of which other agents it is measured, too; see `_COLUMNS`.
  """

  text: str
  find: Callable[[Options], Found]
  needs: str = ''
  columns: tuple[str, ...] = ()


# Heads of the columns of other agents, by name: that of a part with all parts
# of the paper's agent, and a population of the library.
_COLUMNS = {
  'whole': 'all parts, from pixels',
  'first_person': 'a small agent, in first person',
}
_BOTH = tuple(_COLUMNS)


CLAIMS = {
  'strength': Claim('Agents beat all scripted players', strength, '', _BOTH),
  'progress': Claim(
    'Weak scripts are beaten before strong ones', progress, 'phases'
  ),
  'learning_rate': Claim('Evolution lowers the learning rate', learning_rate),
  'internal_rewards': Claim(
    'Evolution finds the signs of the rewards', internal_rewards, 'wide'
  ),
  'knowledge': Claim(
    'A linear probe finds whether both flags are away (area under the curve'
    ' 0.91, and 0.70 in self-play)',
    knowledge,
    '',
    _BOTH,
  ),
  'units': Claim(
    'Single units encode situations, better after training', units, '', _BOTH
  ),
  'clusters': Claim('States form clusters by situation', clusters, '', _BOTH),
  'defence': Claim(
    'Home defence comes, goes and returns',
    functools.partial(phase, 0, -1),
    'phases',
  ),
  'camping': Claim(
    "Camping in the opponents' base comes, goes and returns",
    functools.partial(phase, 1, -1),
    'phases',
  ),
  'following': Claim(
    'Following a team mate peaks in mid-training',
    functools.partial(phase, 2, 1),
    'phases',
  ),
  'mates': Claim('Agents play as well beside strangers', mates, 'wide'),
  'strangers': Claim('Agents beat teams of strangers', strangers, 'phases'),
  'maps': Claim('Agents win on maps of other sizes', maps, '', _BOTH),
  'team_sizes': Claim(
    'Agents win in teams of other sizes', team_sizes, '', ('first_person',)
  ),
  'delays': Claim('Actions may be 5 steps late', delays),
  'late': Claim('The same, trained with `--max_delay=5`', late, 'late'),
  'exploiter': Claim(
    'People who practise for 12 hours win 25% of games', exploiter, 'exploit'
  ),
  'hierarchy': Claim(
    'The temporal hierarchy and the DNC make agents stronger',
    hierarchy,
    'memory',
  ),
  'people': Claim('Agents beat strong human players', people),
  'collaboration': Claim(
    'People find agents more collaborative', collaboration
  ),
}

# Parts of cells.


def _number(values: Any) -> str:
  low, high = common.interval(values)
  return f'{np.mean(values):.2f} ± {(high - low) / 2:.2f}'


def _hardest(scores: Mapping[str, types.Floats]) -> Found:
  """Returns the lowest of several scores, all of which must be above a half."""
  hardest = min(scores, key=lambda name: np.mean(scores[name]))
  return Found(
    f'{hardest} {_number(scores[hardest])}',
    _all_of([judge(common.interval(one), 0.5) for one in scores.values()]),
  )


def _elsewhere(
  options: Options, changes: Mapping[str, Mapping[str, int]]
) -> Found:
  """Returns what was found in games of other sizes, by name."""
  config, scores = config_of(options), {}
  for size, change in changes.items():
    changed = dataclasses.replace(config, **change)
    found = against_scripts(options, changed, _STRONGEST)[0]
    for script, one in zip(_STRONGEST, found, strict=True):
      scores[f'{size}, {script}'] = one
  return _hardest(scores)


def _against_people(directory: str) -> list[float]:
  """Returns scores of members in games of which one team has people."""
  scores = []
  for _, game in saved_games.SavedGames(pathlib.Path(directory)).readable():
    sides = {s['team'] for s in game['seats'] if s['kind'] == 'person'}
    # Below the hardest level of the site's page, members rest.
    if len(sides) == 1 and game.get('level', 'hard') == 'hard':
      scores.append(0.5 - game['outcome'][sides.pop()] / 2)
  return scores


def _all_of(verdicts: Sequence[str]) -> str:
  """Returns the verdict of a claim with several parts."""
  if FAILS in verdicts:
    return FAILS
  return OPEN if OPEN in verdicts else HOLDS


def _returns(directory: str, task: str, core: str) -> types.Floats:
  """Returns the mean return of the last tenth of a training, [seeds]."""
  (path,) = pathlib.Path(directory).glob(f'{task}-{core}-*.jsonl')
  lines = path.read_text('utf-8').splitlines()
  last = [json.loads(line)['returns'] for line in lines[-(len(lines) // 10) :]]
  return np.mean(last, axis=0)


def _traits(run: str) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns hyperparameters and weights of members at first and at last."""
  birth, *copies = history.read_lineage(loading.find(run))

  def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row['hyperparameters'], **row['internal_rewards']}

  first = {
    name: np.array(column, float) for name, column in flat(birth).items()
  }
  last = {name: column.copy() for name, column in first.items()}
  for copy in copies:
    for name, value in flat(copy).items():
      last[name][copy['member']] = value
  return first, last


def _settings(options: Options) -> what_it_knows.Options:
  return what_it_knows.Options(
    run=options.run,
    opponent='tactician',
    num_games=options.games,
    seed=options.seed,
  )


@functools.lru_cache
def _record(options: Options) -> what_it_knows.Record:
  """Plays the games that are probed."""
  (agent, *_) = load(options.run, options)
  config = config_of(options)
  return what_it_knows.play(
    agent,
    loading.initial_variables(options.run, options.seed),
    game_lib.make(config),
    config,
    _settings(options),
  )


def _split(array: types.NumpyArray) -> tuple[Any, Any]:
  """Returns the games that are fitted, and those held out; [T, G, ...]."""
  num_fitted = 2 * array.shape[1] // 3
  return array[:, :num_fitted], array[:, num_fitted:]


def _flat(array: types.NumpyArray) -> types.NumpyArray:
  return array.reshape(-1, array.shape[-1])


def _probe(states: types.NumpyArray, answer: types.NumpyArray) -> probes.Probe:
  return probes.fit(
    _flat(_split(states)[0]), _flat(_split(answer[..., None])[0])
  )


def _best_unit(
  states: types.NumpyArray, answer: types.NumpyArray
) -> probes.Probe:
  """Returns a probe of the single unit that gives an answer best."""
  size = states.shape[-1]
  every = probes.Probe(0.0, 1.0, np.eye(size), np.zeros(size))
  fitted = _flat(_split(states)[0])
  answers = np.repeat(_flat(_split(answer[..., None])[0]), size, axis=1)
  auc = probes.score(every, fitted, answers).auc
  best = int(np.argmax(np.abs(auc - 0.5)))
  weights = np.zeros((size, 1))
  weights[best] = np.sign(auc[best] - 0.5)
  return probes.Probe(0.0, 1.0, weights, np.zeros(1))


def _resampled(
  states: types.NumpyArray, probe: probes.Probe, answer: types.NumpyArray
) -> types.Floats:
  """Returns areas under the curve on resampled held-out games.

  Raises:
    ValueError: if the answer is the same in all of them.
  """
  held = _split(states)[1], _split(answer[..., None])[1]
  if held[1].all() or not held[1].any():
    raise ValueError(
      f'games ({held[1].shape[1]} held out) must show each situation, and one'
      ' is always or never there; choose more --games.'
    )
  rng = np.random.default_rng(0)
  num_games = held[0].shape[1]
  drawn = rng.choice(num_games, (50, num_games))
  return np.array(
    [
      probes.score(probe, *(_flat(array[:, games]) for array in held)).auc[0]
      for games in drawn
    ]
  )


def _agreement(
  states: types.NumpyArray, situations: types.NumpyArray
) -> types.Floats:
  """Returns how many neighbours are of the same situation, by held-out game.

  Neighbours are of other games and, as queries are, as many of each situation.

  Args:
    states: [T, G, S, D].
    situations: int [T, G, S].
  """
  flat = states.reshape(-1, states.shape[-1])
  planar = (states - flat.mean(axis=0)) @ probes.principal_axes(flat)
  rng = np.random.default_rng(0)
  (known, held), (labels, asked) = _split(planar), _split(situations)
  chosen = np.concatenate(
    [
      rng.choice(np.flatnonzero(labels == label), _NUM_STATES)
      for label in range(len(what_it_knows.SITUATIONS))
    ]
  )
  points, labels = known.reshape(-1, 2)[chosen], labels.reshape(-1)[chosen]
  shares = []
  for game in range(held.shape[1]):
    own, truth = held[:, game].reshape(-1, 2), asked[:, game].reshape(-1)
    distances = np.sum(np.square(own[:, None] - points), axis=-1)
    nearest = np.argpartition(distances, _NUM_NEIGHBOURS)[:, :_NUM_NEIGHBOURS]
    same = np.mean(labels[nearest] == truth[:, None], axis=1)
    shares.append(np.mean([same[truth == one].mean() for one in set(truth)]))
  return np.array(shares)


def _percentiles(values: types.Floats) -> tuple[float, float]:
  low, high = np.percentile(values, [2.5, 97.5])
  return float(low), float(high)


def _shares(facts: what_it_knows.Facts) -> types.Floats:
  """Returns the share of each behaviour in each game, [games, behaviours]."""
  games = range(facts.waits.shape[1])
  return np.array(
    [
      what_it_knows.behave(
        jax.tree.map(lambda leaf, game=game: leaf[:, game], facts)
      )
      for game in games
    ]
  )


# The page.


def _path(options: Options, name: str) -> pathlib.Path:
  """Returns the directory of a part."""
  return pathlib.Path(options.directory) / name


def train(options: Options, name: str) -> None:
  """Trains a part if it is not there."""
  directory = _path(options, name)
  done = _path(options, f'{name}-trained.json')
  if done.exists():
    return
  command = shlex.split(getattr(PARTS[name], options.budget))
  words = [word.format(directory) for word in command]
  if '--num_devices=1' in words and (directory / 'checkpoints').exists():
    words.append('--resume')
  print(f'{name}: {" ".join(words)}', flush=True)
  before = time.monotonic()
  subprocess.run([sys.executable, *words], check=True, cwd=ROOT)
  facts = {
    'seconds': round(time.monotonic() - before),
    'machine': common.machine(),
  }
  files.write_atomically(done, json.dumps(facts) + '\n')


def compute(options: Options, name: str, commit: str, part: str) -> Found:
  """Returns what was found of a claim, from the directory if it is there.

  Args:
    options: flags.
    name: the claim.
    commit: the commit of this clone.
    part: the run that it needs, or a population of the library, if any.
  """
  path = _path(options, f'{name}{f"-{part}" if part in _COLUMNS else ""}.json')
  if path.exists():
    row = json.loads(path.read_text('utf-8'))
    if row['verdict'] != UNTRIED:
      return Found(row['text'], row['verdict'])
  if part in PARTS:
    if not getattr(PARTS[part], options.budget):
      return Found('needs `--budget=gpu`', UNTRIED)
    train(options, part)
  if part in _COLUMNS:
    run = str(_path(options, part)) if part in PARTS else part
    options = dataclasses.replace(options, run=run)
  found = CLAIMS[name].find(options)
  row = {**found._asdict(), 'commit': commit}
  files.write_atomically(path, json.dumps(row, indent=1) + '\n')
  return found


def write_page(
  options: Options, rows: Mapping[str, Sequence[Found]], commit: str
) -> pathlib.Path:
  """Writes the page of what was found of each agent."""
  verdicts = [small.verdict for small, *_ in rows.values()]
  heads = ['the paper', 'a small agent', *_COLUMNS.values()]
  table = [f'| {" | ".join(heads)} |', f'|{" --- |" * len(heads)}']
  for name, (small, *others) in rows.items():
    of_others = dict(zip(CLAIMS[name].columns, others, strict=True))
    cells = [small, *map(of_others.get, _COLUMNS)]
    texts = [
      '' if one is None else f'**{one.verdict}**: {one.text}' for one in cells
    ]
    table.append(f'| {" | ".join([CLAIMS[name].text, *texts])} |')
  path = pathlib.Path(options.page)
  figures = path.with_name('figures')
  figures.mkdir(exist_ok=True)
  for name in (_VISITS, *_FILMS):
    picture = pathlib.Path(options.directory) / name
    if picture.exists():
      shutil.copy(picture, figures)
  text = _PAGE.format(
    *map(verdicts.count, (HOLDS, FAILS, OPEN, UNTRIED)),
    options=options,
    mark=f'<!-- recorded {datetime.date.today().isoformat()} {commit} -->',
    table='\n'.join(table),
  )
  files.write_atomically(path, text)
  return path


_PAGE = f"""# The paper, claim by claim

![Maps of visited cells in five phases of training](figures/{_VISITS})

Jaderberg et al. (2019,
[arXiv:1807.01281](https://arxiv.org/abs/1807.01281)) trained agents for 450,000
games in three dimensions. This page tests their claims in this library's game
on a grid. For a small agent {{}} hold and {{}} do not; {{}} are undecided, {{}}
not tried.

{{mark}}

{{table}}

A score is 1 for a win and 0.5 for a draw; of several the lowest is shown. A
claim holds if the 95% interval, over {{options.games}} games or over seeds,
excludes the opposite. Members of `{{options.run}}` play, seed {{options.seed}},
and other runs where a row needs them. `uv run research/paper.py --budget=gpu`
trains those, computes the rows and writes this page. The last column has the
library's `first_person`, [one run](how_to/first_person.md#the-population) of
40M steps; the small agents beside it have 500M.

In the picture the own base is on the left. Below are the first {_FILM_STEPS}
steps of a game of two copies of a member, in blue, against two attackers:

| untrained | in mid-training | trained |
| --- | --- | --- |
| {' | '.join(f'![A game](figures/{name})' for name in _FILMS)} |
"""


def main(options: Options) -> None:
  """Computes the missing rows and writes the page."""
  unknown = set(options.rows) - set(CLAIMS)
  if unknown:
    raise ValueError(
      f'--rows ({sorted(unknown)}) must be among {sorted(CLAIMS)}; choose some.'
    )
  spec = load(options.run, options)[0].game_spec
  if spec.event_names != game_lib.EVENT_NAMES:
    raise ValueError(
      f'--run ({options.run}) must be a run of capture the flag; choose one of'
      ' experiments/capture_the_flag.py.'
    )
  commit, rows = common.commit(), {}
  pathlib.Path(options.directory).mkdir(parents=True, exist_ok=True)
  for name in options.rows or CLAIMS:
    parts = [CLAIMS[name].needs, *CLAIMS[name].columns]
    rows[name] = [compute(options, name, commit, part) for part in parts]
    for found in rows[name]:
      print(f'{CLAIMS[name].text}\n  {found.verdict}: {found.text}', flush=True)
  if not options.rows:
    print(f'Page: {write_page(options, rows, commit)}')


if __name__ == '__main__':
  launch.main(__file__)
