'use strict';
// Follows runs: asks for new rows of their logs, and draws every number in them.
(() => {
  const {element, format} = ftwax;
  const byId = (id) => document.getElementById(id);
  // With more rows, a point of a curve is the mean of an interval of steps.
  const MOST_POINTS = 60;
  // Milliseconds between two requests: as many that drawing takes a hundredth of the time, within bounds.
  const [SHORTEST, LONGEST] = [5000, 30000];
  const periodAfter = (drawing) => Math.min(Math.max(SHORTEST, 100 * drawing), LONGEST);
  const COUNTS = ['actor_steps', 'learner_steps', 'episodes', 'seconds', 'generation', 'num_episodes'];
  // The top of the page, then sections behind tabs, in their order; a chart goes
  // to the first that wants it.
  const TOP = 'Progress';
  const SECTIONS = [
    [TOP, (log, name) => log === 'train' ? name === 'episode_return' || /^metrics\/(is_)?success$/.test(name) : name === 'scores'],
    ['Strength', (log) => /^evaluation|^tournament|^strength/.test(log)],
    ['Lineage', (log) => log === 'lineage'],
    ['Members', (log, name) => log === 'population' && /ratings$|returns$/.test(name)],
    ['Hyperparameters', (log, name) => name.startsWith('hyperparameters/')],
    ['Internal rewards', (log, name) => /internal_rewards/.test(name)],
    ['Events', (log, name) => /event_r/.test(name)],
    ['Metrics', (log, name) => log === 'train' && name.startsWith('metrics/')],
    ['Speed', (log, name) => log === 'speed' || /^wait_|sample_age/.test(name)],
    ['Learning', (log) => /^learner|^train/.test(log)],
    ['Other', () => true],
  ];
  const LARGE = [TOP, 'Strength', 'Lineage', 'Members'];
  let runs = [];
  const charts = new Map();

  const WORDS = {actor_steps: 'steps', learner_steps: 'updates', episode_return: 'return', ratings: 'Elo in training games', mean_returns: 'mean return'};
  const readable = (name) => WORDS[name] || name.replace(/^(hyperparameters|metrics|scores)\//, '').replaceAll('_', ' ').replace(/\bi\b/g, 'I');
  // The return, and what the game calls it.
  const headed = (name, [run]) => name === 'episode_return' && run.fact.headline ? `return (${readable(run.fact.headline)})` : readable(name);
  const nameOf = ({fact}) => fact.experiment ? `${fact.experiment}/${fact.name}` : fact.name;

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
        runs[i] = {index: i, logs: {}, offsets: {}, ages: {}, damaged: 0, ...runs[i], fact};
        runs[i].changed ||= changed;
      });
      for (const run of runs) {
        const query = new URLSearchParams(run.offsets);
        const found = await fetchJSON(`/runs/${run.index}/logs?${query}`);
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

  // Whether it runs and how long still, or since when it does not.
  const state = (run, steps) => {
    const age = Math.min(...Object.values(run.ages)), {fact} = run;
    const speed = speedRows(run).at(-1)?.['steps a second'];
    // As the run has recorded it: a copy's files are younger.
    const since = isNumber(fact.ended_s) ? ` ${duration(fact.ended_s)} ago` : '';
    if (fact.running ?? age < 60) {
      const left = (fact.steps - steps) / speed;
      // Until its first call returns, a run compiles.
      const hasRows = Object.entries(run.logs).some(([label, rows]) => label !== 'lineage' && rows.length);
      const before = fact.compiling_s > 0 ? `, which took ${duration(fact.compiling_s)} last time` : '';
      return ['runs', !hasRows ? `Compiling${before}` : !speed ? 'Starting' : `Running${left > 0 ? `, ${duration(left)} left` : ''}, at ${Math.round(speed).toLocaleString()} steps/s`];
    }
    if (steps >= fact.steps) return ['ended', `Finished${since}`];
    return ['stopped', fact.error ? `Stopped by an error${since}` : steps ? `Stopped${since}` : 'Has not started'];
  };

  // What the run has reached, in the sentences of its report.
  const reached = (run) => {
    const {members, strength, tournament, outcome} = run.fact, values = last(run, 'mean_returns') || [];
    const found = [...outcome || []];
    const most = Math.max(...values.filter(isNumber));
    if (members > 1 && !strength && !tournament && Number.isFinite(most))
      found.push(`The highest mean return in training is ${format(most)}, of member ${values.indexOf(most)}.`);
    return found;
  };

  const showRuns = () => {
    const focus = document.activeElement.id;
    byId('runs').replaceChildren(...runs.map((run, index) => {
      const steps = Math.max(...Object.values(run.logs).map((rows) => rows.at(-1)?.actor_steps || 0)) || undefined;
      const play = element('button', {type: 'button', id: `play${index}`, textContent: 'Watch or play'});
      play.setAttribute('aria-label', `Watch or play games of ${run.fact.name}`);
      play.disabled = !run.fact.checkpoint;
      play.onclick = () => showGame(index);
      const all = run.fact.steps, [kind, words] = state(run, steps);
      const line = (text, className = '') => text ? element('p', {textContent: text, className}) : '';
      const share = steps === undefined ? '' : steps.toLocaleString() + (all ? ` of ${all.toLocaleString()} (${Math.floor(100 * steps / all)}%)` : '');
      const bar = all ? element('progress', {max: all, value: steps || 0}) : '';
      bar && bar.setAttribute('aria-label', `Steps of ${run.fact.name}`);
      const report = run.fact.report ? element('a', {id: `report${index}`, href: `/runs/${index}/report`, textContent: 'Report', target: '_blank', rel: 'noopener'}) : '';
      return element('article', {className: 'run'},
        element('h2', {textContent: nameOf(run), title: run.fact.command || ''}),
        line(words, `score ${kind}`), bar, line(share && `${share} steps`), ...reached(run).map((text) => line(text)),
        element('p', {className: 'row'}, play, report,
          element('span', {className: 'quiet', textContent: `seed ${run.fact.seed ?? '?'}, ${run.fact.checkpoint ? `checkpoint ${run.fact.checkpoint}` : 'no checkpoint yet'}`})));
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
    byId(id).querySelector('summary').textContent = `Nodes of ${fact.name}${fact.running === false ? ', as last seen' : ''}`;
    byId(id).querySelector('tbody').replaceChildren(...Object.entries(fact.nodes).map(([name, text]) =>
      element('tr', {}, element('th', {scope: 'row', textContent: name}), element('td', {textContent: String(text)}))));
  });

  // Games of a run, of a person or between two given members.
  const showGame = (index, match = '') => {
    const frame = element('iframe', {src: `/runs/${index}/play${match && `?match=${encodeURIComponent(match)}`}`, title: `Games of ${runs[index].fact.name}`});
    const close = element('button', {type: 'button', textContent: 'Close the game'});
    close.onclick = () => byId('game').replaceChildren();
    byId('game').replaceChildren(element('h2', {textContent: `Games of ${runs[index].fact.name}`}), close, frame);
    close.focus();
    close.scrollIntoView();
  };

  // Points of a log: [{x, value}], and what x counts.
  const points = (run, label, name) => {
    const rows = (label === 'speed' ? speedRows(run) : run.logs[label] || []).filter((row) => name in row);
    const axis = rows.length && [byId('axis').value, 'learner_steps'].find((key) => key in rows.at(-1));
    return {axis: axis || 'row', rows: rows.map((row, i) => ({x: axis ? row[axis] : i, value: row[name]}))};
  };

  const isNumber = (value) => typeof value === 'number';
  const mean = (values) => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

  // A line of means over intervals, with the range of what is in them.
  const curve = (rows, pick) => {
    const groups = [];
    if (rows.length <= MOST_POINTS) groups.push(...rows.map((row) => [row]));
    else {
      const [first, end] = [rows[0].x, rows.at(-1).x];
      for (const row of rows) (groups[Math.min(Math.floor((row.x - first) / (end - first) * MOST_POINTS), MOST_POINTS - 1)] ||= []).push(row);
    }
    const made = {x: [], y: [], low: [], high: []};
    for (const group of groups.filter(Boolean)) {
      const values = group.flatMap(({value}) => pick(value)).filter(isNumber);
      made.x.push(group.at(-1).x);
      made.y.push(mean(values));
      made.low.push(values.length ? Math.min(...values) : null);
      made.high.push(values.length ? Math.max(...values) : null);
    }
    if (made.y.every((y, i) => made.low[i] === y && made.high[i] === y)) delete made.low;
    return made;
  };

  const at = ({x, y}, where) => {
    const i = Math.max(1, x.findIndex((other) => other >= where));
    const share = (where - x[i - 1]) / (x[i] - x[i - 1]);
    return x.length < 2 || y[i - 1] === null || y[i] === null ? y.at(-1) : y[i - 1] + (y[i] - y[i - 1]) * share;
  };

  // The mean of several runs and their range, where all of them are.
  const average = (curves, log) => {
    const [turn, back] = log ? [Math.log, Math.exp] : [(v) => v, (v) => v];
    const first = Math.max(...curves.map(({x}) => x[0])), end = Math.min(...curves.map(({x}) => x.at(-1)));
    const made = {x: [], y: [], low: [], high: []};
    for (let i = 0; i <= 100; i++) {
      const x = first + (end - first) * i / 100, values = curves.map((line) => at(line, x)).filter(isNumber).map(turn);
      made.x.push(x);
      made.y.push(values.length ? back(mean(values)) : null);
      made.low.push(values.length > 1 ? back(Math.min(...values)) : null);
      made.high.push(values.length > 1 ? back(Math.max(...values)) : null);
    }
    return made;
  };

  // Runs that share a line: those that differ in their seeds alone, or each by itself.
  const families = (some) => {
    const found = new Map();
    for (const run of some) {
      const variant = byId('average').checked && run.fact.variant;
      const isCopy = (found.get(variant) || []).some(({fact}) => fact.seed === run.fact.seed);
      const key = variant && !isCopy ? variant : run.index;
      found.set(key, [...found.get(key) || [], run]);
    }
    return [...found.values()];
  };

  // Lines of runs of one experiment: numbers, members, or picked of those.
  const lines = (some, label, name, pick, log = false) => {
    const all = families(some.filter((run) => points(run, label, name).rows.length));
    return all.flatMap((family, index) => {
      const found = family.map((run) => points(run, label, name));
      const {axis, rows} = found[0], value = rows.at(-1).value;
      const many = all.length > 1 || family.length > 1;
      const names = family.map(({fact}) => fact.name).join(', ');
      const title = many ? family.length > 1 ? `mean and range of ${names}` : names : '';
      if (Array.isArray(value) && !pick && !many)
        return value.map((_, i) => ({name: `member ${i}`, color: i, axis, ...curve(rows, (v) => [v?.[i]])}));
      const curves = found.map((one) => curve(one.rows, pick || ((v) => [v].flat())));
      return [{name: title, color: index, axis, ...(family.length > 1 ? average(curves, log) : curves[0])}];
    });
  };

  // The mean over as many points to both sides as people choose.
  const smooth = (line) => {
    const width = Number(byId('smooth').value);
    if (!width) return line;
    return {...line, y: line.y.map((value, i) => value === null ? null
      : mean(line.y.slice(Math.max(i - width, 0), i + width + 1).filter(isNumber)))};
  };

  // From the first to the last point of all logs, so that charts stand one above the other.
  let domain = null;
  const findDomain = (some) => {
    const axis = byId('axis').value, xs = some.flatMap(({logs}) => Object.values(logs).flatMap((rows) =>
      [rows[0]?.[axis], rows.at(-1)?.[axis]])).filter(isNumber);
    domain = xs.length ? {axis, ends: [Math.min(...xs), Math.max(...xs)]} : null;
  };

  const end = (line) => line.y.findLast((value) => value !== null);
  const figureOf = (title, found, more = {}) => ({kind: 'lines', x: readable(found[0].axis), lines: found.map(smooth),
    ...(domain?.axis === found[0].axis && {domain: domain.ends}), ...more,
    alt: `Line chart of ${title}. ${found.slice(0, 6).map((line) => `${line.name || title}: ${format(line.y.find((v) => v !== null))} to ${format(end(line))}`).join('; ')}`});

  const isFlat = (found) => found.every(({y, low = [], high = []}) =>
    [...y, ...low, ...high].every((v) => v === null || v === found[0].y[0]));

  // The section that is open, which people may have chosen.
  let open = '', isChosen = false;
  const choose = (title) => {
    open = title;
    for (const tab of byId('tabs').children) {
      const isOpen = tab.textContent === title;
      tab.setAttribute('aria-selected', isOpen);
      byId(tab.getAttribute('aria-controls')).hidden = !isOpen;
    }
  };

  const section = (title) => {
    if (title === TOP) return byId('top');
    const order = SECTIONS.map(([name]) => name), index = order.indexOf(title), id = `section${index}`;
    if (!byId(id)) {
      const tab = element('button', {type: 'button', id: `tab${index}`, textContent: title, onclick: () => { isChosen = true; choose(title); }});
      const made = element('section', {id, className: LARGE.includes(title) ? 'charts' : 'charts small'});
      for (const [part, name, value] of [[tab, 'role', 'tab'], [tab, 'aria-controls', id], [made, 'role', 'tabpanel'], [made, 'aria-labelledby', tab.id]])
        part.setAttribute(name, value);
      const after = [...byId('tabs').children].findIndex((other) => order.indexOf(other.textContent) > index);
      byId('tabs').insertBefore(tab, byId('tabs').children[after] || null);
      byId('sections').insertBefore(made, byId('sections').children[after] || null);
      choose(isChosen || (open && order.indexOf(open) < index) ? open : title);
    }
    return byId(id);
  };

  const showChart = (id, label, name, title, figure) => {
    let chart = charts.get(id);
    const [place] = SECTIONS.find(([, wants]) => wants(label, name));
    if (!chart) {
      const root = element('figure', {}, element('h3', {textContent: title}));
      section(place).append(root);
      charts.set(id, chart = new ftwax.Chart(root, title));
    }
    chart.show({...figure, small: !LARGE.includes(place)});
    return chart;
  };

  // Charts of a number in a log, one for each event.
  const showNumber = (id, some, label, name, prefix) => {
    const run = some.find((one) => points(one, label, name).rows.length);
    const value = run && points(run, label, name).rows.at(-1).value;
    const events = run?.fact.events || [], log = some.some(({fact}) => fact.log_scaled?.includes(name.replace('hyperparameters/', '')));
    const show = (part, title, pick) => {
      const found = lines(some, label, name, pick, log);
      // What never changed is in the configuration.
      if (!found.length || (!charts.has(id + part) && isFlat(found) && found[0].x.length > 1)) return;
      showChart(id + part, label, name, prefix + title, figureOf(title, found, {log}));
    };
    const ofEvents = Array.isArray(value) && value.length === events.length && value.length !== run.fact.members;
    if (Array.isArray(value?.[0])) value[0].forEach((_, i) => show(`/${i}`, readable(events[i] || `event ${i}`), (all) => all ? all.map((one) => one[i]) : []));
    else if (ofEvents) value.forEach((_, i) => show(`/${i}`, readable(events[i]), (all) => [all?.[i]]));
    else if (value !== undefined) show('', headed(name, some) + (label.startsWith('evaluation') ? ' in evaluations' : ''));
  };

  // Elo by one fit to the games of all evaluations; the mean of several runs.
  const showStrength = (id, some, prefix) => {
    const rated = some.filter(({fact}) => fact.strength);
    if (!rated.length) return;
    const {opponents, opponent_elo} = rated[0].fact.strength, axis = 'actor_steps';
    const line = ({elo, elo_errors, steps: x}, pick) => ({axis, x, y: elo.map((row, i) => pick(row, elo_errors[i], 0)),
      low: elo.map((row, i) => pick(row, elo_errors[i], -1)), high: elo.map((row, i) => pick(row, elo_errors[i], 1))});
    const range = (row, _, sign) => sign ? (sign > 0 ? Math.max : Math.min)(...row) : mean(row);
    const found = rated.length > 1
      ? families(rated).map((family, color) => {
        const curves = family.map(({fact}) => line(fact.strength, range)), names = family.map(({fact}) => fact.name).join(', ');
        return {color, axis, ...(curves.length > 1 ? {name: `mean and range of ${names}`, ...average(curves)} : {name: names, ...curves[0]})};
      })
      : rated[0].fact.strength.elo[0].map((_, i) => ({name: `member ${i}`, color: i,
        ...line(rated[0].fact.strength, (row, errors, sign) => row[i] + sign * errors[i])}));
    const marks = rated.length > 1 ? [] : opponents.map((name, i) => ({name: readable(name), y: opponent_elo[i]}));
    const words = rated.length > 1 ? 'the mean of members' : 'with 95% intervals';
    showChart(`${id}/strength`, 'strength', 'strength', `${prefix}Elo above ${readable(opponents[0])} in evaluations, ${words}`, figureOf('Elo', found, {marks}));
  };

  const showScores = (id, some, label, prefix) => {
    const names = [...new Set(some.flatMap(({logs}) => Object.keys(logs[label]?.at(-1) || {})))].filter((name) => name.startsWith('scores/'));
    const one = some.length === 1, members = last(some[0], 'member_scores')?.length || 1;
    // Of one run, the mean of members and their range.
    const linesOf = (name, i) => one && members > 1 ? lines(some, label, 'member_scores', (all) => all.map((row) => row[i])) : lines(some, label, name);
    const groups = one ? [[members > 1 ? 'scores in evaluations, mean and range of members' : 'scores in evaluations', names]] : names.map((name) => [`score against ${readable(name)} in evaluations`, [name]]);
    for (const [title, group] of groups.filter(([, group]) => group.length)) {
      const found = group.flatMap((name, i) => linesOf(name, i).map((line) => one ? {...line, name: readable(name), color: i} : line));
      if (found.length) showChart(`${id}/${label}/${group[0]}`, label, 'scores', prefix + title, figureOf(title, found, {range: [0, 1]}));
    }
  };

  const showTournament = (id, run, prefix) => {
    const {tournament, members} = run.fact;
    if (!tournament) return;
    const {players, ratings, lows, highs} = tournament;
    const rows = players.map((name, i) => ({name: readable(name), value: ratings[i], low: lows[i], high: highs[i], ...(i < members && {color: i})}))
      .sort((a, b) => b.value - a.value);
    const x = `Elo above ${readable(players[members] || players.at(-1))}`;
    showChart(`${id}/tournament/${run.index}`, 'tournament', 'tournament', `${prefix}Elo in the tournament, with 95% intervals`, {kind: 'intervals', x, rows,
      alt: `Elo in the tournament. ${rows.map((row) => `${row.name}: ${format(row.value)}`).join(', ')}`});
  };

  const showLineage = (id, run, prefix) => {
    const rows = run.logs.lineage || [], population = run.logs.population || [];
    if (!rows.some((row) => 'parent' in row) || !run.fact.members) return;
    // Steps at a generation, where the log of the population has them.
    const axis = population.at(-1)?.actor_steps === undefined ? 'generation' : 'actor_steps';
    let i = 0;
    const placed = rows.map((row) => {
      while (i < population.length - 1 && population[i].generation < row.generation) i++;
      return {...row, at: population[i]?.[axis] ?? row.generation};
    });
    const chart = showChart(`${id}/lineage/${run.index}`, 'lineage', 'lineage', `${prefix}who descends from whom`, {kind: 'descent', rows: placed,
      members: run.fact.members, x: readable(axis), end: Math.max(population.at(-1)?.[axis] ?? 0, placed.at(-1).at),
      alt: `Tree of the ${placed.filter((row) => 'parent' in row).length} copies among ${run.fact.members} members of ${run.fact.name}.`});
    if (run.fact.checkpoint) chart.onCopy = ({member, parent}) => showGame(run.index, `member ${parent},member ${member}`);
  };

  // Runs of different experiments never share an axis.
  const showExperiment = (id, some, prefix) => {
    findDomain(some);
    showNumber(`${id}/speed`, some, 'speed', 'steps a second', prefix);
    showStrength(id, some, prefix);
    for (const label of new Set(some.flatMap(({logs}) => Object.keys(logs)))) {
      if (label === 'lineage') continue;
      if (label.startsWith('evaluation')) showScores(id, some, label, prefix);
      const names = new Set(some.flatMap(({logs}) => Object.keys(logs[label]?.at(-1) || {})));
      // They are the means of the members' rates.
      if (label === 'train' && some.some(({logs}) => logs.population?.at(-1)?.event_rates)) names.delete('event_returns');
      for (const name of names)
        if (!COUNTS.includes(name) && !/^payoff_|^games$|^member_(scores|games|payoff|elo)|^elo$|^scores\/|_std$/.test(name))
          showNumber(`${id}/${label}/${name}`, some, label, name, prefix);
    }
    for (const run of some) {
      const words = some.length > 1 ? `${prefix}${run.fact.name}: ` : prefix;
      showTournament(id, run, words);
      showLineage(id, run, words);
    }
  };

  const show = (again) => {
    showRuns();
    showNodes();
    const rows = runs.reduce((sum, {logs}) => sum + Object.values(logs).reduce((count, log) => count + log.length, 0), 0);
    byId('loading').textContent = again === 0 ? `Loading the logs: ${rows.toLocaleString()} rows so far…` : '';
    if (again === 0 || !runs.some(({changed}) => changed)) return;  // All at once.
    for (const run of runs) run.changed = false;
    byId('average_row').hidden = runs.length === new Set(runs.map(({fact}) => fact.variant)).size;
    const experiments = new Map();
    for (const run of runs) experiments.set(run.fact.experiment || '', [...experiments.get(run.fact.experiment || '') || [], run]);
    for (const [name, some] of experiments)
      showExperiment(name, some, experiments.size > 1 ? `${readable(name || 'unknown')}: ` : '');
    byId('controls').hidden = !charts.size;
  };

  byId('axis').onchange = byId('average').onchange = byId('smooth').oninput = () => { for (const run of runs) run.changed = true; show(); };
  poll();
})();
