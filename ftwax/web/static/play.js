'use strict';
(() => {
  const {element} = ftwax;
  const byId = (id) => document.getElementById(id);
  const NAMES = {ArrowUp: '↑', ArrowDown: '↓', ArrowLeft: '←', ArrowRight: '→'};
  let room = null, keys = [], buttons = [], stage = null, looks = null, last = null, socket = null;
  // Players of a game to watch, one a team, such as two members.
  const match = new URLSearchParams(location.search).get('match')?.split(',');
  let arrives = true;
  const down = new Set(), pressed = new Set();
  // Milliseconds from a key to the state that it led to.
  ftwax.latency = [];
  let pressedAt = 0, sent = 0, awaited = 0;

  const send = (message) => {
    if (socket && socket.readyState === WebSocket.OPEN)
      socket.send(JSON.stringify(message));
  };
  const problem = (text) => { byId('problem').textContent = text; };

  const on = {
    hello(message) {
      pressedAt = sent = 0;
      keys = message.keys;
      arrives = true;
      byId('title').textContent = `Play ${message.hello}`;
      stage = ftwax.stage = new ftwax.Stage(byId('canvas'), message.script);
      looks = ftwax.makeLooks(stage, showKeys);
      byId('look_row').replaceChildren(looks.row);
      Object.assign(byId('speed'), {min: message.speeds[0], max: message.speeds[1]});
      ftwax.players = message.players;
      showKeys();
      warmUp.begin(message.script);
      const name = sessionStorage.getItem('name');
      if (name) send({do: 'name', name});
      if (sessionStorage.getItem('seen') === 'yes') { byId('seen').checked = true; send({do: 'view', all: false}); }
    },
    phase(message) {
      room = message;
      if (arrives) arrive();
      const own = stage.own;
      stage.own = room.seats.findIndex(({you}) => you);
      if (own !== stage.own) { showRules(); showLook(); stage.wake(); }
      showRoom();
    },
    facts(message) {
      warmUp.end();
      stage.start(message.facts);
      if (!looked) looks.start(message.facts.teams?.length || 0);
      if (!looked) showLook();
      looked = true;
      last = null;
      values.length = 0;
      byId('result').replaceChildren();
      showRules();
    },
    state(message) {
      told(message.heard);
      const game = stage.game;
      stage.show(message.state, 1000 / (room ? room.speed : 15));
      byId('status').textContent = game.status(stage.facts, message.state);
      const events = game.events(stage.facts, last, message.state);
      if (events.length) byId('said').textContent = events.join(' ');
      last = message.state;
      showAdvice();
    },
    view(message) {
      told(message.heard);
      stage.showView(message.view);
      byId('status').textContent = stage.game.viewStatus(stage.facts, message.view);
    },
    looks(message) { showLooks(message.looks); },
    end(message) { showEnd(message); showGames(); },
    error(message) { problem(message.error); },
  };

  // In games that agents see in first person, people do, too, at first.
  let looked = false;
  const showLook = () => {
    if (stage.facts?.first_person) looks.show(Math.max(stage.own, 0));
    else if (stage.looks && stage.own >= 0) looks.show(stage.own);
  };

  const told = (heard) => {
    if (!pressedAt || heard < awaited) return;
    ftwax.latency.push(performance.now() - pressedAt);
    pressedAt = 0;
  };

  // Until the server has compiled the game, the members play in this page, with
  // the person on the first seat.
  const warmUp = {
    timer: 0, isOver: false,
    async begin(script) {
      if (script !== 'capture_the_flag' || match || stage.facts) return;
      await new Promise((resolve) => document.head.append(element('script', {
        src: new URL(`members.js${location.search}`, location.href), onload: resolve, onerror: resolve})));
      if (ftwax.data && !this.isOver && !stage.facts) this.start();
    },
    start() {
      const {config, maps, arrays} = ftwax.data, map = maps[Math.floor(Math.random() * maps.length)];
      this.members ||= flags.makeMembers(arrays, config.teams.length);
      this.minds = this.members.map((member) => member.begin());
      this.state = flags.start(config, map);
      stage.start({...config, tiles: map.tiles, stands: map.stands});
      stage.own = 0;
      showRules();
      this.show(1);
      this.timer = setTimeout(() => this.tick(), 500);
    },
    show(period) {
      const shown = flags.shown(this.state);
      stage.own = 0;
      stage.show(shown, period);
      byId('status').textContent = `Warm-up while the game compiles: ${stage.game.status(stage.facts, shown)}`;
      byId('advice').textContent = stage.game.advice(stage.facts, shown, 0, 6);
      byId('advice').hidden = !byId('advice').textContent;
    },
    // What the keys that are down choose.
    person() {
      const choice = {move: 0, turn: 0, tag: 0};
      for (const index of [...down, ...pressed]) {
        const {part, choice: value} = keys[meant(index)], turn = (value - this.state.direction[0] + 4) % 4;
        if (part === 'go') Object.assign(choice, [{move: 1}, {turn: 2, move: 1}, {turn: 2, move: 4}, {turn: 1, move: 1}][turn]);
        else choice[part] = value;
      }
      pressed.clear();
      return choice;
    },
    tick() {
      const {config} = ftwax.data, actions = flags.act(config, this.members, this.minds, this.state, 'normal', this.person());
      const made = flags.step(config, this.state, actions);
      this.state = made.state;
      this.minds.forEach((mind, seat) => { mind.reward = this.members[seat].reward(made.events[seat]); });
      this.show(1000 / 6);
      if (this.state.steps < config.num_steps) this.timer = setTimeout(() => this.tick(), 1000 / 6);
      else this.start();
    },
    end() {
      if (this.state) byId('said').textContent = 'The game is ready: this one counts.';
      this.isOver = true;
      clearTimeout(this.timer);
    },
  };

  // Seats who comes beside fewest people, or the players of a match.
  const arrive = () => {
    arrives = false;
    const people = (team) => room.seats.filter((seat) => seat.team === team && seat.kind === 'person').length;
    const free = room.seats.map((seat, index) => ({...seat, index})).filter(({kind}) => kind !== 'person');
    if (match) room.seats.forEach(({team}, seat) => match[team] && send({do: 'seat', seat, player: match[team]}));
    else if (free.length && !room.seats.some(({you}) => you))
      send({do: 'sit', seat: free.sort((a, b) => people(a.team) - people(b.team))[0].index});
  };

  const showRules = () => {
    const rules = (stage.facts && stage.game.rules?.(stage.facts, stage.own)) || [];
    byId('rules_title').hidden = !rules.length;
    byId('rules').replaceChildren(...rules.map((textContent) => element('li', {textContent})));
  };

  const showAdvice = () => {
    if (warmUp.state && !warmUp.isOver) return;
    const plays = last && stage.own >= 0 && ['ready', 'playing'].includes(room.phase);
    const text = plays && stage.game.advice?.(stage.facts, last, stage.own, room.speed) || '';
    if (byId('advice').textContent !== text) byId('advice').textContent = text;
    byId('advice').hidden = !text;
  };

  // Loads the script that draws the game, once.
  const load = (name) => name in ftwax.games ? Promise.resolve() : new Promise((resolve) => {
    const script = element('script', {src: new URL(`script.js${location.search}`, location.href), onload: resolve});
    script.onerror = () => problem('The script that draws the game cannot be loaded. Reload the page.');
    document.head.append(script);
  });

  const connect = () => {
    const address = new URL(`room${location.search}`, location.href);
    address.protocol = location.protocol.replace('http', 'ws');
    socket = new WebSocket(address);
    socket.onopen = () => problem('');
    let before = Promise.resolve();  // Messages wait for the script of the game.
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      const kind = Object.keys(on).find((name) => name in message);
      if (kind === 'hello') before = load(message.script).then(() => on.hello(message));
      else if (kind && stage) on[kind](message);
      else if (kind) before = before.then(() => on[kind](message));
    };
    socket.onclose = (event) => {
      problem(event.code === 1011 ? byId('problem').textContent || event.reason : event.reason || 'The server does not answer. Start it again; this page will reconnect.');
      if (!event.reason) setTimeout(connect, 2000);
    };
  };

  const press = (index, isDown) => {
    if (down.has(index) === isDown) return;
    if (isDown) down.add(index), pressed.add(index); else down.delete(index);
    sent += 1;
    const plays = /playing|ready/.test(room.phase) && room.seats.some(({you}) => you);
    if (isDown && !pressedAt && plays) [pressedAt, awaited] = [performance.now(), sent];
    buttons[index].classList.toggle('down', isDown);
    send({do: 'keys', down: [...new Set([...down].map(meant))]});
  };

  // The key that a key stands for: in first person arrows turn.
  const meant = (index) => {
    const code = stage?.looks && stage.game.turned?.[keys[index].codes[0]];
    const other = keys.findIndex(({codes}) => codes.includes(code));
    return other < 0 ? index : other;
  };

  const showKeys = () => {
    [...down].forEach((index) => press(index, false));
    buttons = keys.map((key, index) => {
      const caps = key.codes.map((code) => NAMES[code] || code.replace(/Key|Digit/, ''));
      const button = element('button', {type: 'button', className: key.codes[0]},
        element('kbd', {textContent: caps.join(' ')}), element('span', {textContent: keys[meant(index)].label}));
      button.onpointerdown = (event) => { event.preventDefault(); press(index, true); };
      button.onpointerup = button.onpointerleave = button.onpointercancel = () => press(index, false);
      // Enter presses it once for those who reach it by Tab.
      button.onclick = (event) => { if (!event.detail) { press(index, true); setTimeout(() => press(index, false), 60); } };
      return button;
    });
    const isMain = (button) => /^Arrow|^Space/.test(button.className);
    byId('keys').replaceChildren(
      element('div', {className: 'pad'}, ...buttons.filter(isMain)),
      element('details', {className: 'more', hidden: buttons.every(isMain)}, element('summary', {textContent: 'More keys'}),
        element('div', {className: 'row'}, ...buttons.filter((button) => !isMain(button)))));
  };

  const keyOf = (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return -1;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && target.type !== 'checkbox') return -1;
    if (event.code === 'Space' && /^(BUTTON|A|INPUT|SUMMARY)$/.test(target.tagName)) return -1;
    return keys.findIndex((key) => key.codes.includes(event.code));
  };
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && room) return toggle();
    const index = keyOf(event);
    if (index < 0) return;
    event.preventDefault();
    if (!event.repeat && room.phase === 'ready') toggle();
    if (!event.repeat) press(index, true);
  });
  addEventListener('keyup', (event) => {
    const index = keys.findIndex((key) => key.codes.includes(event.code));
    if (index >= 0) press(index, false);
  });
  addEventListener('blur', () => [...down].forEach((index) => press(index, false)));

  const toggle = () => send({do: room.phase === 'playing' ? 'pause' : 'play'});

  const showRoom = () => {
    const words = {waiting: 'Play', ready: 'Play', preparing: 'Preparing…', playing: 'Pause (Esc)', paused: 'Resume', over: isDecided() ? 'New match' : 'Next game'};
    byId('play').textContent = words[room.phase];
    byId('play').disabled = room.phase === 'preparing';
    byId('restart').disabled = byId('new_map').disabled = room.phase === 'preparing' || room.phase === 'waiting';
    if (room.phase === 'ready') byId('status').textContent = 'Press Play, or any key of the game.';
    showAdvice();
    byId('speed').value = room.speed;
    byId('speed_value').textContent = room.speed;
    if (document.activeElement !== byId('name')) byId('name').value = room.you;
    if (room.text) byId('said').textContent = room.text;
    byId('seats').replaceChildren(...room.seats.map(seatRow));
    byId('through_row').hidden = room.seats.some((seat) => seat.you) || room.seats.length < 2;
    if (!byId('through').options.length)
      byId('through').replaceChildren(...room.seats.map((_, i) => element('option', {value: i, textContent: i + 1})));
    if (focused) { const back = byId(focused); if (back) back.focus(); }
  };

  // The table is made anew at each change: the focus stays where it was.
  let focused = '';
  addEventListener('focusin', (event) => {
    focused = byId('seats').contains(event.target) ? event.target.id : '';
  });

  const isDecided = () => Math.max(...room.wins) > 1;

  const seatRow = (seat, index) => {
    const teams = (stage && stage.game.teams) || [];
    const team = element('th', {scope: 'row', className: `team${seat.team}`,
      textContent: `${index + 1} ${teams[seat.team] || ''}`});
    let player = seat.name;
    if (seat.kind !== 'person') {
      player = element('select', {id: `player${index}`}, ...ftwax.players.map((name) =>
        element('option', {value: name, textContent: name, selected: name === seat.name})));
      player.setAttribute('aria-label', `Player on seat ${index + 1}`);
      player.onchange = () => send({do: 'seat', seat: index, player: player.value});
    }
    const sit = element('button', {type: 'button', id: `sit${index}`, textContent: seat.you ? 'Stand up' : 'Sit here'});
    sit.setAttribute('aria-label', `${sit.textContent}, seat ${index + 1}`);
    sit.onclick = () => {
      send(seat.you ? {do: 'stand'} : {do: 'sit', seat: index});
      if (!seat.you) byId('canvas').focus();
    };
    return element('tr', {}, team, element('td', {}, player),
      element('td', {textContent: seat.kind === 'person' ? '' : seat.rating}), element('td', {}, sit));
  };

  // What goes on in members: numbers, and the slots that their memories read.
  const values = [];
  const showLooks = (looks) => {
    byId('looks').replaceChildren(...looks.map((look, index) => {
      const kept = values[index] ||= [];
      if ('value' in look) kept.push(look.value);
      if (kept.length > 100) kept.shift();
      const cells = [look.value?.toFixed(2), look.surprise?.toFixed(2), look.reads && reads(look.reads)].map((shown) =>
        element('td', {}, shown ?? ''));
      cells[0].append(' ', kept.length > 1 ? curve(kept) : '');
      return element('tr', {}, element('th', {scope: 'row', textContent: `${index + 1}`}), ...cells);
    }));
  };

  const picture = (width, height, label) => {
    const canvas = element('canvas', {width, height, className: 'small'});
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', label);
    return canvas;
  };

  const curve = (kept) => {
    const canvas = picture(100, 24, 'Value over the last moves');
    const context = canvas.getContext('2d');
    const least = Math.min(...kept), range = Math.max(...kept) - least || 1;
    context.strokeStyle = ftwax.color('accent');
    kept.forEach((value, x) => context.lineTo(x, 23 - (value - least) / range * 22));
    context.stroke();
    return canvas;
  };

  const reads = (heads) => {
    const canvas = picture(Math.min(heads[0].length, 150), 6 * heads.length, 'Weights of the slots that the memory reads');
    const context = canvas.getContext('2d');
    context.fillStyle = ftwax.color('accent');
    heads.forEach((weights, head) => weights.forEach((weight, slot) => {
      context.globalAlpha = Math.min(1, weight);
      context.fillRect(slot * canvas.width / weights.length, 6 * head, Math.max(1, canvas.width / weights.length), 5);
    }));
    return canvas;
  };

  const showEnd = (message) => {
    const names = stage.game.teams || [];
    const best = Math.max(...message.end);
    const isShared = message.end.filter((score) => score === best).length > 1;
    const winner = isShared ? -1 : message.end.indexOf(best);
    const words = message.end.length < 2 ? 'The game is over.'
      : winner < 0 ? 'A draw.' : `${names[winner] || `Player ${winner + 1}`} won.`;
    const lines = [element('p', {className: 'score', textContent: words})];
    const yours = room.seats.find(({you}) => you), {score} = (last && stage.game.read?.(stage.facts, last)) || {};
    if (yours && score) lines.push(share(yours, score));
    const {wins} = message;
    if (wins.length === 2) lines.push(element('p', {textContent: `${Math.max(...wins) > 1 ? 'The match ends' : 'Best of three'}: ${wins.map((count, i) => `${names[i] || `Player ${i + 1}`} ${count}`).join(', ')}.`}));
    for (const [name, elo] of Object.entries(message.elo))
      if (elo.games) lines.push(element('p', {textContent: `Elo of ${name}: ${elo.rating} after ${elo.games} ${elo.games > 1 ? 'games' : 'game'}.`}));
    if (message.saved) lines.push(element('p', {}, links(message.saved)));
    byId('result').replaceChildren(...lines);
  };

  // The score of a game as a sentence to send around.
  const share = ({team}, score) => {
    const others = [...new Set(room.seats.filter((seat) => seat.team !== team).map(({name}) => name))].join(' and ');
    const [ours, theirs] = [score[team], score[1 - team]];
    const text = `${room.you} ${ours > theirs ? 'beat' : ours < theirs ? 'lost to' : 'drew with'} ${others} ${ours}:${theirs} in ${byId('title').textContent.replace('Play ', '')} (ftwax)`;
    const told = element('span', {});
    told.setAttribute('role', 'status');
    const button = element('button', {type: 'button', id: 'share', textContent: 'Share the score', async onclick() {
      try { await navigator.clipboard.writeText(text); told.textContent = ` Copied: ${text}`; }
      catch { told.textContent = ` ${text}`; }
    }});
    return element('p', {}, button, told);
  };

  const links = (name) => element('span', {},
    element('a', {href: `/games/${name}`, textContent: 'Watch the replay', target: '_blank', rel: 'noopener'}), ' · ',
    element('a', {href: `/games/${name}?download=1`, textContent: 'download as one file'}));

  const showGames = async () => {
    const response = await fetch('/games');
    if (!response.ok) return problem(await response.text());
    const games = await response.json();
    byId('games').replaceChildren(...games.slice(0, 10).map((game) =>
      element('li', {}, `${game.time.slice(0, 16).replace('T', ' ')}, ${game.seats.join(', ')}: `, links(game.name))));
  };

  byId('reach').textContent = /^(127\.|localhost|\[::1\])/.test(location.hostname)
    ? 'It opens on this machine alone. For other machines, start the program with --host=ADDRESS, an address of this machine.'
    : 'Whoever has it joins this room, in a window of their own.';
  byId('copy').onclick = async () => {
    try { await navigator.clipboard.writeText(location.href); byId('copied').textContent = 'Copied.'; }
    catch { byId('copied').textContent = location.href; }
  };
  // After a click the keys belong to the game, whatever was clicked.
  addEventListener('click', ({detail, target}) => {
    if (detail && target.closest('#controls, #speed') && !target.closest('select')) byId('canvas').focus({preventScroll: true});
  });
  byId('play').onclick = () => { toggle(); byId('canvas').focus(); };
  byId('restart').onclick = () => { send({do: 'restart'}); byId('canvas').focus(); };
  byId('new_map').onclick = () => { send({do: 'new_map'}); byId('canvas').focus(); };
  byId('speed').onchange = () => send({do: 'speed', speed: Number(byId('speed').value)});
  byId('name').onchange = () => { sessionStorage.setItem('name', byId('name').value); send({do: 'name', name: byId('name').value}); };
  byId('seen').onchange = byId('through').onchange = () => {
    sessionStorage.setItem('seen', byId('seen').checked ? 'yes' : 'no');
    send({do: 'view', all: !byId('seen').checked, seat: Number(byId('through').value)});
  };
  byId('inside').ontoggle = () => send({do: 'look', on: byId('inside').open});
  connect();
  showGames();
})();
