'use strict';
// Follows runs: asks for new rows of their logs, and draws every number in them.
(() => {
  const {element} = ftwax;
  const byId = (id) => document.getElementById(id);
  const MOST_POINTS = 2000;
  // Milliseconds between two requests: as many that drawing takes a hundredth of the time, within bounds.
  const [SHORTEST, LONGEST] = [5000, 30000];
  const periodAfter = (drawing) => Math.min(Math.max(SHORTEST, 100 * drawing), LONGEST);
  const DASHES = ['solid', 'dash', 'dot', 'dashdot'];
  const COUNTS = ['actor_steps', 'learner_steps', 'episodes', 'seconds', 'generation'];
  // Sections in their order; a chart goes to the first that wants it.
  const SECTIONS = [
    ['Progress', (log, name) => log === 'train' && !name.startsWith('event')],
    ['Elo', (log, name) => log === 'population' && /ratings$/.test(name)],
    ['Evaluations', (log) => log.startsWith('evaluation')],
    ['Tournament', (log) => log === 'tournament'],
    ['Lineage', (log) => log === 'lineage'],
    ['Returns of members', (log, name) => log === 'population' && /returns$/.test(name)],
    ['Hyperparameters', (log, name) => name.startsWith('hyperparameters/')],
    ['Internal rewards and events', (log, name) => /internal_rewards|event_r/.test(name)],
    ['Throughput and where time goes', (log, name) => log === 'speed' || /^wait_|sample_age/.test(name)],
    ['Losses and learning', (log) => log.startsWith('learner')],
    ['Other logs', () => true],
  ];
  let runs = [];
  const charts = new Map();

  // What a game calls its return, if the runs agree.
  const headed = (name) => {
    const [first, ...others] = new Set(runs.map(({fact}) => fact.headline || ''));
    return readable(name === 'episode_return' && first && !others.length ? first : name);
  };
  const readable = (name) => name.replace(/^(hyperparameters|scores)\//, '').replaceAll('_', ' ');

  const fetchJSON = async (address) => {
    const response = await fetch(address);
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  };

  // Rows that follow a resumption replace those after its checkpoint.
  const append = (kept, rows) => {
    for (const row of rows) {
      const key = ['actor_steps', 'learner_steps'].find((name) => name in row);
      while (key && kept.length && kept.at(-1)[key] > row[key]) kept.pop();
      kept.push(row);
    }
  };

  const poll = async () => {
    let again = SHORTEST;
    try {
      const facts = await fetchJSON('/runs');
      facts.forEach((fact, i) => {
        // A tournament changes no log.
        const changed = Boolean(fact.tournament) !== Boolean(runs[i]?.fact.tournament);
        runs[i] = {logs: {}, offsets: {}, ages: {}, damaged: 0, ...runs[i], fact};
        runs[i].changed ||= changed;
      });
      for (const [index, run] of runs.entries()) {
        const query = new URLSearchParams(run.offsets);
        const found = await fetchJSON(`/runs/${index}/logs?${query}`);
        for (const [label, tail] of Object.entries(found)) {
          if (tail.fresh || !run.logs[label]) run.logs[label] = [];
          append(run.logs[label], tail.rows);
          run.offsets[label] = tail.offset;
          run.ages[label] = tail.age;
          run.damaged += tail.damaged;
          if (tail.more) again = 0;
          if (tail.rows.length) run.changed = true;
        }
      }
      byId('problem').textContent = runs.map(({fact, damaged}) => [fact.problem,
        damaged && `${damaged} lines in the logs of ${fact.name} are damaged and left out.`]).flat().filter(Boolean).join(' ');
      const start = performance.now();
      show(again);
      again &&= periodAfter(performance.now() - start);
    } catch (error) {
      const names = runs.map(({fact}) => fact.directory).join(' ');
      byId('problem').textContent = `The server does not answer (${error.message}); with --watch, it ends when the run ends. This page keeps trying.${names && ` To start it: ftwax watch ${names}`}`;
    }
    setTimeout(poll, document.hidden ? LONGEST : again);
  };

  const last = (run, name) => ['train', 'population', 'evaluation'].map((label) =>
    run.logs[label]?.at(-1)?.[name]).find((value) => value !== undefined);

  const speedRows = (run) => {
    const rows = run.logs.train || run.logs.population || [];
    const every = Math.max(1, Math.floor(rows.length / 200));
    return rows.filter((_, i) => i % every === 0).map((row, i, some) => {
      const seconds = i ? row.seconds - some[i - 1].seconds : 0;
      return seconds > 0 ? {actor_steps: row.actor_steps, seconds: row.seconds,
        'steps a second': (row.actor_steps - some[i - 1].actor_steps) / seconds} : null;
    }).filter(Boolean);
  };

  const duration = (seconds) => seconds < 90 ? `${Math.round(seconds)} s`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;

  // Whether it runs, how fast and how long still; or since when it does not.
  const state = (run, steps) => {
    const age = Math.min(...Object.values(run.ages));
    const speed = speedRows(run).at(-1)?.['steps a second'];
    const since = Number.isFinite(age) ? ` ${duration(age)} ago` : '';
    if (run.fact.running ?? age < 60) {
      const left = (run.fact.steps - steps) / speed;
      return !speed ? 'starts' : `runs at ${Math.round(speed).toLocaleString()} steps/s${left > 0 ? `, ${duration(left)} left` : ''}`;
    }
    if (steps >= run.fact.steps) return `finished${since}`;
    return run.fact.error ? `stopped by an error${since}` : since && `stopped${since}`;
  };

  // The strongest member, by the best measure that there is.
  const best = (run) => {
    const {tournament, members} = run.fact;
    const value = last(run, 'episode_return');
    if (!(members > 1)) return typeof value === 'number' ? `return ${format(value)}` : '';
    const of = (...names) => names.map((name) => last(run, name)).find((all) => all?.some?.((v) => v !== null));
    const elo = tournament?.ratings.slice(0, members) || of('member_elo', 'ratings');
    const values = elo || of('member_returns', 'mean_returns') || [];
    const index = values.indexOf(Math.max(...values.filter((v) => v !== null)));
    return index < 0 ? '' : `member ${index}, ${elo ? 'Elo' : 'return'} ${format(elo ? Math.round(values[index]) : values[index])}`;
  };

  const scores = (run) => Object.entries(run.logs.evaluation?.at(-1) || {}).filter(([name]) => name.startsWith('scores/'))
    .map(([name, value]) => `${readable(name)} ${value.toFixed(2)}`).join(', ');

  const showRuns = () => {
    const focus = document.activeElement.id;
    byId('runs').replaceChildren(...runs.map((run, index) => {
      const steps = last(run, 'actor_steps');
      const play = element('button', {type: 'button', id: `play${index}`, textContent: 'Watch or play'});
      play.setAttribute('aria-label', `Watch or play games of ${run.fact.name}`);
      play.disabled = !run.fact.checkpoint;
      play.onclick = () => showGame(index);
      const share = run.fact.steps ? ` of ${run.fact.steps.toLocaleString()} (${Math.floor(100 * steps / run.fact.steps)}%)` : '';
      const cells = [state(run, steps), steps === undefined ? '' : steps.toLocaleString() + share, best(run), scores(run)];
      const cell = (text) => element('td', {textContent: text});
      const name = element('th', {scope: 'row', textContent: run.fact.experiment ? `${run.fact.experiment}/${run.fact.name}` : run.fact.name, title: run.fact.command || ''});
      const report = run.fact.report ? element('a', {id: `report${index}`, href: `/runs/${index}/report`, textContent: 'Report', target: '_blank', rel: 'noopener'}) : '';
      return element('tr', {}, name, ...cells.map(cell), element('td', {}, play, ' ', report), cell(run.fact.checkpoint || 'none yet'), cell(run.fact.seed ?? ''));
    }));
    if (focus && byId(focus)) byId(focus).focus();
  };

  // Of distributed runs; what has the focus stays where it is.
  const showNodes = () => runs.forEach(({fact}, index) => {
    if (!fact.nodes) return;
    const id = `nodes${index}`;
    if (!byId(id)) {
      const head = element('tr', {}, ...['Node', 'State'].map((text) => element('th', {scope: 'col', textContent: text})));
      byId('nodes').append(element('details', {id}, element('summary', {}), element('div', {className: 'table'},
        element('table', {}, element('thead', {}, head), element('tbody', {})))));
    }
    byId(id).querySelector('summary').textContent = `Nodes of ${fact.name}, ${duration(fact.nodes_age)} ago`;
    byId(id).querySelector('tbody').replaceChildren(...Object.entries(fact.nodes).map(([name, text]) =>
      element('tr', {}, element('th', {scope: 'row', textContent: name}), element('td', {textContent: String(text)}))));
  });

  const showGame = (index) => {
    const frame = element('iframe', {src: `/runs/${index}/play`, title: `Games of ${runs[index].fact.name}`});
    const close = element('button', {type: 'button', textContent: 'Close the game'});
    close.onclick = () => byId('game').replaceChildren();
    byId('game').replaceChildren(element('h2', {textContent: `Games of ${runs[index].fact.name}`}), close, frame);
    close.focus();
  };

  // Lines of a chart: [{name, x, y, run}], of numbers, members or events.
  const lines = (label, name) => runs.flatMap((run, index) => {
    const rows = label === 'speed' ? speedRows(run) : run.logs[label] || [];
    const every = Math.max(1, Math.ceil(rows.length / MOST_POINTS));
    const some = rows.filter((row, i) => name in row && (i % every === 0 || i === rows.length - 1));
    if (!some.length) return [];
    const axis = [byId('axis').value, 'learner_steps'].find((key) => key in some.at(-1));
    const x = some.map((row, i) => axis ? row[axis] : i);
    const prefix = runs.length > 1 ? `${run.fact.name} ` : '';
    const line = (text, pick) => ({name: prefix + text, x, y: some.map((row) => pick(row[name])), run: index, axis});
    const value = some.at(-1)[name];
    if (!Array.isArray(value)) return [line(readable(name), (v) => typeof v === 'number' ? v : null)];
    if (Array.isArray(value[0])) {  // Members and events: means over members.
      return value[0].map((_, event) => line(readable(run.fact.events?.[event] || `event ${event}`),
        (all) => all ? all.reduce((sum, member) => sum + member[event], 0) / all.length : null));
    }
    const isEvents = value.length === run.fact.events?.length && value.length !== run.fact.members;
    return value.map((_, i) => line(isEvents ? readable(run.fact.events[i]) : `member ${i}`, (all) => all?.[i] ?? null));
  });

  // Of all opponents in one chart.
  const scoreLines = (label) => [...new Set(runs.flatMap(({logs}) => Object.keys(logs[label]?.at(-1) || {})))]
    .filter((name) => name.startsWith('scores/')).flatMap((name) => lines(label, name));

  const tournamentLines = () => runs.flatMap(({fact}, index) => {
    if (!fact.tournament) return [];
    const {players, ratings, lows, highs} = fact.tournament;
    const bar = (name, y, more) => ({name: runs.length > 1 ? `${fact.name} ${name}` : name, x: players, y, run: index, axis: 'player', type: 'bar', ...more});
    const interval = {symmetric: false, array: highs.map((high, i) => high - ratings[i]), arrayminus: lows.map((low, i) => ratings[i] - low)};
    return [bar('Elo', ratings, {error_y: interval}), bar('low', lows, {inTable: true}), bar('high', highs, {inTable: true})];
  });

  const lineageLines = () => runs.flatMap((run, index) => {
    const copies = (run.logs.lineage || []).filter((row) => 'parent' in row);
    if (!copies.length) return [];
    const x = [], y = [];
    for (const {generation, member, parent} of copies) {
      x.push(generation, generation, null);
      y.push(parent, member, null);
    }
    return [{name: `${run.fact.name}: copies, from parent to member`, x, y, run: index, axis: 'generation', marked: true}];
  });

  const isFlat = (found) => found.every(({y}) => y.every((v) => v === null || v === found[0].y[0]));

  const layout = (found) => ({
    margin: {l: 55, r: 10, t: 10, b: 45}, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: {color: ftwax.color('text'), size: 12}, showlegend: found.length > 1 && found.length < 14 && (found[0].type !== 'bar' || runs.length > 1),
    legend: {orientation: 'h', y: -0.25}, uirevision: 'kept',
    xaxis: {automargin: true, title: {text: found[0].type === 'bar' ? '' : readable(found[0].axis || 'row')}, gridcolor: ftwax.color('panel')},
    yaxis: {gridcolor: ftwax.color('panel'), zerolinecolor: ftwax.color('line')},
  });

  const showChart = (id, label, name, found) => {
    let chart = charts.get(id);
    if (!chart) {
      const plot = element('div', {className: 'chart'});
      plot.setAttribute('role', 'img');
      const table = element('div', {className: 'table'});
      const details = element('details', {}, element('summary', {textContent: 'Numbers'}), table);
      details.ontoggle = () => showNumbers(charts.get(id));
      const figure = element('figure', {style: 'margin:0;min-width:0'}, element('h3', {textContent: headed(name)}), plot, details);
      const title = SECTIONS.find(([, wants]) => wants(label, name))[0];
      section(title).append(figure);
      chart = {id, plot, details, table, name};
      charts.set(id, chart);
    }
    chart.found = found;
    const isBar = found[0].type === 'bar';
    const ends = found.slice(0, 6).map(({name: text, x, y}) => isBar ? `${text}: ${x.map((player, i) => `${player}: ${format(y[i])}`).join(', ')}`
      : `${text}: ${format(y.find((v) => v !== null))} to ${format(y.findLast((v) => v !== null))}`);
    chart.plot.setAttribute('aria-label', `${isBar ? 'Bar' : 'Line'} chart of ${readable(name)}. ${ends.join('; ')}`);
    chart.stale = true;
    if (chart.details.open) showNumbers(chart);
  };

  // Draws the charts in sight alone, so that a page that is open costs little.
  const drawVisible = () => {
    for (const chart of charts.values()) {
      const {top, bottom} = chart.plot.getBoundingClientRect();
      if (!chart.stale || bottom < -200 || top > innerHeight + 200) continue;
      chart.stale = false;
      const traces = chart.found.filter(({inTable}) => !inTable).map(({name, x, y, run, marked, type = 'scatter', error_y}) => ({name, x, y, type, error_y,
        mode: marked || x.length < 3 ? 'lines+markers' : 'lines', line: {dash: DASHES[run % 4], width: 1.7}}));
      Plotly.react(chart.plot, traces, layout(chart.found), {responsive: true, displaylogo: false, displayModeBar: false});
    }
  };

  const format = (value) => typeof value !== 'number' ? ''
    : String(Number.isInteger(value) ? value : Number(value.toPrecision(5)));

  const section = (title) => {
    const id = `section ${title}`;
    if (!byId(id)) {
      const made = element('section', {id}, element('h2', {textContent: title}), element('div', {className: 'charts'}));
      const order = SECTIONS.map(([name]) => `section ${name}`);
      const after = [...byId('sections').children].find((other) => order.indexOf(other.id) > order.indexOf(id));
      byId('sections').insertBefore(made, after || null);
    }
    return byId(id).lastChild;
  };

  const showNumbers = (chart) => {
    if (!chart.details.open) return;
    const [first] = chart.found;
    const head = [readable(first.axis || 'row'), ...chart.found.map(({name}) => name)];
    const xs = [...new Set(chart.found.flatMap(({x}) => x))].filter((x) => x !== null);
    if (first.type !== 'bar') xs.sort((a, b) => a - b);
    const maps = chart.found.map(({x, y}) => new Map(x.map((at, i) => [at, y[i]])));
    const rows = xs.map((x) => [x, ...maps.map((map) => map.get(x) ?? '')]);
    const quote = (cell) => /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell;
    const csv = [head, ...rows].map((row) => row.map(quote).join(',')).join('\n');
    URL.revokeObjectURL(chart.address);
    chart.address = URL.createObjectURL(new Blob([csv], {type: 'text/csv'}));
    chart.table.replaceChildren(
      element('a', {href: chart.address, download: `${chart.name.replaceAll('/', '_')}.csv`, textContent: 'All as CSV'}),
      element('table', {}, element('caption', {textContent: 'The last 20 rows'}),
        element('thead', {}, element('tr', {}, ...head.map((text) => element('th', {scope: 'col', textContent: text})))),
        element('tbody', {}, ...rows.slice(-20).map((row) => element('tr', {}, ...row.map((cell) =>
          element('td', {textContent: typeof cell === 'number' ? format(cell) : cell})))))));
  };

  const show = (again) => {
    showRuns();
    showNodes();
    if (again === 0 || !runs.some(({changed}) => changed)) return;  // All at once.
    for (const run of runs) run.changed = false;
    const names = new Map([['speed/steps a second', ['speed', 'steps a second']]]);
    for (const {logs} of runs) {
      for (const [label, rows] of Object.entries(logs)) {
        if (label === 'lineage') continue;
        for (const name of Object.keys(rows.at(-1) || {}))
          if (!COUNTS.includes(name) && !/^payoff_|^games$|^member_scores$/.test(name)) names.set(...(name.startsWith('scores/')
            ? [`${label}/scores`, [label, 'scores']] : [`${label}/${name}`, [label, name]]));
      }
    }
    for (const [id, [label, name]] of names) {
      const found = name === 'scores' ? scoreLines(label) : lines(label, name);
      // What never changed is in the configuration.
      if (!found.length || (!charts.has(id) && isFlat(found) && found[0].x.length > 1)) continue;
      showChart(id, label, name, found);
    }
    for (const [id, name, found] of [['lineage', 'copies of members', lineageLines()], ['tournament', 'Elo in the tournament, with 95% intervals', tournamentLines()]])
      if (found.length) showChart(id, id, name, found);
    drawVisible();
  };
  addEventListener('scroll', () => requestAnimationFrame(drawVisible), {passive: true});
  addEventListener('resize', () => requestAnimationFrame(drawVisible));

  byId('axis').onchange = () => { for (const run of runs) run.changed = true; show(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => byId('axis').onchange());
  poll();
})();
