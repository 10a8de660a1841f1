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

  const flag = ({context, colors}, x, y, color, edge = colors.text, size = 1, foot = 0.9) => {
    context.fillStyle = color;
    context.strokeStyle = edge;
    context.lineWidth = 0.05 * size;
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

  const draw = (picture, facts, fromState, toState, share) => {
    const {colors} = picture;
    const to = read(facts, toState), from = fromState && read(facts, fromState);
    drawMap(picture, facts);
    const places = to.players.map((player, i) =>
      place(facts, from ? from.players[i].cell : undefined, player.cell, share));
    to.players.forEach((player, i) => {
      if (player.waiting) return;
      const before = from ? from.players[i].direction : player.direction;
      let turn = (player.direction - before + 4) % 4;
      if (turn === 3) turn = -1;
      const angle = (before + turn * share) * Math.PI / 2;
      const color = colors[`team${player.team}`];
      if (player.cooldown === facts.tag_cooldown)
        drawTag(picture, facts, player, ...places[i], color, share);
      figure(picture, ...places[i], angle, color, String(i + 1));
      if (i === picture.own) ring(picture, ...places[i]);
    });
    to.flags.forEach(({team, carrier, cell}) => {
      const [x, y] = carrier >= 0 ? places[carrier]
        : [cell % facts.width, Math.floor(cell / facts.width)];
      // A carrier keeps its number: its flag is small, above a corner.
      if (carrier >= 0) flag(picture, x + 0.4, y, colors[`team${team}`], colors.nose, 0.7, 0.6);
      else flag(picture, x, y, colors[`team${team}`]);
    });
  };

  // Bits of a cell, in the order of the channels of the observation.
  const drawView = (picture, facts, view) => {
    const {context, colors} = picture, size = facts.view_size;
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
    viewSize: (facts) => [facts.view_size + 3, facts.view_size],
    draw, drawView, status, viewStatus, rules, advice, events, read,
  };
})();
