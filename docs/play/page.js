'use strict';
// The page: one person on the first seat, members on the others, or a replay.
(() => {
  const {element, data} = ftwax, {config, maps} = data;
  const byId = (id) => document.getElementById(id);
  const game = ftwax.games.capture_the_flag, stage = new ftwax.Stage(byId('canvas'), 'capture_the_flag');
  const members = flags.makeMembers(data.arrays), count = config.teams.length;
  const KEYS = {ArrowUp: ['↑', 'up', 0], ArrowLeft: ['←', 'left', 3], ArrowDown: ['↓', 'down', 2], ArrowRight: ['→', 'right', 1], Space: ['Space', 'tag']};
  // Turn and move that go so many quarter turns to the right.
  const QUARTERS = [{turn: 0, move: 1}, {turn: 2, move: 1}, {turn: 2, move: 4}, {turn: 1, move: 1}];
  const down = new Set(), pressed = new Set();
  let map, state, minds, steps, timer = 0, last = 0, replay = null, plays = false;

  const rate = () => Number(byId('speed').value);
  const begin = (index) => {
    map = index % maps.length;
    state = flags.start(config, maps[map]);
    minds = members.map((member) => member.begin());
    steps = [];
    stage.own = replay ? -1 : 0;
    const facts = {...config, tiles: state.tiles, stands: state.stands};
    stage.start(facts);
    stage.show(flags.shown(state), 1);
    byId('rules').replaceChildren(...game.rules(facts, stage.own).map((textContent) => element('li', {textContent})));
    byId('share').hidden = true;
    byId('copied').textContent = '';
    byId('advice').hidden = true;
  };

  const person = () => {
    const keys = [...down, ...pressed], arrow = keys.findLast((code) => code.startsWith('Arrow'));
    pressed.clear();
    const go = arrow ? QUARTERS[(KEYS[arrow][2] - state.direction[0] + 4) % 4] : {turn: 0, move: 0};
    return {...go, tag: Number(keys.includes('Space'))};
  };

  const act = () => Array.from({length: count}, (_, seat) => {
    if (seat === 0) return person();
    const {logits, memory} = members[seat].think(minds[seat], flags.observe(config, state, seat));
    const rests = state.steps % Number(byId('pace').value);
    const action = rests ? {move: 0, turn: 0, tag: 0}
      : Object.fromEntries(Object.entries(logits).map(([part, values]) => [part, flags.sample(values)]));
    minds[seat] = {...memory, action};
    return action;
  });

  const tick = () => {
    const actions = replay ? replay[state.steps] : act();
    const made = flags.step(config, state, actions);
    steps.push(actions);
    state = made.state;
    minds.forEach((mind, seat) => { mind.reward = members[seat].reward(made.events[seat]); });
    stage.show(flags.shown(state), 1000 / rate());
    byId('status').textContent = game.status(stage.facts, flags.shown(state));
    const advice = replay ? '' : game.advice(stage.facts, flags.shown(state), 0, rate());
    if (byId('advice').textContent !== advice) byId('advice').textContent = advice;
    byId('advice').hidden = !advice;
    last = performance.now();
    if (state.steps >= (replay ? replay.length : config.num_steps)) end();
    else schedule(1000 / rate());
  };
  const schedule = (wait) => { clearTimeout(timer); timer = plays ? setTimeout(tick, wait) : 0; };

  const end = () => {
    const [ours, theirs] = state.score;
    byId('status').textContent += `. ${replay ? 'The end.' : ours > theirs ? 'You won.' : ours < theirs ? 'You lost.' : 'A draw.'}`;
    byId('share').hidden = Boolean(replay);
    plays = false;
    show();
  };
  const show = () => { byId('play').textContent = plays ? 'Pause (Esc)' : replay ? 'Watch the replay' : 'Play'; };
  const toggle = () => {
    if (!plays && state.steps >= (replay ? replay.length : config.num_steps)) begin(replay ? map : map + 1);
    plays = !plays;
    schedule(0);
    show();
  };

  // A key is answered at once, but not faster than 15 steps a second.
  const press = (code, isDown) => {
    if (isDown && !down.has(code)) {
      pressed.add(code);
      if (!plays && !state.steps) toggle();
      else schedule(Math.max(1000 / 15 - (performance.now() - last), 0));
    }
    if (isDown) down.add(code); else down.delete(code);
    document.querySelector(`.${code}`).classList.toggle('down', isDown);
  };
  const ours = (event) => event.code in KEYS && !(event.code === 'Space' && event.target.closest?.('button, a, input'))
    && !/^(INPUT|SELECT)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey && !event.altKey;
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return toggle();
    if (!ours(event) || replay) return;
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

  // After a click the keys belong to the game, whatever was clicked.
  addEventListener('click', (event) => { if (event.detail && !event.target.closest('select')) byId('canvas').focus({preventScroll: true}); });
  byId('pace').onchange = () => byId('canvas').focus();
  byId('play').onclick = () => { toggle(); byId('canvas').focus(); };
  byId('new_map').onclick = () => {
    replay = null;
    plays = false;
    history.replaceState(null, '', location.pathname);
    byId('pad').hidden = false;
    begin(map + 1);
    schedule(0);
    show();
    byId('status').textContent = 'Press Play, or an arrow key.';
    byId('canvas').focus();
  };
  byId('share').onclick = async () => {
    history.replaceState(null, '', `#${flags.write(map, steps)}`);
    try { await navigator.clipboard.writeText(location.href); byId('copied').textContent = 'Copied.'; }
    catch { byId('copied').textContent = 'The link is the address of this page.'; }
  };
  addEventListener('hashchange', () => location.reload());  // Another shared game.
  const shared = flags.read(location.hash.slice(1), count);
  if (shared) {
    replay = shared.steps.slice(0, config.num_steps);
    byId('pad').hidden = true;
    byId('status').textContent = 'A game that somebody played.';
  } else if (location.hash) byId('status').textContent = 'This link holds no game. Press Play for a new one.';
  begin(shared ? shared.map : Math.floor(Math.random() * maps.length));
  show();
})();
