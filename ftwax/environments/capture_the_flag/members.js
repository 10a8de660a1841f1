'use strict';
// Capture the flag and its players without a server: the rules of
// `environments/capture_the_flag/rules.py`, the observations of `features.py` and
// `rays.py`, and the members' networks. Tests hold all of it to the library.
const flags = (() => {
  const [WALL, PAD, NOBODY] = [1, 2, -1];
  const STEPS = [[-1, 0], [0, 1], [1, 0], [0, -1]];  // Rows and columns.
  const TURNS = [0, 3, 1], MOVES = [0, 0, 2, 3, 1];  // Quarter turns.

  const start = (config, map) => ({
    ...map, cell: [...map.pads], direction: config.teams.map((team) => team ? 3 : 1),
    waiting: config.teams.map(() => 0), cooldown: config.teams.map(() => 0),
    carrier: [NOBODY, NOBODY], flagCell: [...map.stands], flagTimer: [0, 0],
    score: [0, 0], steps: 0,
  });

  // What the page of the library draws.
  const shown = (state) => [state.steps, ...state.score, ...state.carrier, ...state.flagCell,
    ...state.flagTimer, ...state.cell, ...state.direction, ...state.waiting, ...state.cooldown];

  // Plays one step; returns the next state and the events of each player.
  const step = (config, before, actions) => {
    const {teams, width} = config, players = [...teams.keys()];
    const {tiles, stands, pads} = before;
    const ahead = (direction) => STEPS[direction][0] * width + STEPS[direction][1];
    const carries = (state, p) => state.carrier[1 - teams[p]] === p;
    const active = before.waiting.map((steps) => steps === 0);
    const hadFlag = players.map((p) => carries(before, p));

    const direction = before.direction.map((at, p) => active[p] ? (at + TURNS[actions[p].turn]) % 4 : at);
    const target = before.cell.map((cell, p) => active[p] && actions[p].move
      ? cell + ahead((direction[p] + MOVES[actions[p].move]) % 4) : cell);
    const wants = players.map((p) => active[p] && actions[p].move > 0 && ![WALL, PAD].includes(tiles[target[p]]));
    const cell = before.cell.map((at, p) => {
      const blocked = players.some((q) => q !== p
        && ((wants[q] && target[q] === target[p]) || (active[q] && before.cell[q] === target[p])));
      return wants[p] && !blocked ? target[p] : at;
    });

    const fires = players.map((p) => active[p] && actions[p].tag && before.cooldown[p] === 0);
    const tagged = players.map((p) => {
      for (let reach = 1; fires[p] && reach <= config.tag_range; reach++) {
        const at = cell[p] + reach * ahead(direction[p]);
        if (tiles[at] === WALL) return [];
        const hit = players.filter((q) => teams[q] !== teams[p] && before.waiting[q] === 0 && cell[q] === at);
        if (hit.length) return hit;
      }
      return [];
    });
    const isHit = players.map((q) => tagged.some((hit) => hit.includes(q)));

    // Flags fall where their carriers were hit, before these go to their pads.
    const carrier = [...before.carrier], flagCell = [...before.flagCell];
    const flagTimer = before.flagTimer.map((timer) => Math.max(timer - 1, 0));
    for (const team of [0, 1]) {
      if (carrier[team] === NOBODY) continue;
      flagCell[team] = cell[carrier[team]];
      if (isHit[carrier[team]]) [carrier[team], flagTimer[team]] = [NOBODY, config.flag_return_period];
    }
    const home = start(config, {tiles, stands, pads});
    const cooldown = players.map((p) => isHit[p] ? 0 : fires[p] ? config.tag_cooldown : Math.max(before.cooldown[p] - 1, 0));
    const waiting = players.map((p) => isHit[p] ? config.respawn_period : Math.max(before.waiting[p] - 1, 0));
    players.filter((p) => isHit[p]).forEach((p) => { cell[p] = pads[p]; direction[p] = home.direction[p]; });

    const canTouch = players.map((p) => active[p] && !isHit[p]);
    const isFree = carrier.map((who) => who === NOBODY);
    const isHome = [0, 1].map((team) => isFree[team] && flagCell[team] === stands[team]);
    const pickedUp = players.map((p) => canTouch[p] && isFree[1 - teams[p]] && cell[p] === flagCell[1 - teams[p]]);
    const returned = players.map((p) => canTouch[p] && isFree[teams[p]] && !isHome[teams[p]] && cell[p] === flagCell[teams[p]]);
    players.filter((p) => pickedUp[p]).forEach((p) => { carrier[1 - teams[p]] = p; });
    for (const team of [0, 1]) {
      if (players.some((p) => returned[p] && teams[p] === team)
          || (isFree[team] && carrier[team] === NOBODY && flagTimer[team] === 0)) flagCell[team] = stands[team];
    }
    const stays = [0, 1].map((team) => carrier[team] === NOBODY && flagCell[team] === stands[team]);
    const captured = players.map((p) => carrier[1 - teams[p]] === p && cell[p] === stands[teams[p]] && stays[teams[p]]);
    const score = [...before.score];
    players.filter((p) => captured[p]).forEach((p) => {
      score[teams[p]] += 1;
      [carrier[1 - teams[p]], flagCell[1 - teams[p]]] = [NOBODY, stands[1 - teams[p]]];
    });

    const deeds = [captured, pickedUp, returned];
    const count = (wants) => deeds.map((did) => players.filter((q) => wants(q) && did[q]).length);
    const events = players.map((p) => [
      ...deeds.map((did) => Number(did[p])),
      ...count((q) => q !== p && teams[q] === teams[p]), ...count((q) => teams[q] !== teams[p]),
      tagged[p].filter((q) => hadFlag[q]).length, tagged[p].filter((q) => !hadFlag[q]).length,
      Number(isHit[p] && hadFlag[p]), Number(isHit[p] && !hadFlag[p]),
    ]);
    const state = {tiles, stands, pads, cell, direction, waiting, cooldown, carrier, flagCell, flagTimer, score, steps: before.steps + 1};
    return {state, events};
  };

  // Cells that a ray at an angle enters, [ahead, aside, nearness], nearest first.
  const trace = (angle, reach) => {
    const step = [1 / Math.cos(angle), 1 / Math.abs(Math.sin(angle))], at = [0, 0], cells = [];
    for (;;) {
      const next = at.map((cell, axis) => (cell + 0.5) * step[axis]);
      const time = Math.min(...next);
      // Through a corner, a ray enters the cell behind it alone.
      next.forEach((when, axis) => { if (when < time + 1e-9) at[axis]++; });
      if (at[0] > reach || at[1] > reach) return cells;
      cells.push([at[0], at[1] * Math.sign(angle), 1 / (1 + time)]);
    }
  };

  // Rays of a game, made once for each.
  const made = new Map();
  const raysOf = ({num_rays: count, view_angle, width, height}) => {
    const key = [count, view_angle, width, height].join();
    if (!made.has(key)) {
      made.set(key, Array.from({length: count}, (_, ray) =>
        trace(view_angle * Math.PI / 180 * ((ray + 0.5) / count - 0.5), Math.max(width, height) - 2)));
    }
    return made.get(key);
  };

  // Channels of the cells around a player; `things` are [channel, place].
  const lookAround = ({view_size: size, view_behind: behind}, tileAt, things) => {
    const seen = new Float64Array(7 * size * size), half = Math.floor(size / 2);
    for (let i = 0; i < size * size; i++) {
      const tile = tileAt(size - 1 - behind - Math.floor(i / size), i % size - half);
      seen[i] = Number([WALL, PAD].includes(tile));
    }
    things.forEach(([channel, [ahead, aside]]) => {
      const y = size - 1 - behind - ahead, x = half + aside;
      if (y >= 0 && y < size && x >= 0 && x < size) seen[(channel * size + y) * size + x] = 1;
    });
    return seen;
  };

  // Nearness of what each ray ahead meets before a wall.
  const lookAhead = (config, tileAt, things) => {
    const count = config.num_rays, seen = new Float64Array(7 * count);
    raysOf(config).forEach((cells, ray) => {
      const own = (found, near) => found.forEach(([channel]) => {
        seen[channel * count + ray] = Math.max(seen[channel * count + ray], near);
      });
      const within = ([x, y]) => things.filter(([, [ahead, aside]]) => ahead === x && aside === y);
      own(within([0, 0]), 1);
      for (const [ahead, aside, near] of cells) {
        if (tileAt(ahead, aside) === WALL) return void (seen[ray] = near);
        own(within([ahead, aside]), near);
      }
    });
    return seen;
  };

  // What a player sees: channels of its view, then numbers.
  const observe = (config, state, p) => {
    const {teams, width, height} = config, isRays = 'num_rays' in config;
    const team = teams[p], isActive = state.waiting[p] === 0;
    const [row, column] = [Math.floor(state.cell[p] / width), state.cell[p] % width];
    const up = STEPS[state.direction[p]], right = STEPS[(state.direction[p] + 1) % 4];
    const place = (cell) => {
      const south = Math.floor(cell / width) - row, east = cell % width - column;
      return [south * up[0] + east * up[1], south * right[0] + east * right[1]];
    };
    const clip = (value, end) => Math.min(Math.max(value, 0), end - 1);
    const tileAt = (ahead, aside) => state.tiles[clip(row + ahead * up[0] + aside * right[0], height) * width
      + clip(column + ahead * up[1] + aside * right[1], width)];
    const both = [team, 1 - team];
    const fixed = [...both.map((side) => state.flagCell[side]), ...both.map((side) => state.stands[side])];
    const things = fixed.map((cell, i) => [3 + i, place(cell)]);
    teams.forEach((other, q) => {
      if (q !== p && state.waiting[q] === 0) things.push([other === team ? 1 : 2, place(state.cell[q])]);
    });
    const look = isRays ? lookAhead : lookAround, size = isRays ? config.num_rays : config.view_size ** 2;
    const seen = isActive ? look(config, tileAt, things) : new Float64Array(7 * size);
    const isSeen = (channel) => config.compass || seen.subarray(channel * size, (channel + 1) * size).some(Boolean);
    const places = fixed.map((cell, i) => isSeen(3 + i) ? place(cell) : [0, 0]);
    const side = Math.max(width, height);
    return [...seen, ...places.map(([ahead]) => ahead / side), ...places.map(([, aside]) => aside / side),
      ...both.map((s) => Number(state.carrier[s] === NOBODY && state.flagCell[s] === state.stands[s])),
      ...both.map((s) => Number(state.carrier[s] !== NOBODY)),
      Number(state.carrier[1 - team] === p), Number(isActive && state.cooldown[p] === 0),
      state.waiting[p] / config.respawn_period, 1 - state.steps / config.num_steps,
      Math.tanh((state.score[team] - state.score[1 - team]) / 3)];
  };

  // Reads arrays of the members, {shape, data: base64 of float32}.
  const decode = ({shape, data}) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const values = new Float32Array(bytes.buffer), size = values.length / shape[0];
    return Array.from({length: shape[0]}, (_, member) => values.subarray(member * size, (member + 1) * size));
  };

  const add = (out, x, w) => {
    x.forEach((value, i) => {
      if (value) for (let j = 0; j < out.length; j++) out[j] += value * w[i * out.length + j];
    });
    return out;
  };
  const linear = (x, {w, b}) => add(Float64Array.from(b), x, w);
  const relu = (x) => x.map((value) => Math.max(value, 0));
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const oneHot = (index, size) => Array.from({length: size}, (_, i) => Number(i === index));

  // The member of each seat, in turn; `arrays` are those of a shipped population.
  const makeMembers = (arrays, count) => {
    const parts = Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, decode(array)]));
    const makeMember = (rewards, member) => {
      const layer = (name) => ({w: parts[`params/${name}/w`][member], b: parts[`params/${name}/b`][member]});
      const of = (name) => parts[`params/lstm/${name}`][member];
      const heads = {move: 0, tag: 2, turn: 4};
      const begin = () => ({hidden: new Float64Array(64), cell: new Float64Array(64), action: null, reward: 0});
      // Logits of each part of the action, and the new state.
      const think = (memory, observation) => {
        const {action, reward} = memory;
        const features = relu(linear(observation, layer('observation_embedding/~/mlp_torso/linear')));
        const input = [...features, ...oneHot(action?.move, 5), ...oneHot(action?.tag, 2), ...oneHot(action?.turn, 3), Math.tanh(reward)];
        const gates = add(add(Float64Array.from(of('b')), input, of('w_i')), memory.hidden, of('w_h'));
        const cell = memory.cell.map((old, i) => sigmoid(gates[128 + i] + 1) * old + sigmoid(gates[i]) * Math.tanh(gates[64 + i]));
        const hidden = cell.map((value, i) => sigmoid(gates[192 + i]) * Math.tanh(value));
        const logits = Object.fromEntries(Object.entries(heads).map(([part, index]) =>
          [part, [...linear(relu(linear(hidden, layer(index ? `policy_head/linear_${index}` : 'policy_head/linear'))), layer(`policy_head/linear_${index + 1}`))]]));
        return {logits, memory: {...memory, hidden, cell}};
      };
      const reward = (events) => events.reduce((sum, count, i) => sum + count * rewards[i], 0);
      return {begin, think, reward};
    };
    const all = parts.internal_rewards.map(makeMember);
    return Array.from({length: count}, (_, seat) => all[seat % all.length]);
  };

  const sample = (logits) => {
    const most = Math.max(...logits), weights = logits.map((x) => Math.exp(x - most));
    let rest = Math.random() * weights.reduce((sum, w) => sum + w, 0);
    return Math.max(weights.findIndex((w) => (rest -= w) < 0), 0);
  };

  // Moves of the person's teammate and of opponents for each of the person's.
  const LEVELS = {easy: [1 / 3, 1 / 2], normal: [1 / 2, 2 / 3], hard: [1, 1]};
  const REST = {move: 0, turn: 0, tag: 0};

  // Actions of all seats in a state. On the first one sits a person with this
  // action or, without one, a member; members' memories advance in `minds`.
  const act = (config, members, minds, state, level, person) => config.teams.map((team, seat) => {
    if (seat === 0 && person) return person;
    const {logits, memory} = members[seat].think(minds[seat], observe(config, state, seat));
    const pace = LEVELS[level][Number(team !== config.teams[0])], due = (step) => Math.floor(step * pace + 1e-6);
    const action = due(state.steps + 1) === due(state.steps) ? REST
      : Object.fromEntries(Object.entries(logits).map(([part, values]) => [part, sample(values)]));
    minds[seat] = {...memory, action};
    return action;
  });

  // A saved game: the fields given, with what the map and the steps lead to.
  const record = (config, map, steps, fields) => {
    const states = [start(config, map)];
    for (const actions of steps) states.push(step(config, states.at(-1), actions).state);
    return {...fields, facts: {...config, tiles: map.tiles, stands: map.stands}, states: states.map(shown), actions: steps};
  };

  // A game as text: its map, then one letter for each action.
  const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
  const write = (map, steps) => `${map}.${steps.map((actions) => actions.map(({move, turn, tag}) =>
    LETTERS[(move * 3 + turn) * 2 + tag]).join('')).join('')}`;
  const read = (text, count) => {
    const [, map, letters] = /^(\d+)\.([A-Za-d]*)$/.exec(text) || [];
    if (!letters || letters.length % count) return null;
    const steps = [];
    for (let i = 0; i < letters.length; i += count) {
      steps.push([...letters.slice(i, i + count)].map((letter) => {
        const code = LETTERS.indexOf(letter);
        return {move: Math.floor(code / 6), turn: Math.floor(code / 2) % 3, tag: code % 2};
      }));
    }
    return {map: Number(map), steps};
  };

  // A match as text: its level, then its games.
  const writeMatch = ({level, games}) => [level, ...games.map(({map, steps}) => write(map, steps))].join('~');
  const readMatch = (text, count) => {
    const [level, ...games] = text.split('~'), found = games.map((one) => read(one, count));
    return level in LEVELS && found.length && found.length < 9 && found.every(Boolean) ? {level, games: found} : null;
  };

  return {start, shown, step, observe, makeMembers, sample, act, record, LEVELS, write, read, writeMatch, readMatch};
})();
