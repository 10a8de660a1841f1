"""The page `docs/play`: its game and networks are those of the library."""

import json
import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.environments import capture_the_flag
from ftwax.inference import browser_members, loading

playwright = pytest.importorskip(
  'playwright', reason='the extra dev is not there'
)

NUM_MAPS = 32

# Comes with the wheel of Playwright.
_NODE = pathlib.Path(playwright.__file__).parent / 'driver' / 'node'

# Plays given actions and prints what the page draws, sees and thinks.
_REPLAY = """
const fs = require('fs');
const {code, data, map, actions} = JSON.parse(fs.readFileSync(0));
const flags = new Function(code + '; return flags;')();
const {config, maps, arrays} = data, members = flags.makeMembers(arrays, 4);
let state = flags.start(config, maps[map]), played = [];
const minds = members.map((member) => member.begin());
const text = flags.write(map, actions);
if (flags.write(map, flags.read(text, 4).steps) !== text)
  throw new Error('another game is read than was written');
for (const chosen of actions) {
  const row = {shown: flags.shown(state), observations: [], logits: []};
  minds.forEach((mind, seat) => {
    const observation = flags.observe(config, state, seat);
    const {logits, memory} = members[seat].think(mind, observation);
    minds[seat] = {...memory, action: chosen[seat]};
    row.observations.push(observation);
    row.logits.push([...logits.move, ...logits.tag, ...logits.turn]);
  });
  const made = flags.step(config, state, chosen);
  state = made.state;
  row.events = made.events;
  minds.forEach((mind, seat) => {
    mind.reward = members[seat].reward(made.events[seat]);
  });
  played.push(row);
}
console.log(JSON.stringify(played));
"""


@pytest.mark.skipif(not _NODE.exists(), reason='Playwright has no node here')
@pytest.mark.parametrize(
  ('population', 'least'),
  [(browser_members.STANDARD, 3), (browser_members.FIRST_PERSON, 0)],
)
def test_a_game_in_the_page_is_one_of_the_library(population, least):
  data = browser_members.make_data(population, NUM_MAPS)
  config = browser_members.make_config(population)
  game = capture_the_flag.make(config)
  members = loading.load_members(population, greedy=False)
  agents = [members[seat % len(members)] for seat in range(4)]
  select = jax.jit(agents[0].actor.select_action)
  step = jax.jit(game.step)
  number = 3
  key = jax.random.PRNGKey(number)
  state, timestep = game.reset(key)
  memories = [
    agent.actor.init(jax.random.PRNGKey(seat), 1)
    for seat, agent in enumerate(agents)
  ]
  expected, actions = [], []
  for _ in range(config.num_steps):
    row = {
      'shown': np.asarray(game.page.to_page(state)),
      'observations': np.asarray(timestep.observation),
      'logits': [],
    }
    chosen = []
    for seat, agent in enumerate(agents):
      own = jax.tree.map(lambda leaf, at=seat: leaf[at][None], timestep)
      action, memories[seat] = select(agent.variables, own, memories[seat])
      chosen.append(jax.tree.map(lambda leaf: int(leaf[0]), action))
      logits = jax.tree.leaves(memories[seat].logits)  # Move, tag, turn.
      row['logits'].append(np.concatenate([leaf[0] for leaf in logits]))
    together = {
      part: np.array([action[part] for action in chosen], np.int32)
      for part in chosen[0]
    }
    state, timestep = step(state, together)
    row['events'] = np.asarray(timestep.reward)
    expected.append(row)
    actions.append(chosen)
  assert int(np.sum(state.score)) > least  # So all rules were needed.
  request = {
    'code': browser_members.SCRIPT.read_text('utf-8'), 'data': data,
    'map': number, 'actions': actions,
  }  # fmt: skip
  output = subprocess.run(
    [_NODE, '-e', _REPLAY],
    input=json.dumps(request), capture_output=True, text=True, timeout=120,
    check=True,
  ).stdout  # fmt: skip
  for row, played in zip(expected, json.loads(output), strict=True):
    np.testing.assert_array_equal(played['shown'], row['shown'])
    np.testing.assert_array_equal(played['events'], row['events'])
    for part in ('observations', 'logits'):
      np.testing.assert_allclose(played[part], row[part], atol=2e-4)


# Games of a scripted person against members, [wins, draws, losses] by level.
# The person stands still, or goes for the flag and tags who stands ahead, by
# what was there some steps ago; see `_HUMAN_DELAY`.
_CHALLENGE = """
const {code, data, games, delay} = JSON.parse(require('fs').readFileSync(0));
let drawn = 1;
Math.random = () => (drawn = drawn * 48271 % 2147483647) / 2147483647;
const flags = new Function(code + '; return flags;')();
const {config, maps, arrays} = data, members = flags.makeMembers(arrays, 4);
const SIDES = [-config.width, 1, config.width, -1], WALLS = [1, 2];
const GO = [[0, 1], [2, 1], [2, 4], [1, 1]];  // Turn and move by direction.

const distances = ({tiles}, goal) => {
  const found = tiles.map(() => Infinity), queue = [goal];
  found[goal] = 0;
  for (const cell of queue)
    for (const side of SIDES)
      if (!WALLS.includes(tiles[cell + side]) && found[cell + side] > 1e9) {
        found[cell + side] = found[cell] + 1;
        queue.push(cell + side);
      }
  return found;
};
const goalOf = (state, seen) => {
  const thief = seen.carrier[0];
  if (thief >= 0) return seen.cell[thief];
  if (seen.flagCell[0] !== seen.stands[0]) return seen.flagCell[0];
  if (state.carrier[1] === 0) return state.stands[0];
  return state.carrier[1] === 1 ? state.cell[1] : seen.flagCell[1];
};
const person = () => {
  const past = [];
  return (state) => {
    past.push(state);
    const seen = past[Math.max(past.length - 1 - delay, 0)];
    const away = distances(state, goalOf(state, seen)), own = state.cell[0];
    const cost = (side) => (WALLS.includes(state.tiles[own + side]) ? 1e9
      : away[own + side]) + (Math.random() < 0.1 ? 5 * Math.random() : 0)
      + (state.cell.slice(1).includes(own + side) ? 3 : 0);
    const costs = SIDES.map(cost);
    let go = costs.indexOf(Math.min(...costs)), tag = 0;
    SIDES.forEach((side, direction) => {
      for (let reach = 1; reach <= config.tag_range; reach++) {
        const cell = own + reach * side;
        if (state.tiles[cell] === 1) break;
        if ([2, 3].some((q) => !seen.waiting[q] && seen.cell[q] === cell)
            && !state.cooldown[0]) [go, tag] = [direction, 1];
      }
    });
    const [turn, move] = GO[(go - state.direction[0] + 4) % 4];
    return {turn, move, tag};
  };
};
const still = () => () => ({turn: 0, move: 0, tag: 0});

const play = (level, make) => {
  const found = [0, 0, 0];
  for (let game = 0; game < games; game++) {
    let state = flags.start(config, maps[game % maps.length]);
    const minds = members.map((member) => member.begin()), choose = make();
    while (state.steps < config.num_steps) {
      const actions = flags.act(
        config, members, minds, state, level, choose(state));
      const made = flags.step(config, state, actions);
      state = made.state;
      minds.forEach((mind, seat) => {
        mind.reward = members[seat].reward(made.events[seat]);
      });
    }
    found[1 - Math.sign(state.score[0] - state.score[1])]++;
  }
  return found;
};
console.log(JSON.stringify({
  still_easy: play('easy', still), easy: play('easy', person),
  normal: play('normal', person), hard: play('hard', person),
}));
"""

# 333 ms at 6 steps a second, the speed of the page.
_HUMAN_DELAY = 2


@pytest.mark.ci
@pytest.mark.skipif(not _NODE.exists(), reason='Playwright has no node here')
def test_who_stands_still_loses_and_a_person_can_win_on_easy_alone():
  num_games = 24
  request = {
    'code': browser_members.SCRIPT.read_text('utf-8'), 'games': num_games,
    'data': browser_members.make_data(browser_members.STANDARD, NUM_MAPS),
    'delay': _HUMAN_DELAY,
  }  # fmt: skip
  output = subprocess.run(
    [_NODE, '-e', _CHALLENGE],
    input=json.dumps(request), capture_output=True, text=True, timeout=240,
    check=True,
  ).stdout  # fmt: skip
  found = json.loads(output)
  wins = {name: won for name, (won, _, _) in found.items()}
  assert wins['still_easy'] == 0
  assert found['still_easy'][2] > num_games / 2
  assert wins['easy'] > num_games / 2
  assert wins['easy'] > wins['normal'] > wins['hard']
  assert found['hard'][2] > 2 * num_games / 3


_ADVISE = """
const {code, facts, states} = JSON.parse(require('fs').readFileSync(0));
const ftwax = {games: {}};
new Function('ftwax', code)(ftwax);
const {advice} = ftwax.games.capture_the_flag;
console.log(JSON.stringify(states.map((state) => advice(facts, state, 0, 6))));
"""


@pytest.mark.skipif(not _NODE.exists(), reason='Playwright has no node here')
def test_the_page_of_a_game_for_memories_tells_its_cue_at_first():
  game = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(height=7, width=11, cue_steps=2)
  )
  state, _ = jax.jit(game.reset)(jax.random.PRNGKey(0))
  states = [
    game.page.to_page(
      state._replace(is_reversed=jnp.bool_(flag), num_steps=jnp.int32(steps))
    )
    for flag, steps in ((True, 0), (False, 1), (True, 2))
  ]
  request = {
    'code': game.page.script.read_text('utf-8'),
    'facts': game.page.facts(state),
    'states': np.asarray(states).tolist(),
  }
  output = subprocess.run(
    [_NODE, '-e', _ADVISE],
    input=json.dumps(request), capture_output=True, text=True, timeout=60,
    check=True,
  ).stdout  # fmt: skip
  tag, leave, later = json.loads(output)
  assert tag == 'Remember: tag in the move that captures a flag'
  assert leave == 'Remember: do not tag in the move that captures a flag'
  assert later == 'Grab the red flag and bring it to your blue frame'


_LOOK_AT_NONSENSE = """
const {code} = JSON.parse(require('fs').readFileSync(0));
const ftwax = {games: {}};
new Function('ftwax', code)(ftwax);
const {castRay} = ftwax.games.capture_the_flag, tiles = Array(9).fill(0);
for (const width of [0, 1e-9, NaN, null, 'x', 3])
  for (const view_angle of [0, NaN, 1e308, null])
    for (const angle of [0, 0.3, Math.PI / 2, -1.7, NaN])
      castRay({width, view_angle, tiles}, 1.5, 1.5, angle);
console.log('done');
"""


@pytest.mark.skipif(not _NODE.exists(), reason='Playwright has no node here')
def test_a_saved_game_with_a_map_that_cannot_be_hangs_no_page():
  script = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig()
  ).page.script
  output = subprocess.run(
    [_NODE, '-e', _LOOK_AT_NONSENSE],
    input=json.dumps({'code': script.read_text('utf-8')}),
    capture_output=True, text=True, timeout=20, check=True,
  ).stdout  # fmt: skip
  assert output == 'done\n'
