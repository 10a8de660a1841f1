'use strict';
// Plays saved games in `#replay`, from the JSON in `#games`.
ftwax.makeReplay = (root, record) => {
  const {element} = ftwax;
  const game = ftwax.games[record.script];
  const canvas = element('canvas');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `The game: ${record.game}`);
  const status = element('p', {className: 'score'});
  const said = element('p', {className: 'quiet'});
  said.setAttribute('aria-live', 'polite');
  const last = record.states.length - 1;
  const slider = element('input', {type: 'range', min: 0, max: last, value: 0});
  slider.setAttribute('aria-label', 'Step');
  const speed = element('select', {}, ...[1, 4, 15, 30].map((rate) =>
    element('option', {value: rate, textContent: `${rate} moves per second`})));
  speed.value = record.speed > 8 ? 15 : 4;
  speed.setAttribute('aria-label', 'Speed');
  const button = (text, label, action) => {
    const made = element('button', {type: 'button', textContent: text, onclick: action});
    made.setAttribute('aria-label', label);
    return made;
  };
  let timer = 0, step = 0;
  const period = () => 1000 / Number(speed.value);
  const stage = new ftwax.Stage(canvas, record.script);
  const looks = ftwax.makeLooks(stage);
  const show = (next) => {
    const before = step;
    step = Math.max(0, Math.min(last, next));
    slider.value = step;
    if (step !== before + 1) stage.to = null;  // A jump is not drawn as a move.
    stage.show(record.states[step], period());
    status.textContent = game.status(record.facts, record.states[step])
      || `Step ${step} of ${last}`;
    const events = step === before + 1
      ? game.events(record.facts, record.states[before], record.states[step]) : [];
    if (events.length) said.textContent = events.join(' ');
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = 'Play';
  };
  const start = () => {
    if (step === last) show(0);
    timer = setInterval(() => step < last ? show(step + 1) : stop(), period());
    play.textContent = 'Pause';
  };
  const play = element('button', {type: 'button', className: 'main', textContent: 'Play'});
  play.onclick = () => timer ? stop() : start();
  slider.oninput = () => { stop(); show(Number(slider.value)); };
  speed.onchange = () => { if (timer) { stop(); start(); } };
  const controls = element('div', {className: 'row'}, play,
    button('◀', 'One step back', () => { stop(); show(step - 1); }),
    button('▶', 'One step forward', () => { stop(); show(step + 1); }), slider, speed, looks.row);
  const teams = game.teams || [];
  const seats = record.seats.map((seat, i) => element('li', {
    className: `team${seat.team}`,
    textContent: `${i + 1}: ${seat.name}${teams[seat.team] ? `, ${teams[seat.team]}` : ''}`,
  }));
  root.append(canvas, status, controls, said, element('ol', {className: 'quiet', style: 'list-style:none;padding:0'}, ...seats));
  stage.start(record.facts);
  looks.start(record.seats.length);
  if (record.facts.first_person) looks.show(0);
  show(0);
  return {show, stop, stage, get step() { return step; }};
};

// Who plays against whom, as `member 1 (2x) against tactician (2x)`.
ftwax.nameMatch = ({seats}) => [...new Set(seats.map(({team}) => team))].map((team) => {
  const names = seats.filter((seat) => seat.team === team).map(({name}) => name);
  return [...new Set(names)].map((name) => {
    const count = names.filter((other) => other === name).length;
    return count > 1 ? `${name} (${count}x)` : name;
  }).join(', ');
}).join(' against ');

{
  const {element} = ftwax;
  const root = document.getElementById('replay');
  const records = JSON.parse(document.getElementById('games').textContent);
  const shown = element('div');
  const show = (record) => {
    if (ftwax.replay) ftwax.replay.stop();
    shown.replaceChildren();
    ftwax.replay = ftwax.makeReplay(shown, record);
  };
  if (records.length > 1) {
    const choice = element('select', {id: 'match'}, ...records.map((record, i) =>
      element('option', {value: i, textContent: ftwax.nameMatch(record)})));
    choice.onchange = () => show(records[choice.value]);
    root.append(element('p', {className: 'row'},
      element('label', {htmlFor: 'match', textContent: 'Game'}), choice));
  }
  root.append(shown);
  show(records[0]);
}
