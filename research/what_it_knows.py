"""Analyzes a trained agent: linear probes of its state, and its behavior.

Run `uv run research/what_it_knows.py RUN_DIR` on a run of
`capture_the_flag.py`, or pass `capture_the_flag` for the population included in
the library. Two copies of a member play against two scripted opponents. In each
step, questions about the game are answered from the game's state, and probes
learn to answer them from the agent's recurrent state alone. Probes are scored
on held-out games and compared with probes of an untrained agent that observes
the same games. After Jaderberg et al., 2019 (arXiv:1807.01281), figures 3 and
4.
"""

import base64
import dataclasses
import functools
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import probes

from ftwax import types
from ftwax.cli import flags, launch
from ftwax.environments import capture_the_flag, functional
from ftwax.environments.capture_the_flag import browser, rules
from ftwax.inference import loaded_agent, loading
from ftwax.population import players
from ftwax.records import checkpoints, files
from ftwax.reporting import drawing, page


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this analysis."""

  run: str = flags.argument('Directory of a run, or a population of ftwax.')
  member: int = flags.flag(0, 'Member to analyze.')
  opponent: str = flags.flag('attacker', 'Opposing script.')
  num_games: int = flags.flag(48, 'Number of games; a third is held out.')
  height: int = flags.flag(11, 'Rows of the map.')
  width: int = flags.flag(15, 'Columns of the map.')
  seed: int = flags.flag(0, 'Random seed of the games.')
  directory: str | None = flags.flag(
    None, 'Output; by default in the run, or runs/what_it_knows.'
  )


# Number of steps that questions about the future look ahead.
_AHEAD = 10

# Distance, in cells, within which a player is near a stand or a teammate.
_NEAR = 3

QUESTIONS = (
  'Do I carry the flag?',
  'Is our flag away from its stand?',
  'Is our flag lying on the ground?',
  'Does a team mate carry the flag?',
  'Is our base empty?',
  f'Will I be near our base in {_AHEAD} steps?',
  f"Will I be near the opponents' base in {_AHEAD} steps?",
  f'Will I carry the flag in {_AHEAD} steps?',
)
SITUATIONS = (
  'none of these',
  'our flag is away',
  'team mate carries',
  'I carry',
)
BEHAVIOURS = ('at our base', "at the opponents' base", 'beside a team mate')


class Facts(NamedTuple):
  """Facts about each seat at one step, bool [S] if not said otherwise.

  Attributes:
    cell: int32 [S], where the player is, row by row.
    carries: whether the player carries the opponents' flag.
    flag_is_away: whether its team's flag is away from its stand.
    flag_is_stray: whether its team's flag is away and not carried.
    teammate_carries: whether a teammate carries the opponents' flag.
    base_is_empty: whether no player of its team is near the team's stand.
    waits: whether the player waits after a tag.
    at_own_base: whether it is near its team's stand.
    at_other_base: whether it is near the opponents' stand.
    beside_teammate: whether it is near a teammate.
  """

  cell: types.Array
  carries: types.Array
  flag_is_away: types.Array
  flag_is_stray: types.Array
  teammate_carries: types.Array
  base_is_empty: types.Array
  waits: types.Array
  at_own_base: types.Array
  at_other_base: types.Array
  beside_teammate: types.Array


class Record(NamedTuple):
  """Games that were played, on S seats.

  Attributes:
    facts: leaves [T, G, S].
    states: float32 [T, G, S, D], recurrent states of the agent.
    untrained: likewise, of an untrained agent in its place.
  """

  facts: Facts
  states: types.NumpyArray
  untrained: types.NumpyArray


def read_facts(
  state: rules.State, config: capture_the_flag.CaptureTheFlagConfig
) -> Facts:
  """Returns the facts about the players of team 0, leaves [S]."""
  num_seats = config.team_size
  carries = rules.carries_flag(state, config)[:num_seats]
  near = functools.partial(_is_near, width=config.width)
  own, other = state.map.stands[0], state.map.stands[1]
  is_active = state.waiting[:num_seats] == 0
  cells = state.cell[:num_seats]
  others = ~np.eye(num_seats, dtype=bool)
  is_beside = near(cells[:, None], cells[None]) & others
  at_own_base = near(cells, own) & is_active
  is_stray = (state.carrier[0] == rules.NOBODY) & ~rules.is_home(state)[0]
  spread = functools.partial(jnp.broadcast_to, shape=(num_seats,))
  return Facts(
    cell=cells,
    carries=carries,
    flag_is_away=spread(~rules.is_home(state)[0]),
    flag_is_stray=spread(is_stray),
    teammate_carries=jnp.any(carries[None] & others, axis=1),
    base_is_empty=spread(~jnp.any(at_own_base)),
    waits=~is_active,
    at_own_base=at_own_base,
    at_other_base=near(cells, other) & is_active,
    beside_teammate=jnp.any(is_beside & is_active[None], axis=1) & is_active,
  )


def _is_near(a: types.Array, b: types.Array, width: int) -> types.Array:
  rows = jnp.abs(a // width - b // width)
  return rows + jnp.abs(a % width - b % width) <= _NEAR


def play(
  agent: loaded_agent.LoadedAgent,
  untrained: types.ActorVariables,
  game: functional.FunctionalGame,
  config: capture_the_flag.CaptureTheFlagConfig,
  options: Options,
) -> Record:
  """Plays the games; an untrained agent observes the same steps."""
  num_seats, num_games = config.team_size, options.num_games
  script = players.scripted(game.scripts[options.opponent])
  actor = agent.actor
  opponents = np.arange(num_seats, config.num_players, dtype=np.int32)

  def merge(leaf: types.Array) -> types.Array:
    return leaf.reshape(-1, *leaf.shape[2:])

  def step(carry: Any, _: None) -> tuple[Any, Any]:
    state, timestep, own, naive, script_state = carry
    rows = jax.tree.map(lambda leaf: merge(leaf[:, :num_seats]), timestep)
    action, own = actor.select_action(agent.variables, rows, own)
    _, naive = actor.select_action(untrained, rows, naive)
    # Replace its own action by the action taken, as its next input.
    naive = actor.replace_action(naive, action)
    states = jax.tree.map(
      lambda leaf: jnp.repeat(leaf, num_seats, axis=0), state
    )
    answer, script_state = script.act(
      states, jnp.tile(opponents, num_games), None, script_state
    )
    joined = jax.tree.map(
      lambda ours, theirs: jnp.concatenate(
        [ours.reshape(num_games, -1), theirs.reshape(num_games, -1)], axis=1
      ),
      action,
      answer,
    )
    facts = jax.vmap(functools.partial(read_facts, config=config))(state)
    out = facts, _flatten(own), _flatten(naive)
    stepped = jax.vmap(game.step)(state, joined)
    return (*stepped, own, naive, script_state), out

  @jax.jit
  def run(key: types.Key) -> Any:
    keys = jax.random.split(key, 4)
    started = jax.vmap(game.reset)(jax.random.split(keys[0], num_games))
    num_rows = num_games * num_seats
    carry = (
      *started,
      actor.init(keys[1], num_rows),
      actor.init(keys[2], num_rows),
      script.init(keys[3], num_rows),
    )
    return jax.lax.scan(step, carry, length=config.num_steps)[1]

  facts, states, naive = jax.device_get(run(jax.random.PRNGKey(options.seed)))
  shape = config.num_steps, num_games, num_seats, -1
  return Record(Facts(*facts), states.reshape(shape), naive.reshape(shape))


def _flatten(state: types.ActorState) -> types.Array:
  """Flattens a recurrent state to [B, D], leaving out memory matrices.

  Values are squashed by tanh, as an LSTM squashes its cell: some cells count
  steps and would otherwise dominate the first principal component.
  """
  leaves = [
    leaf
    for leaf in jax.tree.leaves(state.recurrent_state)
    if leaf.ndim == 2 and jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  return jnp.tanh(jnp.concatenate(leaves, axis=1))


def answer(facts: Facts) -> types.NumpyArray:
  """Returns the answers to all questions, bool [T - _AHEAD, G, S, Q]."""
  now = jax.tree.map(lambda leaf: leaf[:-_AHEAD], facts)
  later = jax.tree.map(lambda leaf: leaf[_AHEAD:], facts)
  return np.stack(
    [
      now.carries,
      now.flag_is_away,
      now.flag_is_stray,
      now.teammate_carries,
      now.base_is_empty,
      later.at_own_base,
      later.at_other_base,
      later.carries,
    ],
    axis=-1,
  )


def probe(states: types.NumpyArray, answers: types.NumpyArray) -> probes.Scores:
  """Fits probes to two thirds of the games and scores them on the rest."""
  num_fitted = 2 * states.shape[1] // 3

  def rows(array: types.NumpyArray, games: slice) -> types.NumpyArray:
    chosen = array[: len(answers), games]
    return chosen.reshape(-1, chosen.shape[-1])

  first, last = slice(num_fitted), slice(num_fitted, None)
  made = probes.fit(rows(states, first), rows(answers, first))
  return probes.score(made, rows(states, last), rows(answers, last))


def behave(facts: Facts) -> list[float]:
  """Returns the fraction of steps in play for each behavior."""
  in_play = max(float((~facts.waits).mean()), 1e-9)
  shares = facts.at_own_base, facts.at_other_base, facts.beside_teammate
  return [float(share.mean()) / in_play for share in shares]


def count_visits(facts: Facts, height: int, width: int) -> types.Floats:
  """Returns the share of the steps in play in each cell, [height, width]."""
  cells = facts.cell[~facts.waits]
  counts = np.bincount(cells, minlength=height * width)
  return counts.reshape(height, width) / max(1, len(cells))


def plot_visits(visits: Mapping[str, types.Floats]) -> matplotlib.figure.Figure:
  """Plots where players were, one map of all games for each stage.

  Args:
    visits: by stage, from `count_visits`.
  """
  figure = drawing.make_figure(2.4 * len(visits), 2.1)
  highest = np.max([np.sqrt(shares) for shares in visits.values()])
  for index, (name, shares) in enumerate(visits.items(), start=1):
    axes: Any = figure.add_subplot(1, len(visits), index)
    # Roots, since most of the time is spent in a few cells.
    axes.imshow(np.sqrt(shares), vmin=0.0, vmax=highest, cmap='Blues')
    axes.set_title(name, fontsize=8)
    axes.set_axis_off()
  return figure


def situations(facts: Facts) -> types.NumpyArray:
  """Returns indices into `SITUATIONS`, int, of the shape of the facts."""
  return np.select(
    [facts.carries, facts.teammate_carries, facts.flag_is_away], [3, 2, 1], 0
  )


def plot_episode(record: Record) -> matplotlib.figure.Figure:
  """Plots two dimensions of the state over the game with the most captures."""
  states = record.states[:, :, 0]  # [T, G, D]
  flat = states.reshape(-1, states.shape[-1])
  projected = (states - flat.mean(axis=0)) @ probes.principal_axes(flat)
  carries = record.facts.carries[:, :, 0]
  game = int(np.diff(carries.astype(int), axis=0).clip(0).sum(axis=0).argmax())
  facts = jax.tree.map(lambda leaf: leaf[:, game, 0], record.facts)
  situation = situations(facts)
  figure = drawing.make_figure(7.0, 5.0)
  axes: Any = figure.subplots()
  axes.plot(*projected[:, game].T, color=drawing.FAINT, linewidth=0.5)
  for index, name in enumerate(SITUATIONS):
    chosen = projected[situation == index, game]
    axes.plot(*chosen.T, 'o', markersize=4, label=name, alpha=0.8)
  drawing.style(axes)
  axes.set_xlabel('first principal component', fontsize=9)
  axes.set_ylabel('second principal component', fontsize=9)
  axes.legend(fontsize=8, frameon=False)
  return figure


def _section(
  title: str, caption: str, figure: matplotlib.figure.Figure, alt: str
) -> list[str]:
  """Returns the parts of a section with a figure."""
  data = base64.b64encode(drawing.to_png(figure)).decode('ascii')
  image = f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
  return [page.heading(title), page.paragraph(caption), image]


def _describe_behaviour(
  behaviours: Sequence[Sequence[str]], visits: Mapping[str, types.Floats]
) -> list[str]:
  return [
    page.heading('Behaviour'),
    page.paragraph(
      f'Share of the steps in play that are within {_NEAR} cells of a stand or'
      ' of a team mate. The first row is an agent that has not learned.'
    ),
    page.columns(['', *BEHAVIOURS], behaviours),
    *_section(
      'Where it goes',
      'Cells of the map by how often its players were there, over all games.'
      ' Maps have other walls in each game; its own base is on the left.',
      plot_visits(visits),
      'Maps of the cells that players visit.',
    ),
  ]


def write_page(
  path: pathlib.Path,
  options: Options,
  record: Record,
  behaviours: Sequence[Sequence[str]],
  visits: Mapping[str, types.Floats],
) -> list[list[str]]:
  """Writes the page and returns the rows of its table of probes."""
  answers = answer(record.facts)
  trained = probe(record.states, answers)
  untrained = probe(record.untrained, answers)
  columns = (
    trained.majority,
    trained.accuracy,
    untrained.accuracy,
    trained.auc,
    untrained.auc,
  )
  rows = [
    [question, *(f'{column[index]:.3f}' for column in columns)]
    for index, question in enumerate(QUESTIONS)
  ]
  best = int(np.nanargmax(trained.auc - untrained.auc))
  body = [
    page.table(
      {
        'agent': f'{options.run}, member {options.member}',
        'opponents': options.opponent,
        'maps': f'{options.height}x{options.width}',
        'games': f'{options.num_games}, a third held out; seed {options.seed}',
        'numbers of the state': str(record.states.shape[-1]),
      }
    ),
    *_section(
      'What its state encodes',
      'Logistic regressions from the recurrent state alone, tested on held-out'
      ' games. The untrained agent went through the same games: whatever its'
      ' state encodes, any recurrent network would. Players see most of the'
      ' answers at each step.',
      probes.plot_scores(QUESTIONS, trained, untrained),
      'Bar chart of the areas under the curve. The trained agent leads most in'
      f' "{QUESTIONS[best]}": {trained.auc[best]:.2f} to'
      f' {untrained.auc[best]:.2f}.',
    ),
    page.columns(
      [
        'question', 'most frequent answer', 'accuracy', 'untrained',
        'area under the curve', 'untrained',
      ],
      rows,
    ),
    *_section(
      'Its state during a game',
      'Two principal components of the state of one player, one dot per step of'
      ' a game, colored by what happens.',
      plot_episode(record),
      'Scatter plot of the states of a game, colored by situation.',
    ),
    *_describe_behaviour(behaviours, visits),
  ]  # fmt: skip
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_atomically(path, page.render('What it knows', body))
  return rows


def load_stages(options: Options) -> dict[str, loaded_agent.LoadedAgent]:
  """Returns the untrained agent and the agents of all checkpoints, by name."""
  source = options.run
  load = functools.partial(loading.load, source, options.member, greedy=False)
  newest = load()
  untrained = loaded_agent.LoadedAgent(
    newest.actor,
    loading.initial_variables(source, options.seed),
    newest.game_spec,
  )
  stages = {'untrained': untrained}
  directory = pathlib.Path(source) / 'checkpoints'
  if directory.is_dir():
    with checkpoints.Checkpointer(directory) as checkpointer:
      steps = checkpointer.steps()
    stages |= {f'{step:,} steps': load(step=step) for step in steps[:-1]}
  return {**stages, 'trained': newest}


def main(options: Options) -> None:
  """Plays, fits probes and writes the page."""
  source = options.run
  stages = load_stages(options)
  trained = stages['trained']
  # Features or pictures, as the agent sees the game.
  config = dataclasses.replace(
    browser.read_config(trained.game_spec.environment, team_size=2),
    height=options.height,
    width=options.width,
  )
  game = capture_the_flag.make(config)
  if options.opponent not in game.scripts:
    raise ValueError(
      f'--opponent ({options.opponent}) must be one of {list(game.scripts)};'
      ' choose one of these.'
    )
  players.check_specs({source: trained.player}, game.spec)
  untrained = stages['untrained'].variables
  behaviours, visits = [], {}
  for name, agent in stages.items():
    record = play(agent, untrained, game, config, options)
    visits[name] = count_visits(record.facts, config.height, config.width)
    shares = [f'{share:.2f}' for share in behave(record.facts)]
    behaviours.append([name, *shares])
  is_run = pathlib.Path(source).is_dir()
  directory = options.directory or (source if is_run else 'runs/what_it_knows')
  path = pathlib.Path(directory) / 'what_it_knows.html'
  rows = write_page(path, options, record, behaviours, visits)
  print('question: most frequent answer, accuracy, untrained, AUC, untrained')
  for question, *numbers in rows:
    print(f'{question:48s} {"  ".join(numbers)}')
  for name, *shares in behaviours:
    print(f'{name:20s} ' + ', '.join(
      f'{behaviour} {share}'
      for behaviour, share in zip(BEHAVIOURS, shares, strict=True)
    ))  # fmt: skip
  print(f'Page: {path}')


if __name__ == '__main__':
  launch.main(__file__)
