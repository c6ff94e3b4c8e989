// The top of the page: what was run and what came out, in words; the choice of runs; the comparison.

const SCHEMES = {
  iid: 'every client has the same share of every class',
  pathological: 'every client has classes of its own',
  dirichlet: 'classes mixed unevenly',
  domain: 'a client per domain',
  'domain-dirichlet': 'domains divided among clients, their classes mixed unevenly',
  coarse: 'clients grouped by coarse label',
  quantity: 'the same classes everywhere, unequal amounts',
};

const strong = (text) => el('b', {}, text);
const isComplete = (run) => run.state === 'complete';
const nClients = (run) => run.clients.name.length;
const sum = (values) => values.reduce((a, b) => a + b, 0);

// The client with the lowest (sign 1) or highest (sign -1) accuracy; those that joined later do not count.
function extreme(run, sign) {
  const { accuracy, joined } = run.clients;
  const numbers = accuracy.map((_, i) => i).filter((i) => !joined[i] && known(accuracy[i]));
  return numbers.reduce((best, i) => (best === -1 || sign * accuracy[i] < sign * accuracy[best] ? i : best), -1);
}

// Bytes that one client sends (bytes_up) or receives (bytes_down) in a round it takes part in, on average.
function perClient(run, direction) {
  const times = sum(run.training[direction === 'bytes_up' ? 'answered' : 'sampled']);
  return times ? sum(run.training[direction]) / times : 0;
}

function splitText(run) {
  if (run.deployed) return 'real sites, each with its own images';
  const { scheme, alpha, shots } = run.split;
  const alphaText = known(alpha) ? `alpha ${alpha}` : null;
  const shotsText = known(shots) ? `${plural(shots, 'image')} a class` : null;
  const details = [SCHEMES[scheme], alphaText, shotsText].filter(Boolean).join(', ');
  return `split “${scheme}”${details ? ` (${details})` : ''}`;
}

function header() {
  const one = runs.length === 1;
  const names = [...new Set(runs.map((run) => run.data.name))];
  const checks = one ? runs[0].checks : data.comparison;
  const ofRuns = (key) => runs.flatMap((run) => run[key].map((said) => (one ? said : `${run.title}: ${said}`)));
  const top = document.getElementById('top');
  top.append(
    el('p', { class: 'eyebrow' }, 'fedotp report'),
    el('h1', {}, one ? `${runs[0].method.title} on ${names[0]}` : `${runs.length} runs on ${names.join(', ')}`),
    el('p', { class: 'lead' }, ...(one ? storyOfOne(runs[0]) : storyOfMany())),
    ...runs.filter((run) => !isComplete(run)).map((run) => el('p', { class: 'notice', role: 'status' }, incomplete(run))),
    ...runs.flatMap((run) => run.missing).map((why) => el('p', { class: 'notice' }, `Left out: ${why}`)),
    ...[...ofRuns('warnings'), ...checks.warnings].map((said) => el('p', { class: 'notice' }, said)),
    ...[...ofRuns('notes'), ...checks.notes].map((said) => el('p', { class: 'note' }, said)),
  );
  if (one) top.append(tiles(runs[0]));
}

function incomplete(run) {
  const who = runs.length === 1 ? 'This run' : run.title;
  const rest = run.state === 'running' ? 'it is running' : 'it has stopped';
  return `${who} is not complete: ${count(run.rounds.done)} of ${plural(run.rounds.planned, 'round')} are done, and ${rest}. `
    + 'What is here is what there was when the page was made.';
}

function storyOfOne(run) {
  const { totals, clients } = run;
  const words = [strong(plural(nClients(run), 'client'))];
  if (run.training.round.length) {
    words.push(' trained for ', strong(plural(run.rounds.done, 'round')), run.rounds.stopped_early ? ' (stopped early)' : '');
  } else words.push(isComplete(run) ? ' took part, without training' : ' have not trained yet');
  words.push(` with the backbone ${run.backbone}; ${splitText(run)}.`);
  if (!known(totals.accuracy)) return [...words, noScores(run)];
  const worst = extreme(run, 1);
  words.push(' On its own test images a client is right ', strong(`${percent(totals.accuracy)}\u00a0%`),
    ` of the time on average (± ${percent(totals.accuracy_std)} between clients)`);
  if (worst >= 0) words.push(`; the worst, ${clients.name[worst]}, ${percent(clients.accuracy[worst])}\u00a0%`);
  return [...words, '.', ...controlsOf(run)];
}

// The scores of controls, which learn less than the method.
function controlsOf(run) {
  const scores = Object.entries(run.controls).map(([name, accuracy]) => `${name} ${percent(accuracy)}\u00a0%`);
  return scores.length ? [` Controls: ${scores.join(', ')}.`] : [];
}

// Why there is no accuracy.
const noScores = (run) => (run.deployed && isComplete(run) ? ' No site reports how well it does.' : ' It has not been evaluated yet.');

function storyOfMany() {
  const complete = data.comparison.rows.filter((row) => row.cells[0]);
  const rows = complete.sort((a, b) => b.cells[0].value - a.cells[0].value);
  const sizes = runs.map(nClients);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const splits = [...new Set(runs.map(splitText))];
  const words = [`${least === most ? '' : `${count(least)} to `}${plural(most, 'client')}; ${splits.length > 2 ? `${splits.length} kinds of split` : splits.join('; ')}.`];
  if (!data.comparison.rows.length) return [...words, ' All of them are controls.'];
  if (!rows.length) return [...words, runs.some(isComplete) ? ' No site reports how well it does.' : ' None of the runs is complete yet.'];
  const accuracy = (row) => `${percent(Math.round(1e6 * row.cells[0].value))}\u00a0%`;
  words.push(' On its own test images a client is right most often with ',
    strong(`${rows[0].label}: ${accuracy(rows[0])}`), ' on average');
  rows.slice(1, 5).forEach((row, i) => words.push(i === 0 ? '; ' : ', ', `${row.label} ${accuracy(row)}`));
  words.push(rows.length > 5 ? ` and ${rows.length - 5} more below.` : '.');
  words.push(...cautions(rows[0]));
  const sameData = new Set(runs.map((run) => run.data.name)).size === 1;
  return sameData ? words : [...words, ' The runs are on different data: what is more accurate need not be better.'];
}

// Whether the first may be called first: differences are known to one row only, the reference.
function cautions(first) {
  const { reference, lines } = data.comparison.differences;
  const word = (line) => line[line.length - 1];
  const unclear = lines.filter((line) => !/^(above|below) /.test(word(line)));
  if (lines.every((line) => line[2] === '-')) return lines.length ? [' One run of each is not enough to say which is better.'] : [];
  const own = unclear.find(([name]) => name === first.label);
  if (own) return [` Against ${reference}: ${word(own)}.`];
  return first.label === reference && unclear.length
    ? [` Not significantly different from it: ${unclear.map(([name]) => name).join(', ')}.`] : [];
}

function tiles(run) {
  const { totals, clients, rounds: { done, planned } } = run;
  const [low, high] = [extreme(run, 1), extreme(run, -1)];
  const tile = (figure, unit, what, remark) => el('div', { class: 'tile', tone: tone(run) },
    el('div', { class: 'figure' }, figure, el('span', { class: 'unit' }, unit)),
    el('div', { class: 'what' }, what), el('div', { class: 'remark' }, remark));
  const shown = [];
  if (low >= 0) {
    const best = `best client ${percent(clients.accuracy[high])}\u00a0%`;
    shown.push(
      tile(percent(totals.accuracy), '%', 'mean accuracy', `± ${percent(totals.accuracy_std)} over clients`),
      tile(percent(clients.accuracy[low]), '%', 'worst client', clients.name[low]),
      tile(percent(totals.accuracy_worst_decile), '%', 'worst tenth of clients', best),
    );
  }
  const time = isComplete(run) ? `${duration(run.seconds.train)} of training` : `of ${count(planned)}`;
  const received = run.training.round.length ? `${bytesText(perClient(run, 'bytes_down'))} received` : 'nothing travels';
  shown.push(tile(count(done), '', done === 1 ? 'round' : 'rounds', time),
    tile(...bytes(perClient(run, 'bytes_up')), 'sent by a client in a round', received));
  return el('div', { class: 'tiles' }, shown);
}

function toolbar() {
  const sections = [...document.querySelectorAll('main > section')];
  const links = sections.map((node) => el('a', { href: `#${node.id}` }, node.dataset.short));
  const names = [...new Set(runs.flatMap((run) => run.clients.name))];
  const client = selection('Client', [['', 'all'], ...names.map((name) => [name, name])], '', (name) => choose({ client: name }));
  const detail = runs.length === 1 ? null : selection('In detail', runs.map((run, i) => [i, run.title]),
    String(state.focus), (i) => choose({ focus: Number(i) }));
  const theme = el('button', { type: 'button', title: 'Light or dark', 'aria-label': 'Switch between light and dark', onclick: () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    choose({});
    redrawAll();
  } }, '◐');
  document.getElementById('toolbar').append(el('div', {}, el('nav', { 'aria-label': 'Sections' }, links),
    el('div', { class: 'controls' }, detail, client, theme), runs.length === 1 ? null : chooser()));
  onChange(() => { client.querySelector('select').value = state.client; });
  follow(sections, links);
}

// The runs that are in the charts.
function chooser() {
  const boxes = shownAs.map((run, i) => tickbox(key(run), true, (wanted) => {
    const shown = new Set(state.shown);
    if (wanted) shown.add(i); else shown.delete(i);
    choose({ shown });
  }));
  onChange(() => boxes.forEach((box, i) => box.querySelector('.swatch').style.setProperty('--tone', tone(shownAs[i]))));
  return el('fieldset', { class: 'runs' }, el('legend', {}, 'Runs in the charts'), boxes);
}

// Mark the link of the section that is being read.
function follow(sections, links) {
  const mark = (id) => links.forEach((link) => link.setAttribute('aria-current', String(link.hash === `#${id}`)));
  const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting)
    .forEach((entry) => mark(entry.target.id)), { rootMargin: '-30% 0px -60% 0px' });
  sections.forEach((node) => seen.observe(node));
}

function comparison() {
  const { columns, rows, controls } = data.comparison;
  const best = columns.map((column, i) => {
    const values = rows.map((row) => row.cells[i]?.value).filter(known);
    const extremes = { higher: Math.max, lower: Math.min };
    return known(column.better) && values.length > 1 ? extremes[column.better](...values) : null;
  });
  const first = (row) => runs.find((run) => run.group === row.group);
  const shown = table({
    label: 'Comparison of the runs', rows: [...rows, ...controls], sort: [2, true],
    kind: (row) => (known(row.group) ? null : 'control'),
    columns: [
      {
        title: 'method', value: (row) => row.label,
        cell: (row) => (known(row.group)
          ? el('span', { class: 'key' }, swatch(first(row)), row.label, row.marked ? el('b', { class: 'mark' }, '(!)') : null)
          : `control: ${row.label}`),
      },
      { title: 'runs', number: true, value: (row) => Number.parseInt(row.runs, 10), cell: (row) => row.runs },
      ...columns.map((column, i) => ({
        title: column.title, number: true, value: (row) => row.cells[i]?.value,
        best: (row) => known(row.group) && known(best[i]) && row.cells[i]?.value === best[i],
        cell: (row) => withSpread(row.cells[i]),
      })),
    ],
  });
  const node = section('comparison', 'Comparison', 'Comparison', 'Accuracy is the mean over clients after the last round, '
    + 'with prior the accuracy with each client’s class frequencies added to its logits, best that of the best round (chosen on the test images), last 5 the mean over the last five rounds. With several '
    + 'runs, numbers are means over splits and seeds, ± their standard deviation. Bold: the highest; its difference to the '
    + 'next need not be significant. A method marked (!) is no better than a control.', shown.node);
  node.append(...toldApart(), ...differences());
  onChange(shown.fill);
}

// Differences between methods, pair by pair, and what can be said of them.
function toldApart() {
  const { titles, lines, note } = data.comparison.differences;
  if (!lines.length) return [];
  const shown = table({
    label: 'Differences between methods', rows: lines,
    columns: titles.map((title, i) => ({
      title, number: i > 0 && i < titles.length - 1, value: (line) => (i === 1 ? Number(line[i]) : line[i]), cell: (line) => line[i],
    })),
  });
  return [el('h3', {}, 'Differences'), el('p', { class: 'note' }, note), shown.node];
}

function withSpread(cell) {
  const [mean, std] = cell?.text.split(' ± ') ?? [null];
  return std ? [mean, el('span', { class: 'plusminus' }, ` ± ${std}`)] : mean;
}

function differences() {
  if (!data.differences.length) return [el('p', { class: 'note' }, 'The runs have the same settings.')];
  const columns = shownAs.map((run, g) => {
    const first = runs.indexOf(groups[g][0]);
    return { title: run.title, value: (row) => row.values[first], cell: (row) => setting(row.values[first]) };
  });
  const rows = data.differences.filter((row) => !isMerged || !['seed', 'partition.seed'].includes(row.key));
  if (!rows.length) return [el('p', { class: 'note' }, 'The runs differ in split and seed only.')];
  const shown = table({
    label: 'Differing settings', rows,
    columns: [{ title: 'setting', value: (row) => row.key, cell: (row) => el('span', { class: 'mono' }, row.key) }, ...columns],
  });
  return [el('h3', {}, 'Settings in which the runs differ'), shown.node];
}

function setting(value) {
  if (!known(value)) return '–';
  return value === '' ? '""' : Array.isArray(value) ? value.join(' ') : String(value);
}
