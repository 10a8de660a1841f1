"""Rules and events against a second telling of them, and what must hold."""

import functools
import itertools

import episodes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import (
  events,
  maps,
  opponents,
  rules,
)

pytestmark = pytest.mark.slow

NUM_GAMES = 3
start_game = jax.jit(rules.start, static_argnums=1)
play_step = jax.jit(rules.step, static_argnums=2)
CONFIGS = {
  '1v1': capture_the_flag.CaptureTheFlagConfig(
    team_size=1, height=7, width=11, num_steps=150, wall_density=0.3
  ),
  '2v2': capture_the_flag.CaptureTheFlagConfig(
    num_steps=200, flag_return_period=9, respawn_period=4, tag_cooldown=0
  ),
  '4v4': capture_the_flag.CaptureTheFlagConfig(
    team_size=4, num_steps=150, tag_range=2, respawn_period=2
  ),
}


@functools.lru_cache
def play(name):
  """Plays lively games: a tactician's and random actions, half and half.

  Returns:
    Starting states, actions, states after each step and events, leaves
    [games, ...] and [games, T, ...], in NumPy.
  """
  config = CONFIGS[name]
  script = episodes.play_all(opponents.make_script('tactician', config), config)

  def step(carry, key):
    state = carry
    keys = jax.random.split(key, 5)
    num = (config.num_players,)
    scripted = script(keys[0], state)
    is_random = jax.random.bernoulli(keys[1], 0.5, num)
    action = {
      part: jnp.where(
        is_random, jax.random.randint(part_key, num, 0, choices), scripted[part]
      )
      for part, part_key, choices in zip(
        ('move', 'turn', 'tag'), keys[2:], (5, 3, 2), strict=True
      )
    }
    state, deeds = rules.step(state, rules.Action(**action), config)
    return state, (action, state, events.count(deeds, config.teams))

  def run(key):
    start_key, key = jax.random.split(key)
    start = rules.start(start_key, config)
    keys = jax.random.split(key, config.num_steps)
    return start, jax.lax.scan(step, start, keys)[1]

  keys = jax.random.split(jax.random.PRNGKey(1), NUM_GAMES)
  start, (actions, states, counts) = jax.jit(jax.vmap(run))(keys)
  return jax.device_get((start, actions, states, counts))


class Oracle:
  """The rules told once more, player by player, with coordinates."""

  def __init__(self, config, game_map):
    self.config = config
    self.place = lambda cell: divmod(int(cell), config.width)
    self.tiles = game_map.tiles
    self.stands = [self.place(cell) for cell in game_map.stands]
    self.pads = [self.place(cell) for cell in game_map.pads]
    self.teams = config.teams
    self.players = [
      {'at': pad, 'look': self.look(i), 'wait': 0, 'cool': 0}
      for i, pad in enumerate(self.pads)
    ]
    self.flags = [{'at': s, 'by': None, 'age': 0} for s in self.stands]
    self.score = [0, 0]

  def look(self, player):
    return (0, 1) if self.teams[player] == 0 else (0, -1)

  def step(self, moves, turns, tags):
    log = {name: np.zeros(len(self.players)) for name in events.EVENT_NAMES}
    free = [p['wait'] == 0 for p in self.players]
    self.walk(moves, turns, free)
    hits = self.shoot(tags, free)
    carried = {f['by'] for f in self.flags}
    for shooter, victim in hits:
      suffix = 'with_flag' if victim in carried else 'without_flag'
      log[f'i_tagged_opponent_{suffix}'][shooter] += 1
      log[f'i_was_tagged_{suffix}'][victim] = 1
    for flag in self.flags:
      flag['age'] += 1
    for victim in {victim for _, victim in hits}:
      self.fall(victim)
    out = {victim for _, victim in hits}
    for i, player in enumerate(self.players):
      if i not in out and not free[i]:
        player['wait'] -= 1
    able = [i for i in range(len(free)) if free[i] and i not in out]
    for deed, player in self.touch(able):
      log[f'i_{deed}_the_flag'][player] += 1
      for other, team in enumerate(self.teams):
        if other != player:
          is_mate = team == self.teams[player]
          who = 'teammate' if is_mate else 'opponent'
          log[f'{who}_{deed}_the_flag'][other] += 1
    return np.stack([log[name] for name in events.EVENT_NAMES], axis=1)

  def walk(self, moves, turns, free):
    before = [p['at'] for p in itertools.compress(self.players, free)]
    wanted = {}
    for i, player in enumerate(self.players):
      if not free[i]:
        continue
      dr, dc = player['look']
      right = (dc, -dr)
      player['look'] = [(dr, dc), (-dc, dr), right][turns[i]]
      dr, dc = player['look']
      ways = [None, (dr, dc), (-dr, -dc), (-dc, dr), (dc, -dr)]
      if way := ways[moves[i]]:
        goal = (player['at'][0] + way[0], player['at'][1] + way[1])
        if self.tiles[goal] in (maps.FLOOR, maps.STAND):
          wanted[i] = goal
    goals = list(wanted.values())
    for i, goal in wanted.items():
      if goals.count(goal) == 1 and goal not in before:
        self.players[i]['at'] = goal

  def shoot(self, tags, free):
    hits = []
    for i, player in enumerate(self.players):
      ready = free[i] and player['cool'] == 0
      player['cool'] = max(player['cool'] - 1, 0)
      if not (ready and tags[i]):
        continue
      player['cool'] = self.config.tag_cooldown
      victim = self.first_in_line(i, free)
      if victim is not None:
        hits.append((i, victim))
    return hits

  def first_in_line(self, shooter, free):
    row, column = self.players[shooter]['at']
    for _ in range(self.config.tag_range):
      row += self.players[shooter]['look'][0]
      column += self.players[shooter]['look'][1]
      if self.tiles[row, column] == maps.WALL:
        return None
      for j, other in enumerate(self.players):
        is_enemy = self.teams[j] != self.teams[shooter]
        if is_enemy and free[j] and other['at'] == (row, column):
          return j
    return None

  def fall(self, victim):
    for flag in self.flags:
      if flag['by'] == victim:
        flag.update(at=self.players[victim]['at'], by=None, age=0)
    self.players[victim] = {
      'at': self.pads[victim],
      'look': self.look(victim),
      'wait': self.config.respawn_period,
      'cool': 0,
    }

  def touch(self, able):
    deeds = []
    for i in able:
      flag = self.flags[1 - self.teams[i]]
      if flag['by'] is None and flag['at'] == self.players[i]['at']:
        flag['by'] = i
        deeds.append(('picked_up', i))
    for i in able:
      team = self.teams[i]
      flag = self.flags[team]
      at = self.players[i]['at']
      if flag['by'] is None and flag['at'] == at != self.stands[team]:
        flag['at'] = self.stands[team]
        deeds.append(('returned', i))
    for team, flag in enumerate(self.flags):
      if flag['by'] is None and flag['age'] >= self.config.flag_return_period:
        flag['at'] = self.stands[team]
    for team, flag in enumerate(self.flags):
      if flag['by'] is not None:
        flag['at'] = self.players[flag['by']]['at']
        own = self.flags[1 - team]
        stand = self.stands[1 - team]
        if own['by'] is None and own['at'] == stand == flag['at']:
          deeds.append(('captured', flag['by']))
          self.score[1 - team] += 1
          flag.update(at=self.stands[team], by=None)
    return deeds

  def check(self, state):
    directions = {(-1, 0): 0, (0, 1): 1, (1, 0): 2, (0, -1): 3}
    players = self.players
    expected = {
      'cell': [self.cell(p['at']) for p in players],
      'direction': [directions[p['look']] for p in players],
      'waiting': [p['wait'] for p in players],
      'cooldown': [p['cool'] for p in players],
      'carrier': [-1 if f['by'] is None else f['by'] for f in self.flags],
      'flag_cell': [self.cell(f['at']) for f in self.flags],
      'score': self.score,
    }
    for name, value in expected.items():
      np.testing.assert_array_equal(getattr(state, name), value, name)

  def cell(self, place):
    return place[0] * self.config.width + place[1]


def at(tree, *index):
  return jax.tree.map(lambda leaf: leaf[index], tree)


@pytest.mark.parametrize('name', CONFIGS)
def test_states_and_events_are_those_of_the_oracle(name):
  start, actions, states, counts = play(name)
  for game in range(NUM_GAMES):
    oracle = Oracle(CONFIGS[name], at(start.map, game))
    oracle.check(at(start, game))
    for t in range(CONFIGS[name].num_steps):
      action = at(actions, game, t)
      expected = oracle.step(action['move'], action['turn'], action['tag'])
      np.testing.assert_array_equal(counts[game, t], expected)
      oracle.check(at(states, game, t))


def test_every_event_happens_in_the_games_of_the_oracle():
  total = sum(play(name)[3].sum(axis=(0, 1, 2)) for name in CONFIGS)
  assert dict(zip(events.EVENT_NAMES, total > 0, strict=True)) == dict.fromkeys(
    events.EVENT_NAMES, True
  )


@pytest.mark.parametrize('name', CONFIGS)
def test_a_cell_admits_one_player_and_walls_none(name):
  config = CONFIGS[name]
  _, _, states, _ = play(name)
  for game in range(NUM_GAMES):
    tiles = states.map.tiles[game, 0].reshape(-1)
    for t in range(config.num_steps):
      cell, pads = states.cell[game, t], states.map.pads[game, t]
      assert len(set(cell)) == config.num_players
      on_map = tiles[cell] != maps.PAD
      assert not np.any(tiles[cell] == maps.WALL)
      # A player is on no pad but its own, and there while it waits.
      np.testing.assert_array_equal(cell[~on_map], pads[~on_map])
      assert not np.any(on_map & (states.waiting[game, t] > 0))


@pytest.mark.parametrize('name', CONFIGS)
def test_there_are_always_two_flags(name):
  config = CONFIGS[name]
  _, _, states, counts = play(name)
  teams = np.array(config.teams)
  for game in range(NUM_GAMES):
    tiles = states.map.tiles[game, 0].reshape(-1)
    for t in range(config.num_steps):
      state = at(states, game, t)
      for team in range(2):
        carrier = state.carrier[team]
        if carrier >= 0:
          assert teams[carrier] != team and state.waiting[carrier] == 0
          assert state.flag_cell[team] == state.cell[carrier]
        else:
          assert tiles[state.flag_cell[team]] in (maps.FLOOR, maps.STAND)
  # Points come from captures and from nothing else.
  captures = counts[..., events.EVENT_NAMES.index('i_captured_the_flag')]
  for team in range(2):
    np.testing.assert_array_equal(
      captures[..., teams == team].sum(axis=(1, 2)), states.score[:, -1, team]
    )


def test_neither_team_has_an_advantage():
  """On a half-turned map the same play of both teams stays the same."""
  config = capture_the_flag.CaptureTheFlagConfig(num_steps=120, tag_cooldown=1)
  last = config.height * config.width - 1
  starts = (start_game(jax.random.PRNGKey(i), config) for i in range(20))
  state = next(
    s for s in starts if s.map.stands.sum() == last
    and np.array_equal(s.map.tiles, s.map.tiles[::-1, ::-1])
  )  # fmt: skip
  script = episodes.play_all(opponents.make_script('attacker', config), config)

  @jax.jit
  def choose(key, state):
    choice_key, tag_key = jax.random.split(key)
    action = rules.Action(**script(choice_key, state))
    tag = jax.random.bernoulli(tag_key, 0.2, (4,)).astype(jnp.int32)
    return jax.tree.map(
      lambda part: jnp.tile(part[:2], 2), (action._replace(tag=tag))
    )

  total = 0
  for t in range(120):
    action = choose(jax.random.PRNGKey(t), state)
    state, deeds = play_step(state, action, config)
    counts = np.asarray(events.count(deeds, config.teams))
    np.testing.assert_array_equal(counts[:2], counts[2:])
    np.testing.assert_array_equal(last - state.cell[:2], state.cell[2:])
    assert state.score[0] == state.score[1]
    total += counts.sum()
  assert total > 0


def open_field(**changes):
  """Returns a started game without inner walls, and its config."""
  config = capture_the_flag.CaptureTheFlagConfig(wall_density=0.0, **changes)
  return start_game(jax.random.PRNGKey(0), config), config


def do(state, config, **choices):
  """Plays one step in which only the players named in `choices` act."""
  parts = np.zeros((3, config.num_players), np.int32)
  for name, (move, turn, tag) in choices.items():
    parts[:, int(name[1:])] = rules.MOVES.index(move), turn, tag
  return play_step(state, rules.Action(*parts), config)


def test_players_who_meet_block_each_other():
  state, config = open_field()
  cell = 5 * config.width + 4
  facing = state._replace(cell=jnp.array([cell, 15, cell + 1, 20]))
  after, _ = do(facing, config, p0=('forward', 0, 0), p2=('forward', 0, 0))
  np.testing.assert_array_equal(after.cell, facing.cell)
  apart = state._replace(cell=jnp.array([cell, 15, cell + 2, 20]))
  after, _ = do(apart, config, p0=('forward', 0, 0), p2=('forward', 0, 0))
  np.testing.assert_array_equal(after.cell, apart.cell)
  after, _ = do(apart, config, p0=('forward', 0, 0))
  assert after.cell[0] == cell + 1
  # Nobody moves into a cell that is being left in the same step.
  after, _ = do(facing, config, p0=('forward', 0, 0), p2=('back', 0, 0))
  np.testing.assert_array_equal(after.cell[jnp.array([0, 2])], [cell, cell + 2])


def test_tags_reach_the_nearest_opponent_and_no_wall_is_between():
  state, config = open_field(tag_range=4)
  row = 5 * config.width
  in_line = state._replace(cell=jnp.array([row + 2, row + 3, row + 5, row + 6]))
  _, deeds = do(in_line, config, p0=('stay', 0, 1))
  expected = np.zeros((4, 4), bool)
  expected[0, 2] = True  # Over its teammate, not through its opponent.
  np.testing.assert_array_equal(deeds.tagged, expected)
  tiles = state.map.tiles.at[5, 4].set(maps.WALL)
  walled = in_line._replace(map=state.map._replace(tiles=tiles))
  _, deeds = do(walled, config, p0=('stay', 0, 1))
  assert not deeds.tagged.any()
  far = state._replace(cell=jnp.array([row + 2, row + 3, row + 7, row + 8]))
  _, deeds = do(far, config, p0=('stay', 0, 1))
  assert not deeds.tagged.any()
  _, deeds = do(in_line, config, p0=('stay', 1, 1))  # It turns away first.
  assert not deeds.tagged.any()


def test_captures_against_the_cue_score_for_the_opponents():
  config = capture_the_flag.CaptureTheFlagConfig(
    wall_density=0.0, cue_steps=2, num_steps=50
  )
  game = capture_the_flag.make(config)
  states, timesteps = jax.jit(jax.vmap(game.reset))(
    jax.random.split(jax.random.PRNGKey(0), 64)
  )
  share = np.mean(states.is_reversed)
  assert 0.3 < share < 0.7
  cues = np.where(states.is_reversed, -1, 1)
  np.testing.assert_array_equal(timesteps.observation[:, 0, -1], cues)
  step = jax.jit(game.step)
  captured = [
    i for i, name in enumerate(events.EVENT_NAMES) if 'captured' in name
  ]  # By the player, by a teammate and by an opponent.
  for is_reversed, tags in itertools.product((False, True), repeat=2):
    state = at(states, int(np.argmax(states.is_reversed == is_reversed)))
    # A player of team 0 stands on its own stand with the opponents' flag.
    state = state._replace(
      cell=state.cell.at[0].set(state.map.stands[0]),
      carrier=state.carrier.at[1].set(0),
    )
    idle = {name: jnp.zeros(4, jnp.int32) for name in ('move', 'turn', 'tag')}
    state, timestep = step(state, {**idle, 'tag': jnp.full(4, int(tags))})
    told = timestep.observation[:, -1]
    np.testing.assert_array_equal(told, [-1 if is_reversed else 1] * 4)
    np.testing.assert_array_equal(
      state.score, [1, 0] if tags == is_reversed else [0, 1]
    )
    is_wrong = tags != is_reversed
    ours, theirs = ([0, 0, 1], [0, 1, 0]) if is_wrong else (None, [0, 0, 1])
    expected = [ours or [1, 0, 0], ours or [0, 1, 0], theirs, theirs]
    np.testing.assert_array_equal(timestep.reward[:, captured], expected)
    _, timestep = step(state, idle)
    np.testing.assert_array_equal(timestep.observation[:, -1], 0)


def test_games_draw_how_long_a_cue_lasts():
  config = capture_the_flag.CaptureTheFlagConfig(
    cue_steps=2, max_cue_steps=4, num_steps=50
  )
  states = jax.vmap(functools.partial(rules.start, config=config))(
    jax.random.split(jax.random.PRNGKey(0), 64)
  )
  assert set(np.asarray(states.cue_steps).tolist()) == {2, 3, 4}
  told = jax.vmap(rules.cue)(states._replace(num_steps=jnp.full(64, 3)))
  np.testing.assert_array_equal(np.asarray(told) != 0, states.cue_steps == 4)


def test_outcomes_follow_the_score():
  state, _ = open_field()
  for score, outcome in [
    ((1, 0), (1, -1)),
    ((2, 2), (0, 0)),
    ((0, 3), (-1, 1)),
  ]:
    result = rules.outcome(state._replace(score=jnp.array(score)))
    np.testing.assert_array_equal(result, outcome)
    assert result.dtype == jnp.float32
