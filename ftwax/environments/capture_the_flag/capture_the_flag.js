'use strict';
ftwax.games.capture_the_flag = (() => {
  const WALL = 1, PAD = 2, STAND = 3;
  // Columns and rows that a step in each direction adds, from north clockwise.
  const STEPS = [[0, -1], [1, 0], [0, 1], [-1, 0]];
  const TEAMS = ['Blue', 'Red'];
  // First moves, with advice on the goal of the game.
  const BEGIN = 30;

  const read = (facts, state) => {
    const count = facts.teams.length;
    const players = facts.teams.map((team, i) => {
      const [cell, direction, waiting, cooldown] =
        [0, 1, 2, 3].map((part) => state[9 + part * count + i]);
      return {team, cell, direction, waiting, cooldown};
    });
    const flags = [0, 1].map((team) =>
      ({team, carrier: state[3 + team], cell: state[5 + team]}));
    const cue = state[9 + 4 * count];
    return {steps: state[0], score: [state[1], state[2]], players, flags, cue};
  };

  const square = ({context}, x, y, color) => {
    context.fillStyle = color;
    context.fillRect(x, y, 1.01, 1.01);  // No seams.
  };

  const stand = (picture, x, y, color) => {
    const {context} = picture;
    context.strokeStyle = color;
    context.lineWidth = 0.1;
    context.strokeRect(x + 0.14, y + 0.14, 0.72, 0.72);
  };

  const flag = ({context, colors}, x, y, color, edge = colors.text, size = 1, foot = 0.9, line = 0.05) => {
    context.fillStyle = color;
    context.strokeStyle = edge;
    context.lineWidth = line * size;
    context.beginPath();
    context.moveTo(x + 0.3 * size, y + foot * size);
    context.lineTo(x + 0.3 * size, y + 0.12 * size);
    context.lineTo(x + 0.85 * size, y + 0.32 * size);
    context.lineTo(x + 0.3 * size, y + 0.52 * size);
    context.fill();
    context.stroke();
  };

  // `painting.py` paints films in the same shapes and colours.
  const figure = (picture, x, y, angle, color, label) => {
    const {context, colors} = picture;
    context.save();
    context.translate(x + 0.5, y + 0.5);
    context.rotate(angle);
    context.fillStyle = color;
    context.beginPath();
    context.roundRect(-0.36, -0.36, 0.72, 0.72, 0.14);
    context.fill();
    context.fillStyle = colors.nose;
    context.beginPath();
    context.moveTo(0, -0.36);
    context.lineTo(0.18, -0.1);
    context.lineTo(-0.18, -0.1);
    context.fill();
    context.rotate(-angle);
    if (label) {
      context.font = '600 0.36px system-ui, sans-serif';
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(label, -Math.sin(angle) * 0.14, Math.cos(angle) * 0.14);
    }
    context.restore();
  };

  // Marks the figure of the person who looks.
  const ring = ({context, colors}, x, y) => {
    context.strokeStyle = colors.text;
    context.lineWidth = 0.09;
    context.beginPath();
    context.arc(x + 0.5, y + 0.5, 0.56, 0, 7);
    context.stroke();
  };

  const place = (facts, from, to, share) => {
    const at = (cell) => [cell % facts.width, Math.floor(cell / facts.width)];
    const [x, y] = at(to);
    if (from === undefined) return [x, y];
    const [fromX, fromY] = at(from);
    const jumps = Math.abs(x - fromX) + Math.abs(y - fromY) > 1;
    return jumps ? [x, y]
      : [fromX + (x - fromX) * share, fromY + (y - fromY) * share];
  };

  const drawMap = (picture, facts) => {
    const {colors} = picture;
    facts.tiles.forEach((tile, cell) => {
      const x = cell % facts.width, y = Math.floor(cell / facts.width);
      square(picture, x, y, tile === WALL ? colors.wall
        : tile === PAD ? colors.pad : colors.floor);
    });
    facts.stands.forEach((cell, team) => stand(picture, cell % facts.width,
      Math.floor(cell / facts.width), colors[`team${team}`]));
  };

  const drawTag = ({context}, facts, player, x, y, color, share) => {
    const [dx, dy] = STEPS[player.direction];
    context.strokeStyle = color;
    context.globalAlpha = 1 - share;
    context.lineWidth = 0.12;
    context.beginPath();
    context.moveTo(x + 0.5 + dx * 0.4, y + 0.5 + dy * 0.4);
    for (let i = 1; i <= 4; i++) {
      const cell = player.cell + i * (dx + dy * facts.width);
      if (facts.tiles[cell] === WALL) break;
      context.lineTo(x + 0.5 + dx * i, y + 0.5 + dy * i);
    }
    context.stroke();
    context.globalAlpha = 1;
  };

  // Players between two states: where they are, and where they face.
  const between = (facts, fromState, toState, share) => {
    const to = read(facts, toState), from = fromState && read(facts, fromState);
    const places = to.players.map((player, i) =>
      place(facts, from ? from.players[i].cell : undefined, player.cell, share));
    const angles = to.players.map((player, i) => {
      const before = from ? from.players[i].direction : player.direction;
      let turn = (player.direction - before + 4) % 4;
      if (turn === 3) turn = -1;
      return (before + turn * share) * Math.PI / 2;
    });
    return {...to, places, angles};
  };

  const draw = (picture, facts, fromState, toState, share) => {
    const {colors} = picture;
    const {players, flags, places, angles} = between(facts, fromState, toState, share);
    drawMap(picture, facts);
    players.forEach((player, i) => {
      if (player.waiting) return;
      const color = colors[`team${player.team}`];
      if (player.cooldown === facts.tag_cooldown)
        drawTag(picture, facts, player, ...places[i], color, share);
      figure(picture, ...places[i], angles[i], color, String(i + 1));
      if (i === picture.own) ring(picture, ...places[i]);
    });
    flags.forEach(({team, carrier, cell}) => {
      const [x, y] = carrier >= 0 ? places[carrier]
        : [cell % facts.width, Math.floor(cell / facts.width)];
      // A carrier keeps its number: its flag is small, above a corner.
      if (carrier >= 0) flag(picture, x + 0.4, y, colors[`team${team}`], colors.nose, 0.7, 0.6);
      else flag(picture, x, y, colors[`team${team}`]);
    });
  };

  // In first person, a picture is 3 wide and 2 high, over the angle of the rays.
  const LOOK = [3, 2], HORIZON = 1, COLUMNS = 300, NEAREST = 0.1, MOST_CROSSED = 1000;
  const SKY = [206, 216, 226], FLOOR = [198, 190, 172], STONE = [150, 146, 158], INK = '#1d1c1a';
  const shaded = (rgb, light) => `rgb(${rgb.map((part) => Math.round(part * light)).join(' ')})`;
  const lightAt = (distance) => 12 / (12 + distance);
  const angleOf = (facts) => (facts.view_angle || 120) * Math.PI / 180;
  // The height of a wall at a distance of a cell.
  const heightOf = (facts) => LOOK[0] / angleOf(facts);

  const backdrop = ({context}) => {
    for (const [rgb, y, far] of [[SKY, 0, 1], [FLOOR, HORIZON, 0]]) {
      const shade = context.createLinearGradient(0, y, 0, y + 1);
      shade.addColorStop(far, shaded(rgb, 0.6));
      shade.addColorStop(1 - far, shaded(rgb, 1));
      context.fillStyle = shade;
      context.fillRect(0, y, LOOK[0], 1);
    }
  };

  // A strip of a column of the picture, `high` where a wall would be.
  const strip = ({context}, column, count, color, high, top, bottom) => {
    const width = LOOK[0] / count;
    context.fillStyle = color;
    // Reaches under the next one, so that no seams show.
    context.fillRect(column * width, HORIZON - top * high, width * 1.6, (top - bottom) * high);
  };

  // How far a ray from a point runs to a wall, and on which axis it meets it.
  const castRay = (facts, x, y, angle) => {
    const way = [Math.sin(angle), -Math.cos(angle)], cell = [Math.floor(x), Math.floor(y)];
    const sign = way.map(Math.sign), step = way.map((speed) => Math.min(Math.abs(1 / speed), 1e9));
    const next = [x, y].map((at, axis) =>
      (sign[axis] > 0 ? cell[axis] + 1 - at : at - cell[axis]) * step[axis]);
    // A saved game may say that it has no width, or no walls.
    for (let crossed = 0; ; crossed++) {
      const axis = next[0] < next[1] ? 0 : 1, distance = next[axis];
      cell[axis] += sign[axis];
      next[axis] += step[axis];
      const tile = facts.tiles[cell[1] * facts.width + cell[0]];
      if (tile === WALL || tile === undefined || crossed > MOST_CROSSED) return {distance, axis};
    }
  };

  // Places of the map as a player sees them: cells ahead, cells to the right.
  const seenFrom = (x, y, angle) => (atX, atY) => {
    const [ahead, right] = [[Math.sin(angle), -Math.cos(angle)], [Math.cos(angle), Math.sin(angle)]];
    return [ahead, right].map(([dx, dy]) => (atX - x) * dx + (atY - y) * dy);
  };

  // A cell of the floor, from its near to its far edge, smaller by a margin.
  const tile = (picture, facts, see, cell, color, margin = 0) => {
    const {context} = picture, x = cell % facts.width, y = Math.floor(cell / facts.width);
    const ends = [margin, 1 - margin];
    const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([i, j]) => see(x + ends[i], y + ends[j]));
    if (corners.every(([ahead]) => ahead < NEAREST)) return;
    context.fillStyle = color;
    context.beginPath();
    for (const [ahead, right] of corners) {
      const depth = Math.max(ahead, NEAREST);
      context.lineTo(LOOK[0] * (Math.atan2(right, depth) / angleOf(facts) + 0.5),
        HORIZON + heightOf(facts) / depth / 2);
    }
    context.fill();
  };

  const drawFloor = (picture, facts, see) => {
    const {colors} = picture;
    facts.tiles.forEach((kind, cell) => {
      if (kind === WALL) return;
      if (kind === PAD) tile(picture, facts, see, cell, colors.pad, 0.1);
      else if ((cell % facts.width + Math.floor(cell / facts.width)) % 2)
        tile(picture, facts, see, cell, 'rgb(0 0 0 / 8%)');
    });
    facts.stands.forEach((cell, team) => {
      tile(picture, facts, see, cell, colors[`team${team}`], 0.08);
      tile(picture, facts, see, cell, shaded(FLOOR, 0.9), 0.2);
    });
  };

  // Draws where walls leave sight of a thing that is so deep and wide.
  const standing = (picture, facts, depths, [ahead, right], paint) => {
    if (ahead < 0.3) return;
    const {context} = picture, high = heightOf(facts) / ahead;
    const middle = LOOK[0] * (Math.atan2(right, ahead) / angleOf(facts) + 0.5), width = LOOK[0] / COLUMNS;
    context.save();
    context.beginPath();
    depths.forEach((depth, column) => {
      if (depth > ahead && Math.abs((column + 0.5) * width - middle) < high) context.rect(column * width, 0, width * 1.02, LOOK[1]);
    });
    context.clip();
    // A box as wide and high as a wall of a cell, from 0 to 1.
    context.translate(middle - high / 2, HORIZON - high / 2);
    context.scale(high, high);
    paint();
    context.restore();
  };

  // A player: two eyes where its face is to be seen, and its number.
  const person = ({context, colors}, color, label, turn, isTagging) => {
    context.fillStyle = 'rgb(0 0 0 / 25%)';
    context.beginPath();
    context.ellipse(0.5, 0.99, 0.3, 0.04, 0, 0, 7);
    context.fill();
    context.fillStyle = color;
    if (isTagging) [context.shadowColor, context.shadowBlur] = [color, 30];
    context.beginPath();
    context.roundRect(0.24, 0.3, 0.52, 0.7, [0.26, 0.26, 0.08, 0.08]);
    context.fill();
    context.shadowBlur = 0;
    context.fillStyle = colors.nose;
    for (const side of [-1, 1]) {
      const angle = turn + side * 0.45;
      if (Math.cos(angle) > -0.2) continue;  // On the other side of the head.
      context.beginPath();
      context.ellipse(0.5 - Math.sin(angle) * 0.25, 0.48, 0.05, 0.07, 0, 0, 7);
      context.fill();
    }
    context.font = '600 0.26px system-ui, sans-serif';
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillText(label, 0.5, 0.78);
  };

  const look = (picture, facts, fromState, toState, share, seat) => {
    const {context, colors} = picture, moment = between(facts, fromState, toState, share);
    const {players, flags, places, angles} = moment, me = players[seat];
    const [x, y] = places[seat].map((at) => at + 0.5), angle = angles[seat];
    if (me.waiting) return void dark(picture);
    const see = seenFrom(x, y, angle), middle = ([left, top]) => see(left + 0.5, top + 0.5);
    backdrop(picture);
    drawFloor(picture, facts, see);
    const depths = Array.from({length: COLUMNS}, (_, column) => {
      const aside = angleOf(facts) * ((column + 0.5) / COLUMNS - 0.5);
      const {distance, axis} = castRay(facts, x, y, angle + aside);
      const depth = Math.max(distance * Math.cos(aside), NEAREST);
      const color = shaded(STONE, lightAt(distance) * (axis ? 1 : 0.86));
      strip(picture, column, COLUMNS, color, heightOf(facts) / depth, 0.5, -0.5);
      return depth;
    });
    const things = players.map((player, i) => ({at: middle(places[i]), shown: i !== seat && !player.waiting, paint: () =>
      person(picture, colors[`team${player.team}`], String(i + 1), angles[i] - angle, player.cooldown === facts.tag_cooldown)}));
    flags.forEach(({team, carrier, cell}) => things.push({
      at: middle(carrier >= 0 ? places[carrier] : [cell % facts.width, Math.floor(cell / facts.width)]),
      shown: carrier !== seat,
      // One that is carried is held above the head.
      paint: () => carrier >= 0 ? flag(picture, 0.35, -0.02, colors[`team${team}`], colors.nose, 0.6, 0.6, 0.03)
        : flag(picture, 0.1, 0.1, colors[`team${team}`], INK, 1, 0.9, 0.02),
    }));
    things.filter(({shown}) => shown).sort((one, other) => other.at[0] - one.at[0])
      .forEach(({at, paint}) => standing(picture, facts, depths, at, paint));
    drawHands(picture, facts, moment, seat, share);
  };

  // What a player sees that waits.
  const dark = ({context, colors}) => {
    context.fillStyle = colors.unseen;
    context.fillRect(0, 0, ...LOOK);
  };

  // What is a player's own: its tag, its aim and the flag that it carries.
  const drawHands = (picture, facts, {players, flags}, seat, share) => {
    const {context, colors} = picture, {team, cooldown} = players[seat];
    const middle = LOOK[0] / 2;
    if (cooldown === facts.tag_cooldown) {
      context.globalAlpha = 1 - share;
      context.fillStyle = colors[`team${team}`];
      context.beginPath();
      context.moveTo(middle - 0.12, LOOK[1]);
      context.lineTo(middle, HORIZON);
      context.lineTo(middle + 0.12, LOOK[1]);
      context.fill();
      context.globalAlpha = 1;
    }
    context.strokeStyle = cooldown ? 'rgb(255 255 255 / 40%)' : '#fff';
    context.lineWidth = 0.012;
    context.beginPath();
    context.arc(middle, HORIZON, 0.035, 0, 7);
    context.stroke();
    if (flags[1 - team].carrier !== seat) return;
    context.save();
    context.translate(0.08, LOOK[1] - 0.75);
    context.scale(0.7, 0.7);
    flag(picture, 0, 0, colors[`team${1 - team}`], INK, 1, 0.9, 0.02);
    context.restore();
  };

  // Tops and bottoms of what rays hit, in the order of their channels; as
  // `columns.py` draws them.
  const SHAPES = [[0.5, -0.5], [0.2, -0.5], [0.2, -0.5], [0.45, 0.2], [0.45, 0.2], [-0.4, -0.5], [-0.4, -0.5]];
  const drawRays = (picture, facts, rays) => {
    const count = rays[0].length, {colors} = picture;
    const own = [null, colors.team0, colors.team1, colors.team0, colors.team1, colors.team0, colors.team1];
    backdrop(picture);
    for (let column = 0; column < count; column++) {
      const cos = Math.cos(angleOf(facts) * ((column + 0.5) / count - 0.5));
      const hits = rays.map((channel, i) => ({near: channel[column], i})).filter(({near}) => near > 0 && near < 1);
      for (const {near, i} of hits.sort((one, other) => one.near - other.near)) {
        const distance = 1 / near - 1;
        strip(picture, column, count, own[i] || shaded(STONE, lightAt(distance)), heightOf(facts) / (distance * cos), ...SHAPES[i]);
      }
    }
  };

  // Bits of a cell, in the order of the channels of the observation.
  const drawView = (picture, facts, view) => {
    const {context, colors} = picture, size = facts.view_size;
    if (view.rays) return void drawRays(picture, facts, view.rays);
    if (view.frame && facts.first_person) return void ftwax.drawFrame(picture, view.frame, LOOK);
    if (view.frame) return void ftwax.drawFrame(picture, view.frame, [size, size]);
    view.cells.forEach((bits, cell) => {
      const x = cell % size, y = Math.floor(cell / size);
      square(picture, x, y, bits & 1 ? colors.wall : colors.floor);
      if (bits & 32) stand(picture, x, y, colors.team0);
      if (bits & 64) stand(picture, x, y, colors.team1);
      if (bits & 2) figure(picture, x, y, 0, colors.team0, '+');
      if (bits & 4) figure(picture, x, y, 0, colors.team1, '!');
      if (bits & 8) flag(picture, x, y, colors.team0);
      if (bits & 16) flag(picture, x, y, colors.team1);
    });
    const scalar = Object.fromEntries(
      facts.scalars.map((name, i) => [name, view.scalars[i]]));
    if (!scalar.time_i_wait)
      figure(picture, (size - 1) / 2, size - 1 - facts.view_behind, 0,
        colors.team0, '');
    context.fillStyle = colors.back;
    context.fillRect(size, 0, 3, size);
    compass(picture, scalar, 'own_flag', size + 1, 1, colors.team0);
    compass(picture, scalar, 'enemy_flag', size + 1, 3, colors.team1);
    if (scalar.i_carry_the_flag) flag(picture, size + 1, 5, colors.team1);
  };

  // Where a flag lies, as the agent is told; ahead is up.
  const compass = (picture, scalar, name, x, y, color) => {
    const {context} = picture;
    flag(picture, x - 0.5, y, color);
    const ahead = scalar[`${name}_ahead`], right = scalar[`${name}_right`];
    if (!ahead && !right) return;
    context.save();
    context.translate(x + 0.9, y + 0.5);
    context.rotate(Math.atan2(right, ahead));
    context.fillStyle = color;
    context.beginPath();
    context.moveTo(0, -0.4);
    context.lineTo(0.25, 0.3);
    context.lineTo(-0.25, 0.3);
    context.fill();
    context.restore();
  };

  const status = (facts, state) => {
    const {score, steps} = read(facts, state);
    return `Blue ${score[0]} : ${score[1]} Red, ${facts.num_steps - steps} moves left`;
  };

  const viewStatus = (facts, view) => {
    if (!view.scalars) return '';
    const scalar = (name) => view.scalars[facts.scalars.indexOf(name)];
    const lead = Math.round(3 * Math.atanh(scalar('lead')));
    const left = Math.round(scalar('time_left') * facts.num_steps);
    return `Your lead ${lead}, ${left} moves left`;
  };

  const rules = (facts, own) => {
    const [us, them] = facts.teams[own] ? ['Red', 'Blue'] : ['Blue', 'Red'];
    return [
      own < 0 ? 'Each team grabs the flag of the other and brings it to the frame of its own colour.'
        : `Grab the ${them.toLowerCase()} team's flag and bring it to your ${us.toLowerCase()} frame. You are the figure in the ring.`,
      `It only counts while your own flag is home. Most points after ${facts.num_steps} moves win.`,
      `Tag an opponent up to ${facts.tag_range} cells straight ahead: who is tagged drops the flag and waits for ${facts.respawn_period} moves.`,
      'Your flag lies somewhere? Step on it, and it is home.',
      ...(facts.scalars.includes('cue') ? ['In some games a team has to tag in the move that captures a flag, in others it must not, or the others get the point. Only the first moves tell.'] : []),
    ];
  };

  // What a person on a seat should know now.
  const advice = (facts, state, own, speed) => {
    const {steps, players, flags, cue} = read(facts, state);
    const {team, waiting} = players[own];
    if (cue) return `Remember: ${cue < 0 ? 'tag' : 'do not tag'} in the move that captures a flag`;
    if (waiting) return `You were tagged, back in ${Math.ceil(waiting / speed)}`;
    if (flags[1 - team].carrier === own)
      return flags[team].carrier >= 0 ? 'You have the flag, but yours is taken: get it back first'
        : `You have the flag: bring it to the ${team ? 'red' : 'blue'} frame`;
    if (flags[team].carrier >= 0) return `Player ${flags[team].carrier + 1} has your flag: tag them`;
    // Until the person has seen what there is to do.
    return steps < BEGIN ? `Grab the ${team ? 'blue' : 'red'} flag and bring it to your ${team ? 'red' : 'blue'} frame` : '';
  };

  const events = (facts, fromState, toState) => {
    if (!fromState) return [];
    const from = read(facts, fromState), to = read(facts, toState);
    const said = [];
    to.flags.forEach(({team, carrier}) => {
      if (carrier >= 0 && from.flags[team].carrier !== carrier)
        said.push(`Player ${carrier + 1} took the ${TEAMS[team].toLowerCase()} flag.`);
    });
    to.players.forEach((player, i) => {
      if (player.waiting && !from.players[i].waiting)
        said.push(`Player ${i + 1} was tagged.`);
    });
    [0, 1].forEach((team) => {
      if (to.score[team] > from.score[team])
        said.push(`${TEAMS[team]} captured a flag: ${to.score[0]} to ${to.score[1]}.`);
    });
    return said;
  };

  return {
    teams: TEAMS,
    size: (facts) => [facts.width, facts.height],
    viewSize: (facts) => facts.first_person ? LOOK : [facts.view_size + 3, facts.view_size],
    // Arrows are relative to who looks in first person.
    turned: {ArrowUp: 'KeyW', ArrowDown: 'KeyS', ArrowLeft: 'KeyQ', ArrowRight: 'KeyE'},
    lookSize: () => LOOK, look, castRay,
    draw, drawView, status, viewStatus, rules, advice, events, read,
  };
})();
