"""Holds a population against the figures of the For The Win paper.

    uv run research/paper.py
    uv run research/paper.py --phases=RUN --stranger=RUN --exploit=RUN
    uv run research/paper.py --rows=delays

Each row of `docs/paper.md`, which this program writes, is a claim of Jaderberg
et al. (2019, arXiv:1807.01281) on agents that were trained in their game, what
`--run` shows of it in ours, and whether it holds. A claim holds, or does not
hold, if the 95% interval of the number lies on one side of the stated one.
Intervals are bootstrapped over the games of one population.

Rows are kept in `--directory`; those that are there already are not computed
again. Some need another run: one with several checkpoints for the phases of
training, another population as strangers, responders of `ftwax exploit`, or
the comparison of cores of `benchmarks/memory.py`. Without it they are not
tried. `--people` are games that people played and saved in a browser, as files.
`--rows` prints some rows and writes no page.
"""

import dataclasses
import datetime
import functools
import json
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import probes
import what_it_knows

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag as game_lib
from ftwax.environments.capture_the_flag import browser
from ftwax.inference import exploiting, loaded_agent, loading
from ftwax.population import players
from ftwax.records import files, rebuilding
from ftwax.reporting import drawing, evaluation_curves, history, saved_games
from ftwax.runtime.device import matches

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / 'benchmarks'))

import common  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this benchmark."""

  run: str = flags.flag(
    'capture_the_flag', 'Directory of a run, or a population of ftwax.'
  )
  phases: str | None = flags.flag(
    None, 'A run with evaluations and four checkpoints or more.'
  )
  stranger: str | None = flags.flag(
    None, 'A run of the same experiment, whose members are strangers.'
  )
  exploit: str | None = flags.flag(
    None, 'A run of `ftwax exploit` against a member of --run.'
  )
  whole: str | None = flags.flag(
    None, 'A run of experiments/capture_the_flag.py --agent=paper.'
  )
  memory: str | None = flags.flag(
    None, 'Directory of `benchmarks/memory.py all`.'
  )
  people: str | None = flags.flag(None, 'Directory of saved games of people.')
  rows: tuple[str, ...] = flags.flag(
    (), "Rows to print, by the names in the page's commands; all by default."
  )
  members: int = flags.flag(2, 'Members of a run that play, the first.')
  games: int = flags.flag(100, 'Games of each number.')
  seed: int = flags.flag(2_000, 'Seed of maps and actions.')
  directory: str = flags.flag('runs/paper', 'Directory in which rows are kept.')
  page: str = flags.flag(str(ROOT / 'docs' / 'paper.md'), 'The page.')


HOLDS, FAILS = 'holds', 'does not hold'
OPEN, UNTRIED = 'undecided', 'not tried'

_Config = game_lib.CaptureTheFlagConfig

_SCRIPTS = ('random', 'wanderer', 'attacker', 'tactician')
_STRONGEST = _SCRIPTS[2:]
_DELAYS = (0, 1, 2, 3, 5, 7, 10)

# Tasks of `benchmarks/memory.py` that were chosen for the hierarchy.
_MEMORY_TASKS = ('copying', 'recall_by_key', 't_maze_100')

# The untrained agent, three checkpoints and the trained agent.
_NUM_STAGES = 5

# Files of the maps of where members were, and of films of three phases.
_VISITS = 'visits.png'
_FILMS = ('phase_first.gif', 'phase_middle.gif', 'phase_last.gif')
_FILM_STEPS = 80

# Steps of the paper's game in 375 ms.
_LATE = 5

# States of each situation on a map of states, and neighbours of a state.
_NUM_STATES, _NUM_NEIGHBOURS = 300, 10

# A difference of scores up to which teams count as equally strong.
_SLACK = 0.05


class Row(NamedTuple):
  """A claim and what was found.

  Attributes:
    claim: what the paper says.
    ours: what was measured here, with intervals.
    verdict: whether it holds.
  """

  claim: str
  ours: str
  verdict: str


def untried(claim: str, reason: str) -> Row:
  """Returns the row of a claim that was not tried."""
  return Row(claim, reason, UNTRIED)


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
      lambda spec: jnp.zeros((longest + 1, batch_size), spec.dtype), action_spec
    )
    return actor.init(key, batch_size), nothing

  def select_action(variables: Any, timestep: Any, state: Any) -> Any:
    (variables, steps), (inner, chosen) = variables, state
    action, inner = actor.select_action(variables, timestep, inner)
    # [longest + 1, B], the newest last.
    chosen = jax.tree.map(
      lambda before, new: jnp.concatenate([before[1:], new[None]]),
      chosen,
      action,
    )
    taken = jax.tree.map(lambda leaf: leaf[longest - steps], chosen)
    return taken, (inner, chosen)

  return actor._replace(init=init, select_action=select_action)


# Rows.


def strength(options: Options) -> Row:
  """Scores against all scripts."""
  (scores,) = against_scripts(options, config_of(options), _SCRIPTS)
  verdicts = [judge(common.interval(one), 0.5) for one in scores]
  return Row(
    'Agents beat all scripted players',
    _by_name(_SCRIPTS, scores),
    _all_of(verdicts),
  )


def progress(options: Options) -> Row:
  """When members win more than half of their games against each script."""
  claim = 'Weak scripts are beaten before strong ones'
  curve = options.phases and evaluation_curves.read(options.phases)
  if not curve:
    return untried(claim, 'needs `--phases`, a run with evaluations')
  passed = {
    name: curve.steps[scores > 0.5]
    for name, scores in zip(curve.opponents, curve.scores.T, strict=True)
  }
  first = [
    float(steps[0]) if len(steps) else np.inf for steps in passed.values()
  ]
  steps = ', '.join(
    f'{name} {step / 1e6:.1f}M' if np.isfinite(step) else f'{name} never'
    for name, step in zip(passed, first, strict=True)
  )
  holds = first == sorted(first) and np.isfinite(first[0])
  return Row(claim, f'steps until: {steps}', HOLDS if holds else FAILS)


def learning_rate(options: Options) -> Row:
  """The learning rates that evolution leaves."""
  first, last = _traits(options.run)
  before, after = first['learning_rate'], last['learning_rate']
  return Row(
    'Evolution lowers the learning rate',
    f'from {_list(before, 1e-3)} to {_list(after, 1e-3)} thousandths',
    judge(
      (np.mean(before) - np.max(after), np.mean(before) - np.min(after)), 0
    ),
  )


def internal_rewards(options: Options) -> Row:
  """The signs of internal rewards that evolution leaves."""
  claim = 'Evolution finds the signs of the rewards'
  # Of events whose weights may begin with either sign.
  signs = {
    'i_picked_up_the_flag': 1,
    'i_returned_the_flag': 1,
    'i_tagged_opponent_with_flag': 1,
    'i_tagged_opponent_without_flag': 1,
    'i_was_tagged_with_flag': -1,
    'i_was_tagged_without_flag': -1,
  }
  directory = loading.find(options.run)
  (agent,) = rebuilding.read_parts(
    directory, {'agent': actor_critic_config.ActorCriticConfig}
  )
  priors = dict(
    zip(game_lib.EVENT_NAMES, agent.internal_rewards_prior, strict=True)
  )
  if not all(priors[name].low < 0.0 < priors[name].high for name in signs):
    return untried(
      claim,
      'the priors give them; see'
      ' [wide priors](results.md#what-members-come-to-value)',
    )
  _, last = _traits(options.run)
  weights = dict(zip(game_lib.EVENT_NAMES, last['weights'].T, strict=True))
  verdicts = [
    judge((np.min(sign * weights[name]), np.max(sign * weights[name])), 0)
    for name, sign in signs.items()
  ]
  means = '; '.join(
    f'{name.replace("_", " ")} {np.mean(weights[name]):+.2f}' for name in signs
  )
  return Row(claim, f'means of the members: {means}', _all_of(verdicts))


def knowledge(options: Options) -> Row:
  """Whether a probe finds more in a trained than in an untrained state."""
  record = _record(options)
  facts = record.facts
  stray = facts.flag_is_away & (facts.carries | facts.teammate_carries)
  trained, untrained = (
    _resampled(states, _probe(states, stray), stray)
    for states in (record.states, record.untrained)
  )
  gain = trained - untrained
  is_shown = config_of(options).observation == 'features'
  seen = 'observations show it' if is_shown else 'no observation shows it'
  return Row(
    'A linear probe finds whether both flags are away (area under the curve'
    ' 0.91, and 0.70 in self-play)',
    f'trained {_span(trained)}, untrained {_span(untrained)}; {seen}',
    judge(_percentiles(gain), 0),
  )


def units(options: Options) -> Row:
  """Whether single units encode situations, more so if trained."""
  record = _record(options)
  answers = {
    'our flag is away': record.facts.flag_is_away,
    'a team mate carries': record.facts.teammate_carries,
    'I wait': record.facts.waits,
  }
  areas, gains = [], []
  for name, answer in answers.items():
    trained, untrained = (
      _resampled(states, _best_unit(states, answer), answer)
      for states in (record.states, record.untrained)
    )
    gains.append(trained - untrained)
    areas.append(f'{name} {_span(trained)}, untrained {_span(untrained)}')
  return Row(
    'Single units encode situations, better after training',
    '; '.join(areas),
    judge(_percentiles(np.mean(gains, axis=0)), 0),
  )


def clusters(options: Options) -> Row:
  """Whether neighbours on a map of states are of one situation."""
  record = _record(options)
  situations = what_it_knows.situations(record.facts)
  trained, untrained = (
    _agreement(states, situations)
    for states in (record.states, record.untrained)
  )
  chance = 1 / len(what_it_knows.SITUATIONS)
  return Row(
    'States form clusters by situation',
    'share of the ten nearest states on a map of two components: trained'
    f' {common.summarize(trained)}, untrained {common.summarize(untrained)},'
    f' chance {chance:.2f}',
    _all_of(
      [
        judge(common.interval(trained), chance),
        judge(common.interval(trained - untrained), 0),
      ]
    ),
  )


def whole(options: Options) -> list[Row]:
  """Some of the claims for the agent with all parts, on pictures."""
  functions = strength, maps, knowledge, units, clusters
  if options.whole is None:
    return [untried('The whole agent, from pixels', 'needs `--whole`')]
  options = dataclasses.replace(options, run=options.whole)
  rows = [function(options) for function in functions]
  return [row._replace(claim=f'From pixels: {row.claim}') for row in rows]


def phases(options: Options) -> list[Row]:
  """How behaviours change over the checkpoints of a run."""
  claims = (
    ('Home defence comes, goes and returns', 0, -1),
    ("Camping in the opponents' base comes, goes and returns", 1, -1),
    ('Following a team mate peaks in mid-training', 2, 1),
  )
  if options.phases is None:
    return [
      untried(claim, 'needs `--phases`, a run with four checkpoints or more')
      for claim, *_ in claims
    ]
  options = dataclasses.replace(options, run=options.phases)
  settings, config = _settings(options), config_of(options)
  stages = what_it_knows.load_stages(settings)
  if len(stages) < _NUM_STAGES:
    raise ValueError(
      f'--phases ({options.phases}) must keep {_NUM_STAGES - 1} checkpoints or'
      ' more; choose a run with --set checkpointing.max_to_keep=9.'
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
  directory.mkdir(parents=True, exist_ok=True)
  (directory / _VISITS).write_bytes(
    drawing.to_png(what_it_knows.plot_visits(visits))
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
  shares = {name: _shares(each) for name, each in facts.items()}
  return [
    _phase_row(
      claim, {name: share[:, index] for name, share in shares.items()}, sign
    )
    for claim, index, sign in claims
  ]


def mates(options: Options) -> Row:
  """Members beside strangers."""
  claim = 'Agents play as well beside strangers'
  if options.stranger is None:
    return untried(claim, 'needs `--stranger`')
  agents, config = load(options.run, options), config_of(options)
  (stranger, *_) = load(options.stranger, options)
  others = {
    'own': agents[-1].player,
    'stranger': stranger.player,
    'tactician': scripts(config)['tactician'],
  }
  own, other = play(
    options,
    config,
    agents[0].actor,
    [agents[0].variables],
    others,
    [((0, 1), (3, 3)), ((0, 2), (3, 3))],
  )
  return Row(
    claim,
    f'tactician: beside its own {common.summarize(own)}, beside a stranger'
    f' {common.summarize(other)}',
    judge(common.interval(other - np.mean(own)), -_SLACK),
  )


def opponents(options: Options) -> Row:
  """Members against strangers."""
  claim = 'Agents beat teams of strangers'
  if options.stranger is None:
    return untried(claim, 'needs `--stranger`')
  agents = load(options.run, options)
  strangers = load(options.stranger, options)
  scores = play(
    options,
    config_of(options),
    agents[0].actor,
    [agents[0].variables],
    {str(i): agent.player for i, agent in enumerate(strangers)},
    [((0, 0), (1 + i, 1 + i)) for i in range(len(strangers))],
  ).ravel()
  return Row(
    claim, common.summarize(scores), judge(common.interval(scores), 0.5)
  )


def maps(options: Options) -> Row:
  """Maps of sizes that no member has seen."""
  configs = {
    f'{height}x{width}': {'height': height, 'width': width}
    for height, width in ((13, 17), (17, 23))
  }
  return _elsewhere(options, 'Agents win on maps of other sizes', configs)


def team_sizes(options: Options) -> Row:
  """Teams of sizes that no member has played in."""
  configs = {f'{size} a side': {'team_size': size} for size in (1, 3, 4)}
  return _elsewhere(options, 'Agents win in teams of other sizes', configs)


def delays(options: Options) -> Row:
  """Scores with actions that take effect later."""
  scores = against_scripts(options, config_of(options), _STRONGEST, _DELAYS)
  scores = scores.reshape(len(_DELAYS), -1)
  late = scores[_DELAYS.index(_LATE)]
  by_delay = [
    f'{steps}: {common.summarize(one)}'
    for steps, one in zip(_DELAYS, scores, strict=True)
  ]
  return Row(
    f'Actions may be {_LATE} steps late',
    f'by steps: {", ".join(by_delay)}; a step is a whole cell',
    judge(common.interval(late - np.mean(scores[0])), -_SLACK),
  )


def exploiter(options: Options) -> Row:
  """The bound of a best responder."""
  claim = 'People who practise for 12 hours win 25% of games'
  if options.exploit is None:
    return untried(claim, 'needs `--exploit`, a run of `ftwax exploit`')
  path = pathlib.Path(options.exploit) / exploiting.FILE
  (*_, last) = json.loads(path.read_text('utf-8'))['bounds']
  # A payoff is 1 for a win and -1 for a loss.
  share, low, high = (
    0.5 * (1.0 + last[name]) for name in ('payoff', 'low', 'high')
  )
  return Row(
    claim,
    f'a best response of {last["steps"] / 1e6:.1f}M steps scores {share:.2f}'
    f' ({low:.2f} to {high:.2f})',
    # Holds if the member is no easier to beat.
    judge((0.25 - high, 0.25 - low), 0),
  )


def hierarchy(options: Options) -> Row:
  """The hierarchy against an LSTM, on tasks that were chosen for it."""
  claim = 'The temporal hierarchy and the DNC make agents stronger'
  if options.memory is None:
    return untried(claim, 'needs `--memory`, runs of benchmarks/memory.py')
  found, verdicts = [], []
  for core in ('rpth', 'rpth_dnc'):
    # The means of the last tenth of training, [tasks, seeds].
    gains = np.array(
      [
        _returns(options.memory, task, core)
        - _returns(options.memory, task, 'lstm')
        for task in _MEMORY_TASKS
      ]
    )
    found.append(f'{core} {common.summarize(gains.ravel())}')
    verdicts.append(judge(common.interval(gains.ravel()), 0))
  return Row(
    claim,
    f'returns beyond an LSTM on three tasks of memory: {", ".join(found)}'
    ' ([which core](which_core.md#the-hierarchy-and-the-dnc))',
    _all_of(verdicts),
  )


def people(options: Options) -> list[Row]:
  """Games of people at the members' pace, as the pages save them."""
  claim = 'Agents beat strong human players'
  rows = [
    untried(claim, 'needs `--people`, saved games of people'),
    untried(
      'People find agents more collaborative',
      'saved games hold no judgement of teammates',
    ),
  ]
  scores = _against_people(options.people) if options.people else []
  if scores:
    found = f'{common.summarize(scores)} in {len(scores)} games'
    rows[0] = Row(claim, found, judge(common.interval(scores), 0.5))
  return rows


ROWS: Mapping[str, Callable[[Options], Row | list[Row]]] = {
  function.__name__: function
  for function in (
    strength, progress, learning_rate, internal_rewards, knowledge, units,
    clusters, phases, mates, opponents, maps, team_sizes, delays, exploiter,
    hierarchy, whole, people,
  )
}  # fmt: skip

# Parts of rows.


def _elsewhere(
  options: Options, claim: str, changes: Mapping[str, Mapping[str, int]]
) -> Row:
  """Returns the row of games of other sizes, by name."""
  config = config_of(options)
  scores = {
    name: against_scripts(
      options, dataclasses.replace(config, **change), _STRONGEST
    )[0]
    for name, change in changes.items()
  }
  found = [
    f'{name}: {_by_name(_STRONGEST, one)}' for name, one in scores.items()
  ]
  verdicts = [
    judge(common.interval(one), 0.5) for pair in scores.values() for one in pair
  ]
  return Row(claim, '; '.join(found), _all_of(verdicts))


def _against_people(directory: str) -> list[float]:
  """Returns scores of members in games of which one team has people."""
  scores = []
  for _, game in saved_games.SavedGames(pathlib.Path(directory)).readable():
    sides = {s['team'] for s in game['seats'] if s['kind'] == 'person'}
    # Below the hardest level of the site's page, members rest.
    if len(sides) == 1 and game.get('level', 'hard') == 'hard':
      scores.append(0.5 - game['outcome'][sides.pop()] / 2)
  return scores


def _by_name(names: Sequence[str], scores: types.Floats) -> str:
  return ', '.join(
    f'{name} {common.summarize(one)}'
    for name, one in zip(names, scores, strict=True)
  )


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


def _list(values: types.Floats, unit: float) -> str:
  return ', '.join(f'{value / unit:.2g}' for value in values)


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


def _span(values: types.Floats) -> str:
  low, high = _percentiles(values)
  return f'{np.mean(values):.2f} ({low:.2f} to {high:.2f})'


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


def _phase_row(
  claim: str, stages: Mapping[str, types.Floats], sign: int
) -> Row:
  """Returns whether a behaviour has its extreme in mid-training.

  Args:
    claim: the claim.
    stages: shares in games, [games] by stage, in the order of training.
    sign: 1 for a maximum, -1 for a minimum.
  """
  shares = ', '.join(f'{np.mean(one):.2f}' for one in stages.values())
  first, *middle, last = stages.values()
  extreme = max(middle, key=lambda one: sign * np.mean(one))
  verdict = _all_of(
    [
      judge(common.interval(sign * (extreme - np.mean(end))), 0)
      for end in (first, last)
    ]
  )
  return Row(claim, f'share of steps, untrained to trained: {shares}', verdict)


# The page.


def compute(options: Options, name: str, commit: str) -> list[dict[str, Any]]:
  """Returns the rows of a function, from the directory if they are there."""
  path = pathlib.Path(options.directory) / f'{name}.json'
  if path.exists():
    kept: list[dict[str, Any]] = json.loads(path.read_text('utf-8'))
    if all(row['verdict'] != UNTRIED for row in kept):
      return kept
  before = time.process_time()
  rows = ROWS[name](options)
  rows = rows if isinstance(rows, list) else [rows]
  about = {
    'seconds': round(time.process_time() - before),
    'commit': commit,
  }
  made = [{**row._asdict(), **about} for row in rows]
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_atomically(path, json.dumps(made, indent=1) + '\n')
  return made


def write_page(
  options: Options, rows: Sequence[Mapping[str, Any]], commit: str
) -> pathlib.Path:
  """Writes the page."""
  counts = [
    sum(row['verdict'] == verdict for row in rows)
    for verdict in (HOLDS, FAILS, OPEN, UNTRIED)
  ]
  table = [
    '| the paper | here | |',
    '| --- | --- | --- |',
    *(f'| {row["claim"]} | {row["ours"]} | {row["verdict"]} |' for row in rows),
  ]
  date = datetime.date.today().isoformat()
  path = pathlib.Path(options.page)
  directory = pathlib.Path(options.directory)
  pictures = [directory / name for name in (_VISITS, *_FILMS)]
  are_drawn = all(picture.exists() for picture in pictures)
  if are_drawn:
    figures = path.with_name('figures')
    figures.mkdir(exist_ok=True)
    for picture in pictures:
      shutil.copy(picture, figures)
  text = _PAGE.format(
    *counts,
    pictures=_PICTURES if are_drawn else '',
    options=options,
    commands='\n'.join(_commands(options)),
    mark=f'<!-- recorded {date} {commit} -->',
    table='\n'.join(table),
  )
  files.write_atomically(path, text)
  return path


_PICTURES = f"""
One map of all games for each phase of training; the own base is on the left:

![Maps of visited cells in five phases of training](figures/{_VISITS})

The first {_FILM_STEPS} steps of a game of two copies of a member, in blue,
against two attackers:

| untrained | in mid-training | trained |
| --- | --- | --- |
| {' | '.join(f'![A game](figures/{name})' for name in _FILMS)} |
"""

_PAGE = """# The paper, claim by claim

Jaderberg et al. (2019,
[arXiv:1807.01281](https://arxiv.org/abs/1807.01281)) trained agents for 450,000
games in three dimensions. This page tests their claims on a small population in
this library's game: {} hold, {} do not, {} are undecided and {} were not tried.
A claim holds if the 95% interval excludes the opposite. Intervals are
bootstrapped over {options.games} games of each number, of one population.

`uv run research/paper.py` computes the rows and writes this page. The first
{options.members} members of `{options.run}` play, seed {options.seed}. Other
rows need runs made by these commands:

{commands}

{mark}

{table}

A score is 1 for a win and 0.5 for a draw.
{pictures}"""


def _commands(options: Options) -> Iterator[str]:
  """Yields the commands of the other runs, indented, without their paths."""
  runs = options.phases, options.stranger, options.exploit, options.whole
  for run in dict.fromkeys(runs):
    if run is not None:
      line, *_ = (pathlib.Path(run) / 'command.txt').read_text().splitlines()
      _, _, *command = line.split()
      kept = [word for word in command if not word.startswith('--run_dir')]
      yield f'    uv run {" ".join(kept)}'
  if options.memory is not None:
    yield '    uv run benchmarks/memory.py all'


def main(options: Options) -> None:
  """Computes the missing rows and writes the page."""
  unknown = set(options.rows) - set(ROWS)
  if unknown:
    raise ValueError(
      f'--rows ({sorted(unknown)}) must be among {sorted(ROWS)}; choose some.'
    )
  spec = load(options.run, options)[0].game_spec
  if spec.event_names != game_lib.EVENT_NAMES:
    raise ValueError(
      f'--run ({options.run}) must be a run of capture the flag; choose one of'
      ' experiments/capture_the_flag.py.'
    )
  commit, rows = common.commit(), []
  for name in options.rows or ROWS:
    made = compute(options, name, commit)
    for row in made:
      print(f'{row["claim"]}\n  {row["ours"]}\n  {row["verdict"]}', flush=True)
    rows += [{**row, 'name': name} for row in made]
  if not options.rows:
    print(f'Page: {write_page(options, rows, commit)}')


if __name__ == '__main__':
  launch.main(__file__)
