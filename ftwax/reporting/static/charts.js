'use strict';
// Charts that all pages share: SVG in the colours of the page. A figure is
//   {kind: 'lines', alt, x, log, small, range, domain, marks: [{name, y}],
//    lines: [{name, x, y, low, high, color}]}: y, low, high may hold nulls;
//   {kind: 'intervals', alt, x, rows: [{name, value, low, high, color,
//    points}]};
//   {kind: 'descent', alt, x, rows, members, end}: rows of a lineage.
// `color` counts the colours of members; lines without one are grey.
{
  const {element} = ftwax;
  const COLORS = ['#3b7dd8', '#d1495b', '#2a9d5c', '#c77700', '#9061c9', '#0b97a8', '#b5479e', '#7a8b14', '#8a6a52', '#6b7a90'];
  const colorOf = (color) => color === undefined ? 'var(--quiet)' : COLORS[color % COLORS.length];
  const MOST_NAMES = 12;

  const draw = (tag, attributes, ...children) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  const format = ftwax.format = (value) => {
    if (typeof value !== 'number') return value ?? '';
    const size = Math.abs(value);
    for (const [least, letter] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']])
      if (size >= least) return `${Number((value / (letter === 'k' ? 1e3 : least)).toPrecision(4))}${letter}`;
    return size && size < 1e-4 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
  };

  // Round numbers between two ends: linear steps, or 1, 2 and 5 of each power.
  const ticksOf = (low, high, log, count) => {
    const found = [];
    if (log) {
      const subs = high / low > 300 ? [1] : [1, 2, 5];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
        found.push(...subs.map((sub) => sub * 10 ** power).filter((v) => v >= low && v <= high));
      if (found.length > 1) return found;
    }
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((sub) => sub * power >= rough);
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
    return found;
  };

  // Maps values between two ends to pixels.
  const scaleOf = (low, high, from, to, log) => {
    const turn = log ? Math.log : (value) => value;
    const [first, last] = [turn(low), turn(high)];
    return (value) => from + (turn(value) - first) / (last - first || 1) * (to - from);
  };

  const endsOf = (values, {log, range = []}) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value === null || value === undefined || (log && value <= 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) [low, high] = [log ? 0.1 : 0, 1];
    if (low === high) [low, high] = log ? [low / 2, low * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const edge = log ? (high / low) ** 0.05 : (high - low) * 0.05;
    return [range[0] ?? (log ? low / edge : low - edge), range[1] ?? (log ? high * edge : high + edge)];
  };

  // A path through points with gaps where there is no value.
  const pathOf = (xs, ys, toX, toY) => {
    let path = '', joined = false;
    xs.forEach((x, i) => {
      if (ys[i] === null || ys[i] === undefined || Number.isNaN(toY(ys[i]))) { joined = false; return; }
      path += `${joined ? 'L' : 'M'}${toX(x).toFixed(1)} ${toY(ys[i]).toFixed(1)}`;
      joined = true;
    });
    return path;
  };

  const axes = (svg, {left, right, top, bottom}, toX, toY, xs, ys, title) => {
    for (const y of ys) {
      svg.append(draw('line', {class: 'grid', x1: left, x2: right, y1: toY(y), y2: toY(y)}),
        draw('text', {x: left - 6, y: toY(y) + 4, 'text-anchor': 'end'}, format(y)));
    }
    for (const x of xs)
      svg.append(draw('text', {x: toX(x), y: bottom + 16, 'text-anchor': 'middle'}, format(x)));
    svg.append(draw('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}),
      draw('text', {x: (left + right) / 2, y: bottom + 32, 'text-anchor': 'middle'}, title || ''));
  };

  const kinds = {
    lines(chart, figure, width) {
      const height = figure.small ? (width < 220 ? 112 : 160) : 230, box = {left: width < 220 ? 36 : 52, right: width - 18, top: 8, bottom: height - 38};
      const {lines, marks = [], log} = figure;
      const [first, last] = figure.domain || [Math.min(...lines.map(({x}) => x[0])), Math.max(...lines.map(({x}) => x.at(-1)))];
      const [low, high] = endsOf([...lines.flatMap(({y, low = [], high = []}) => [...y, ...low, ...high]), ...marks.map(({y}) => y)], figure);
      const toX = scaleOf(first, last, box.left, box.right), scaled = scaleOf(low, high, box.bottom, box.top, log);
      const toY = (y) => Math.min(Math.max(scaled(y), box.top), box.bottom);
      const svg = draw('svg', {width, height});
      axes(svg, box, toX, toY, first < last ? ticksOf(first, last, false, width / 70) : [first], ticksOf(low, high, log, 5), figure.x);
      for (const line of lines) {
        const color = colorOf(line.color);
        if (line.low) {
          const ends = line.x.map((_, i) => i).filter((i) => line.low[i] !== null && line.high[i] !== null);
          const edge = [...ends.map((i) => [line.x[i], line.high[i]]), ...ends.reverse().map((i) => [line.x[i], line.low[i]])];
          svg.append(draw('path', {d: pathOf(edge.map(([x]) => x), edge.map(([, y]) => y), toX, toY) + 'Z', fill: color, opacity: 0.16}));
        }
        svg.append(draw('path', {d: pathOf(line.x, line.y, toX, toY), stroke: color, class: 'line'}));
        if (line.x.length < 3) line.x.forEach((x, i) => line.y[i] !== null && svg.append(draw('circle', {cx: toX(x), cy: toY(line.y[i]), r: 3, fill: color})));
      }
      for (const [i, {name, y}] of marks.entries()) {
        // Names of marks at one height stand side by side.
        const beside = marks.slice(0, i).filter((other) => Math.abs(toY(other.y) - toY(y)) < 13);
        const x = box.left + 4 + beside.reduce((sum, other) => sum + 7 * other.name.length + 12, 0);
        svg.append(draw('line', {class: 'mark', x1: box.left, x2: box.right, y1: toY(y), y2: toY(y)}),
          draw('text', {class: 'name', x, y: toY(y) - 4}, name));
      }
      chart.onHover = (at) => {
        const share = (at - box.left) / (box.right - box.left);
        const x = first + Math.min(Math.max(share, 0), 1) * (last - first);
        const values = lines.map((line) => {
          const i = line.x.reduce((best, other, j) => Math.abs(other - x) < Math.abs(line.x[best] - x) ? j : best, 0);
          return [line, i];
        });
        const shown = values.slice(0, MOST_NAMES).map(([line, i]) => `${line.name || ''} ${format(line.y[i])}`
          + (line.low ? ` (${format(line.low[i])} to ${format(line.high[i])})` : ''));
        return [toX(x), box, [`${figure.x} ${format(x)}`, ...shown].join('\n')];
      };
      return svg;
    },

    intervals(chart, figure, width) {
      const {rows} = figure, height = 24 * rows.length + 42;
      const box = {left: Math.min(12 + 7.2 * Math.max(...rows.map(({name}) => name.length)), width / 2), right: width - 18, top: 4, bottom: height - 38};
      const [low, high] = endsOf(rows.flatMap((row) => [row.value, row.low, row.high, ...(row.points || [])]), figure);
      const toX = scaleOf(low, high, box.left, box.right);
      const svg = draw('svg', {width, height});
      axes(svg, box, toX, null, ticksOf(low, high, false, width / 70), [], figure.x);
      rows.forEach((row, i) => {
        const y = 16 + 24 * i, color = colorOf(row.color);
        svg.append(draw('text', {x: box.left - 8, y: y + 4, 'text-anchor': 'end'}, row.name),
          draw('line', {x1: box.left, x2: box.right, y1: y, y2: y, class: 'grid'}),
          draw('line', {x1: toX(row.low), x2: toX(row.high), y1: y, y2: y, stroke: color, 'stroke-width': 2.5}),
          ...(row.points || []).map((point) => draw('circle', {cx: toX(point), cy: y, r: 3, fill: 'none', stroke: color})),
          draw('circle', {cx: toX(row.value), cy: y, r: 4.5, fill: color},
            draw('title', {}, `${row.name}: ${format(row.value)} (${format(row.low)} to ${format(row.high)})`)));
      });
      return svg;
    },

    // One lane a member, in the colour of its founder; a dot for each copy.
    descent(chart, figure, width) {
      const {members, end} = figure, {lanes, copies, founders} = ftwax.follow(figure.rows, members, end);
      const order = [...founders.keys()].sort((a, b) => founders[a] - founders[b] || a - b);
      const place = order.reduce((all, member, i) => { all[member] = i; return all; }, []);
      const height = 22 * members + 44, box = {left: 76, right: width - 18, top: 4, bottom: height - 38};
      const toX = scaleOf(0, end, box.left, box.right), toY = (member) => 14 + 22 * place[member];
      const svg = draw('svg', {width, height});
      axes(svg, box, toX, null, ticksOf(0, end, false, width / 70), [], figure.x);
      order.forEach((member) => svg.append(draw('text', {x: box.left - 8, y: toY(member) + 4, 'text-anchor': 'end'}, `member ${member}`)));
      for (const {member, founder, from, to} of lanes)
        svg.append(draw('line', {x1: toX(from), x2: toX(to), y1: toY(member), y2: toY(member), stroke: colorOf(founder), 'stroke-width': 5}));
      for (const copy of copies) {
        if (copy.parent !== copy.member)
          svg.append(draw('line', {x1: toX(copy.at), x2: toX(copy.at), y1: toY(copy.parent), y2: toY(copy.member), stroke: colorOf(copy.founder), opacity: 0.6}));
      }
      for (const copy of copies) {
        const dot = draw('circle', {cx: toX(copy.at), cy: toY(copy.member), r: 5, fill: colorOf(copy.founder), class: 'dot'},
          draw('title', {}, tell(copy) + (chart.onCopy ? '\nClick to let them play.' : '')));
        if (chart.onCopy) dot.onclick = () => chart.onCopy(copy);
        svg.append(dot);
      }
      return svg;
    },
  };

  // What a member inherited, and what changed of it.
  const tell = ({member, parent, row}) => [
    parent === member ? `Member ${member} drew new traits.` : `Member ${member} copied member ${parent}.`,
    ...Object.entries(row.changed || {}).map(([name, [before, after]]) =>
      `${name.replace(/^.*\//, '').replaceAll('_', ' ')}: ${format(before)} to ${format(after)}`),
    ...(row.changed && !Object.keys(row.changed).length ? ['It changed nothing.'] : []),
  ].join('\n');

  // Lanes and copies of a lineage. Members copy others as they were before.
  ftwax.follow = (rows, members, end) => {
    let founders = Array.from({length: members}, (_, i) => i);
    const since = founders.map(() => 0), lanes = [], copies = [];
    const changes = rows.filter((row) => 'parent' in row);
    for (let i = 0, next; i < changes.length; i = next) {
      next = i + 1;
      while (next < changes.length && changes[next].generation === changes[i].generation) next++;
      const before = [...founders];
      for (const row of changes.slice(i, next)) {
        const {member, parent, at} = row;
        lanes.push({member, founder: before[member], from: since[member], to: at});
        [founders[member], since[member]] = [before[parent], at];
        copies.push({member, parent, at, founder: before[parent], row});
      }
    }
    founders.forEach((founder, member) => lanes.push({member, founder, from: since[member], to: end}));
    return {lanes, copies, founders};
  };

  // A figure with its legend and its numbers, drawn as wide as there is room,
  // once it is in sight.
  ftwax.Chart = class {
    constructor(root, title = '') {
      this.plot = element('div', {className: 'chart'});
      this.plot.setAttribute('role', 'img');
      this.legend = element('p', {className: 'legend quiet'});
      this.told = element('div', {className: 'told', hidden: true});
      this.table = element('div', {className: 'table'});
      this.numbers = element('details', {}, element('summary', {textContent: 'Numbers'}), this.table);
      this.numbers.ontoggle = () => this.tabulate();
      this.title = title;
      root.append(this.plot, this.legend, this.numbers);
      this.plot.onpointermove = (event) => this.hover(event.offsetX, event.offsetY);
      this.plot.onpointerleave = () => { this.told.hidden = true; this.rule?.remove(); };
      new ResizeObserver(() => this.draw()).observe(this.plot);
      new IntersectionObserver(([{isIntersecting}]) => { this.seen = isIntersecting || this.always; this.draw(); },
        {rootMargin: '200px'}).observe(this.plot);
      addEventListener('beforeprint', () => { this.seen = true; this.draw(); });
    }

    show(figure) {
      this.figure = figure;
      this.drawn = 0;
      this.plot.setAttribute('aria-label', figure.alt || this.title);
      const named = (figure.lines || []).filter(({name}) => name);
      this.legend.replaceChildren(...(!figure.small && named.length <= MOST_NAMES ? named : []).map(({name, color}) =>
        element('span', {}, element('i', {style: `background:${colorOf(color)}`}), name)));
      this.numbers.hidden = figure.kind === 'descent';
      this.draw();
      this.tabulate();
    }

    draw() {
      const width = this.plot.clientWidth;
      if (!this.seen || !this.figure || !width || this.drawn === width) return;
      this.drawn = width;
      this.onHover = null;
      this.plot.replaceChildren(kinds[this.figure.kind](this, this.figure, width), this.told);
      this.plot.style.minHeight = 0;  // Until then, there is room for it.
    }

    hover(at, y) {
      if (!this.onHover) return;
      const [x, box, text] = this.onHover(at);
      this.rule?.remove();
      this.rule = draw('line', {class: 'axis', x1: x, x2: x, y1: box.top, y2: box.bottom});
      this.plot.firstChild.append(this.rule);
      Object.assign(this.told, {textContent: text, hidden: false});
      const isRight = x > (box.left + box.right) / 2;
      Object.assign(this.told.style, {left: isRight ? '' : `${x + 12}px`, right: isRight ? `${this.drawn - x + 12}px` : '', top: `${Math.min(y, 60)}px`});
    }

    // Columns of a table, as [name, values by x].
    columns() {
      const {kind, lines, rows, x} = this.figure;
      if (kind === 'intervals') return [['', ...['value', 'low', 'high']], rows.map((row) => [row.name, row.value, row.low, row.high])];
      const parts = lines.flatMap((line) => [['', 'y'], ...(line.low ? [[' low', 'low'], [' high', 'high']] : [])]
        .map(([word, part]) => [`${line.name || this.title}${word}`, new Map(line.x.map((at, i) => [at, line[part][i]]))]));
      const xs = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
      return [[x, ...parts.map(([name]) => name)], xs.map((at) => [at, ...parts.map(([, map]) => map.get(at) ?? '')])];
    }

    tabulate() {
      if (!this.numbers.open || !this.figure) return;
      const [head, rows] = this.columns();
      const quote = (cell) => /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell;
      const csv = [head, ...rows].map((row) => row.map(quote).join(',')).join('\n');
      URL.revokeObjectURL(this.address);
      this.address = URL.createObjectURL(new Blob([csv], {type: 'text/csv'}));
      this.table.replaceChildren(
        element('a', {href: this.address, download: `${this.title.replaceAll('/', '_')}.csv`, textContent: 'All as CSV'}),
        element('table', {}, element('caption', {textContent: 'The last 20 rows'}),
          element('thead', {}, element('tr', {}, ...head.map((text) => element('th', {scope: 'col', textContent: text})))),
          element('tbody', {}, ...rows.slice(-20).map((row) => element('tr', {}, ...row.map((cell) =>
            element('td', {textContent: typeof cell === 'number' ? format(cell) : cell})))))));
    }
  };

  // Figures that are in a page from its beginning.
  addEventListener('DOMContentLoaded', () => {
    for (const script of document.querySelectorAll('script.figure')) {
      const root = element('figure', {className: 'chart-of'});
      script.replaceWith(root);
      const figure = JSON.parse(script.textContent);
      if (figure.title) root.append(element('h3', {textContent: figure.title}));
      const chart = new ftwax.Chart(root, figure.title || '');
      chart.show(figure);
      // All are drawn, in sight or not: an archive of the page does not scroll.
      chart.always = true;
      setTimeout(() => { chart.seen = true; chart.draw(); });
    }
    addEventListener('beforeprint', () => { for (const one of document.querySelectorAll('details:has(.chart)')) one.open = true; });
  });
}
