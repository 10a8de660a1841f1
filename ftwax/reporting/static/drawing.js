'use strict';
// Drawing that all pages share. A game's script adds itself to `ftwax.games`:
//   size(facts) -> [columns, rows] of the picture, in units of its own;
//   draw(picture, facts, from, to, share): what lies between two states, with
//     share from 0 to 1; `from` is null where there is no earlier state;
//   drawView(picture, facts, view), viewSize(facts): what an agent sees;
//   look(picture, facts, from, to, share, seat), lookSize(facts): the same as a
//     player on a seat sees it in first person, and turned, the codes of keys
//     that stand for others then; all three may be left out;
//   status(facts, state), viewStatus(facts, view) -> a sentence;
//   events(facts, from, to) -> sentences; teams: their names, if it has any;
//   rules(facts, own) -> sentences, and advice(facts, state, own, speed) -> a
//     sentence for who sits on the seat `own`; both may be left out.
// A picture has `context`, `colors` and `own`, the seat to mark, or -1.
const ftwax = {games: {}};

ftwax.element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

ftwax.color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const NAMES = ['floor', 'wall', 'pad', 'unseen', 'team0', 'team1', 'nose',
  'text', 'line', 'back', 'quiet'];

// Shows the states of a game on a canvas, drawn at the rate of the screen.
ftwax.Stage = class {
  constructor(canvas, script) {
    this.canvas = canvas;
    this.game = ftwax.games[script];
    this.own = -1;  // The seat of the person who looks.
    this.seat = -1;  // The seat whose look is shown; -1 for the map.
    this.inset = true;  // Whether a look has the map in a corner.
    this.rate = 0;  // Pictures a second, while something moves.
    this.times = [];
    const again = () => { this.readColors(); this.wake(); };
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
    new ResizeObserver(() => this.wake()).observe(canvas);
    this.readColors();
  }

  readColors() {
    this.colors = Object.fromEntries(NAMES.map((n) => [n, ftwax.color(n)]));
  }

  start(facts) {
    this.facts = facts;
    this.from = this.to = this.view = null;
    const [columns, rows] = this.game.size(facts);
    this.canvas.parentElement.style.setProperty('--ratio', columns / rows);
  }

  // Moves from the last state to this one within `period` milliseconds.
  show(state, period) {
    this.from = this.view ? null : this.to;
    this.to = state;
    this.view = null;
    this.since = performance.now();
    this.period = period;
    this.wake();
  }

  showView(view) {
    this.view = view;
    this.wake();
  }

  get looks() {
    return this.seat >= 0 && Boolean(this.game.look);
  }

  wake() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.paint(now));
  }

  paint(now) {
    this.frame = 0;
    if (!this.facts || (!this.to && !this.view)) return;
    const size = this.view ? this.game.viewSize(this.facts, this.view)
      : this.looks ? this.game.lookSize(this.facts) : this.game.size(this.facts);
    const width = this.canvas.clientWidth * devicePixelRatio;
    const unit = width / size[0];
    const height = Math.round(unit * size[1]);
    if (this.canvas.width !== Math.round(width) || this.canvas.height !== height) {
      this.canvas.width = Math.round(width);
      this.canvas.height = height;
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(unit, 0, 0, unit, 0, 0);
    const picture = {context, colors: this.colors, own: this.own};
    if (this.view) {
      this.game.drawView(picture, this.facts, this.view);
      return;
    }
    // The time of a picture may lie before that of the state's arrival.
    const share = Math.min(Math.max((now - this.since) / this.period, 0), 1);
    this.canvas.classList.toggle('looks', this.looks);
    const moment = [this.facts, this.from, this.to, share];
    if (this.looks) {
      this.game.look(picture, ...moment, this.seat);
      if (this.inset) this.drawInset(picture, size, moment);
    } else this.game.draw(picture, ...moment);
    this.count(now);
    // Two periods more, so that the rate is that of steady drawing.
    if (now - this.since < 3 * this.period) this.wake();
  }

  // The map in the upper right corner, a third as wide as the picture.
  drawInset(picture, [width], moment) {
    const {context} = picture, [columns, rows] = this.game.size(this.facts);
    const unit = width / 3 / columns, edge = width / 60;
    context.save();
    context.translate(width - columns * unit - edge, edge);
    context.scale(unit, unit);
    context.globalAlpha = 0.85;
    context.beginPath();
    context.rect(0, 0, columns, rows);
    context.clip();
    this.game.draw({...picture, own: this.seat}, ...moment);
    context.restore();
  }

  count(now) {
    this.times.push(now);
    if (this.times.length > 61) this.times.shift();
    const seconds = (now - this.times[0]) / 1000;
    if (seconds) this.rate = (this.times.length - 1) / seconds;
  }
};

// A row in which people choose the map or the look of a player; empty for games
// without looks.
ftwax.makeLooks = (stage, onchange = () => {}) => {
  const {element} = ftwax, row = element('span', {className: 'row', hidden: true});
  const choice = element('select');
  choice.setAttribute('aria-label', 'What is shown');
  const box = element('input', {type: 'checkbox', checked: stage.inset});
  const inset = element('label', {className: 'row'}, box, ' Map in the corner');
  const show = (seat) => {
    stage.seat = seat;
    choice.value = seat;
    inset.hidden = !stage.looks;
    if (stage.facts) stage.wake();
    onchange();
  };
  choice.onchange = () => show(Number(choice.value));
  box.onchange = () => { stage.inset = box.checked; stage.wake(); };
  const start = (count) => {
    row.hidden = !stage.game.look;
    choice.replaceChildren(...[...Array(count + 1).keys()].map((i) => element('option',
      {value: i - 1, textContent: i ? `View of player ${i}` : 'Map'})));
    show(Math.min(stage.seat, count - 1));
  };
  row.append(choice, inset);
  return {row, show, start};
};

// An image in place of drawing; waits until it is decoded.
ftwax.drawFrame = (picture, source, size) => {
  const image = ftwax.drawFrame.images.get(source) || new Image();
  if (!image.src) {
    if (ftwax.drawFrame.images.size > 60) ftwax.drawFrame.images.clear();
    ftwax.drawFrame.images.set(source, image);
    image.src = source;
  }
  if (image.complete && image.naturalWidth) {
    picture.context.imageSmoothingEnabled = false;
    picture.context.drawImage(image, 0, 0, ...size);
    return [image.naturalWidth, image.naturalHeight];
  }
  return null;
};
ftwax.drawFrame.images = new Map();

// Numbers of a view that is no image, as bars.
ftwax.drawValues = (picture, values, size) => {
  const {context, colors} = picture;
  context.fillStyle = colors.floor;
  context.fillRect(0, 0, ...size);
  const most = Math.max(1, ...values.map(Math.abs));
  const width = size[0] / values.length;
  context.fillStyle = colors.team0;
  values.forEach((value, i) => {
    const height = value / most * size[1] / 2;
    context.fillRect(i * width, size[1] / 2 - Math.max(height, 0), width * 0.9,
      Math.abs(height));
  });
};
