'use strict';
// The page: a match of a person on the first seat, a replay of one, and until
// then a game that the members play among themselves.
(() => {
  const {element, data} = ftwax, {config, maps} = data;
  const byId = (id) => document.getElementById(id);
  const game = ftwax.games.capture_the_flag, stage = ftwax.stage = new ftwax.Stage(byId('canvas'), 'capture_the_flag');
  const count = config.teams.length, members = flags.makeMembers(data.arrays, count);
  const KEYS = {ArrowUp: ['↑', 'up', 0], ArrowLeft: ['←', 'left', 3], ArrowDown: ['↓', 'down', 2], ArrowRight: ['→', 'right', 1], Space: ['Space', 'tag']};
  // Turn and move that go so many quarter turns to the right.
  const QUARTERS = [{turn: 0, move: 1}, {turn: 2, move: 1}, {turn: 2, move: 4}, {turn: 1, move: 1}];
  // In first person, arrows are relative to the player.
  const TURNED = {ArrowUp: 'ahead', ArrowLeft: 'turn left', ArrowDown: 'back', ArrowRight: 'turn right', Space: 'tag'};
  const down = new Set(), pressed = new Set();
  const isStill = matchMedia('(prefers-reduced-motion: reduce)').matches;
  // A match is its level and games, as {map, steps, score}; `shared` is one to watch.
  let shared = null, match = null, map, state, minds, steps, length, timer = 0, last = 0, plays = false;

  const rate = () => Number(byId('speed').value);
  const level = () => document.querySelector('#levels :checked').value;
  const watched = () => shared && match && shared.games[match.games.length];
  const won = (side) => (match || {games: []}).games.filter(({score}) => (score[0] > score[1]) === (side === 0)).length;
  const isDecided = () => match && (won(0) > 1 || won(1) > 1 || (shared && match.games.length >= shared.games.length));

  const begin = (index) => {
    map = index % maps.length;
    state = flags.start(config, maps[map]);
    minds = members.map((member) => member.begin());
    steps = [];
    length = watched()?.steps.length ?? config.num_steps;
    stage.own = match && !shared ? 0 : -1;
    const facts = {...config, tiles: state.tiles, stands: state.stands};
    stage.start(facts);
    stage.show(flags.shown(state), 1);
    byId('rules').replaceChildren(...game.rules(facts, shared ? -1 : 0).map((textContent) => element('li', {textContent})));
    const advice = match && !shared ? game.advice(facts, flags.shown(state), 0, rate()) : '';
    byId('advice').textContent = advice;
    byId('advice').hidden = !advice;
  };

  const person = () => {
    if (stage.looks) {
      const is = (code) => down.has(code) || pressed.has(code);
      const choice = {move: is('ArrowUp') ? 1 : is('ArrowDown') ? 2 : 0, tag: Number(is('Space')),
        turn: pressed.has('ArrowLeft') ? 1 : pressed.has('ArrowRight') ? 2 : 0};  // Once for each press.
      pressed.clear();
      return choice;
    }
    const keys = [...down, ...pressed], arrow = keys.findLast((code) => code.startsWith('Arrow'));
    pressed.clear();
    const go = arrow ? QUARTERS[(KEYS[arrow][2] - state.direction[0] + 4) % 4] : {turn: 0, move: 0};
    return {...go, tag: Number(keys.includes('Space'))};
  };

  const tick = () => {
    const actions = watched() ? watched().steps[state.steps]
      : flags.act(config, members, minds, state, match ? match.level : 'hard', match && person());
    const made = flags.step(config, state, actions);
    steps.push(actions);
    state = made.state;
    minds.forEach((mind, seat) => { mind.reward = members[seat].reward(made.events[seat]); });
    stage.show(flags.shown(state), 1000 / rate());
    if (match) byId('status').textContent = `Game ${match.games.length + 1}: ${game.status(stage.facts, flags.shown(state))}`;
    const advice = match && !shared ? game.advice(stage.facts, flags.shown(state), 0, rate()) : '';
    if (byId('advice').textContent !== advice) byId('advice').textContent = advice;
    byId('advice').hidden = !advice;
    last = performance.now();
    if (state.steps < length) schedule(1000 / rate());
    else if (match) end();
    else { begin(map + 1); schedule(1000 / rate()); }
  };
  const schedule = (wait) => { clearTimeout(timer); timer = plays || !match ? setTimeout(tick, wait) : 0; };

  const end = () => {
    match.games.push({map, steps, score: [...state.score]});
    plays = false;
    show();
  };

  // What stands in front of the game while nobody plays.
  const show = () => {
    const ended = match?.games.at(-1), isOver = isDecided(), isBetween = ended && state.steps >= length;
    const who = shared ? 'They' : 'You';
    byId('door').hidden = plays;
    byId('levels').hidden = Boolean(match || shared);
    byId('share').hidden = !isOver || Boolean(shared);
    byId('save').hidden = !isBetween || Boolean(shared);
    byId('leave').hidden = !match && !shared;
    byId('leave').textContent = shared ? 'Play yourself' : 'New match';
    byId('pad').hidden = Boolean(shared);
    byId('play').hidden = Boolean(isOver && !shared);
    byId('play').textContent = shared && isOver ? 'Watch again' : !match ? (shared ? 'Watch the replay' : 'Play') : isBetween ? 'Next game' : 'Continue';
    byId('copied').textContent = '';
    const tally = `${won(0)} : ${won(1)}`;
    if (!match) {
      byId('headline').textContent = shared ? `A match on ${shared.level}` : 'Best of three';
      byId('detail').textContent = shared ? 'Did they beat the population?' : 'Grab the red flag and bring it to your blue frame, two against two.';
    } else if (isOver) {
      byId('headline').textContent = won(0) > won(1) ? `${who} beat the population, ${tally}` : `The population won, ${tally}`;
      byId('detail').textContent = `On ${match.level}. Games: ${match.games.map(({score}) => score.join(':')).join(', ')}.`;
    } else if (isBetween) {
      const [ours, theirs] = ended.score;
      byId('headline').textContent = `${ours > theirs ? `${who} won` : ours < theirs ? `${who} lost` : 'A draw'}, ${ours} : ${theirs}`;
      byId('detail').textContent = `Match: ${tally} on ${match.level}.`;
    } else {
      byId('headline').textContent = 'Paused';
      byId('detail').textContent = `Match: ${tally} on ${match.level}.`;
    }
  };

  const toggle = () => {
    const isNew = !plays && (!match || isDecided());
    if (isNew) match = {level: shared ? shared.level : level(), games: []};
    if (isNew || state.steps >= length) begin(watched() ? watched().map : map + 1);
    plays = !plays;
    if (plays) history.replaceState(null, '', shared ? location.href : location.pathname);
    schedule(0);
    show();
    byId('canvas').focus({preventScroll: true});
  };

  // A key is answered at once, but not faster than 15 steps a second.
  const press = (code, isDown) => {
    if (isDown && !plays && !match && !shared) toggle();
    if (isDown && !down.has(code) && plays) {
      pressed.add(code);
      schedule(Math.max(1000 / 15 - (performance.now() - last), 0));
    }
    if (isDown) down.add(code); else down.delete(code);
    document.querySelector(`.${code}`).classList.toggle('down', isDown);
  };
  const ours = (event) => event.code in KEYS && !(event.code === 'Space' && event.target.closest?.('button, a, input'))
    && !/^(INPUT|SELECT)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey && !event.altKey;
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && match) return toggle();
    if (!ours(event) || shared) return;
    event.preventDefault();
    if (!event.repeat) press(event.code, true);
  });
  addEventListener('keyup', (event) => { if (down.has(event.code)) press(event.code, false); });
  addEventListener('blur', () => [...down].forEach((code) => press(code, false)));
  byId('pad').append(...Object.entries(KEYS).map(([code, [cap, label]]) => {
    const button = element('button', {type: 'button', className: code}, element('kbd', {textContent: cap}), element('span', {textContent: label}));
    button.onpointerdown = (event) => { event.preventDefault(); press(code, true); };
    button.onpointerup = button.onpointerleave = button.onpointercancel = () => down.has(code) && press(code, false);
    button.onclick = (event) => { if (!event.detail) { press(code, true); press(code, false); } };
    return button;
  }));
  const looks = ftwax.makeLooks(stage, () => document.querySelectorAll('#pad span').forEach((label, i) => {
    const code = Object.keys(KEYS)[i];
    label.textContent = stage.looks ? TURNED[code] : KEYS[code][1];
  }));
  byId('look').append(looks.row);
  looks.start(count);
  document.querySelectorAll('.of-map, .of-first-person').forEach((part) => {
    part.hidden = part.classList.contains('of-map') === Boolean(config.first_person);
  });
  if (config.first_person) looks.show(0);
  byId('levels').append(...Object.keys(flags.LEVELS).map((name, i) => element('label', {},
    element('input', {type: 'radio', name: 'level', value: name, checked: !i}), ` ${name}`)));

  // After a click the keys belong to the game, whatever was clicked.
  addEventListener('click', ({detail, target}) => {
    if (detail && target.closest('#levels, .keys, #look input, #speed')) setTimeout(() => byId('canvas').focus({preventScroll: true}));
  });
  byId('play').onclick = toggle;
  byId('leave').onclick = () => {
    [shared, match, plays] = [null, null, false];
    history.replaceState(null, '', location.pathname);
    begin(map + 1);
    schedule(0);
    show();
    byId('status').textContent = 'The population plays.';
  };
  byId('share').onclick = async () => {
    history.replaceState(null, '', `#${flags.writeMatch(match)}`);
    const score = `${won(0) > won(1) ? 'I beat' : 'I lost to'} the ftwax population ${won(0)}:${won(1)} on ${match.level} (${match.games.map(({score}) => score.join(':')).join(', ')})`;
    try { await navigator.clipboard.writeText(`${score} ${location.href}`); byId('copied').textContent = `Copied: ${score}, with the link to the replay.`; }
    catch { byId('copied').textContent = 'The link is the address of this page.'; }
  };
  // A file as `ftwax play` writes them: it can replay it, and rate the person.
  byId('save').onclick = () => {
    const now = new Date(), {steps, map, score} = match.games.at(-1);
    const stamp = now.toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-');
    const record = flags.record(config, maps[map], steps, {
      format: 'ftwax game 1', time: now.toISOString(), game: 'capture the flag', script: 'capture_the_flag', code: data.code,
      seats: data.seats, speed: rate(), level: match.level, outcome: score[0] === score[1] ? [0, 0] : score[0] > score[1] ? [1, -1] : [-1, 1]});
    const address = URL.createObjectURL(new Blob([JSON.stringify(record)], {type: 'application/json'}));
    element('a', {href: address, download: `${stamp}-capture_the_flag.json`}).click();
    URL.revokeObjectURL(address);
  };
  addEventListener('hashchange', () => location.reload());  // Another shared match.
  shared = flags.readMatch(location.hash.slice(1), count);
  begin(shared ? shared.games[0].map : Math.floor(Math.random() * maps.length));
  show();
  if (location.hash && !shared) byId('status').textContent = 'This link holds no match.';
  if (shared) byId('status').textContent = 'A match that somebody played.';
  else if (!isStill) schedule(0);
})();
