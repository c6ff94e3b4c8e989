// The top of the page: runs and results in words; the choice of runs; the comparison; warnings and notes.

const SCHEMES = {
  iid: 'every client has the same share of every class',
  pathological: 'clients have disjoint classes',
  dirichlet: 'clients have different class frequencies',
  domain: 'a client per domain',
  'domain-dirichlet': 'several clients per domain, with different class frequencies',
  coarse: 'clients grouped by coarse label',
  quantity: 'the same classes everywhere, unequal amounts',
};

const strong = (text) => el('b', {}, text);
const isComplete = (run) => run.state === 'complete';
const nClients = (run) => run.clients.name.length;
const sum = (values) => values.reduce((a, b) => a + b, 0);

// The client with the lowest (sign 1) or highest (sign -1) accuracy, without those that joined later.
function extreme(run, sign) {
  const { accuracy, joined } = run.clients;
  const numbers = accuracy.map((_, i) => i).filter((i) => !joined[i] && known(accuracy[i]));
  return numbers.reduce((best, i) => (best === -1 || sign * accuracy[i] < sign * accuracy[best] ? i : best), -1);
}

// Bytes that a client sends (bytes_up) or receives (bytes_down) on average in a round in which it participates.
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
  const { warnings, remarks } = findNotes();
  const counts = [warnings.length && plural(warnings.length, 'warning'), remarks.length && plural(remarks.length, 'note')];
  const top = document.getElementById('top');
  top.append(
    el('p', { class: 'eyebrow' }, 'fedotp report'),
    el('h1', {}, one ? `${runs[0].method.title} on ${names[0]}` : `${runs.length} runs on ${names.join(', ')}`),
    el('p', { class: 'lead' }, ...(one ? storyOfOne(runs[0]) : storyOfMany())),
    counts.some(Boolean) ? el('p', { class: 'note' }, el('a', { href: '#notes' }, counts.filter(Boolean).join(', '))) : '',
  );
  if (one) top.append(tiles(runs[0]));
}

// Sentences of the section of notes: warnings, and other remarks.
function findNotes() {
  const one = runs.length === 1;
  const checks = one ? runs[0].checks : data.comparison;
  const ofRuns = (key) => runs.flatMap((run) => run[key].map((text) => (one ? text : `${run.title}: ${text}`)));
  const warnings = [
    ...runs.filter((run) => !isComplete(run)).map(incomplete), ...runs.flatMap((run) => run.missing).map((why) => `Missing: ${why}`),
    ...ofRuns('warnings'), ...checks.warnings,
  ];
  return { warnings, remarks: [...ofRuns('notes'), ...checks.notes] };
}

function notesSection() {
  const { warnings, remarks } = findNotes();
  if (!warnings.length && !remarks.length) return;
  section('notes', 'Notes', 'Notes', null, ...warnings.map((text) => el('p', { class: 'notice' }, text)),
    ...remarks.map((text) => el('p', { class: 'note' }, text)));
}

function incomplete(run) {
  const who = runs.length === 1 ? 'This run' : run.title;
  return `${who} is not complete: ${count(run.rounds.done)} of ${plural(run.rounds.planned, 'round')} are done, and it `
    + `${run.state === 'running' ? 'is running' : 'has stopped'}. The page shows its state at ${data.made}.`;
}

function storyOfOne(run) {
  const { totals, clients } = run;
  const words = [strong(plural(nClients(run), 'client'))];
  if (run.training.round.length) {
    words.push(' trained for ', strong(plural(run.rounds.done, 'round')), isComplete(run) ? ''
      : ` of ${count(run.rounds.planned)}`);
  } else words.push(isComplete(run) ? ' were tested without training' : ' have not trained yet');
  words.push(` with the backbone ${run.backbone}; ${splitText(run)}.`);
  if (!known(totals.accuracy)) return [...words, noScores(run)];
  const worst = extreme(run, 1);
  words.push(' The mean accuracy of clients on their own test images is ', strong(`${percent(totals.accuracy)}\u00a0%`),
    ` (standard deviation ${percent(totals.accuracy_std)})`);
  if (worst >= 0) words.push(`; the worst client, ${clients.name[worst]}, has ${percent(clients.accuracy[worst])}\u00a0%`);
  return [...words, '.', ...controlsOf(run)];
}

// The accuracies of controls.
function controlsOf(run) {
  const scores = Object.entries(run.controls).map(([name, accuracy]) => `${name} ${percent(accuracy)}\u00a0%`);
  return scores.length ? [` Controls: ${scores.join(', ')}.`] : [];
}

// Reason for a missing accuracy.
const noScores = (run) => (run.deployed && isComplete(run) ? ' No site reports its accuracy.' : ' It has not been evaluated yet.');

function storyOfMany() {
  const complete = data.comparison.rows.filter((row) => row.cells[0]);
  const rows = complete.sort((a, b) => b.cells[0].value - a.cells[0].value);
  const sizes = runs.map(nClients);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const splits = [...new Set(runs.map(splitText))];
  const words = [`${least === most ? '' : `${count(least)} to `}${plural(most, 'client')}; ${splits.length > 2 ? `${splits.length} kinds of split` : splits.join('; ')}.`];
  if (!data.comparison.rows.length) return [...words, ' All of them are controls.'];
  if (!rows.length) return [...words, runs.some(isComplete) ? ' No site reports its accuracy.' : ' None of the runs is complete yet.'];
  const accuracy = (row) => `${percent(Math.round(1e6 * row.cells[0].value))}\u00a0%`;
  words.push(' Highest mean accuracy of clients on their own test images: ', strong(`${rows[0].label} ${accuracy(rows[0])}`));
  rows.slice(1, 5).forEach((row, i) => words.push(i === 0 ? '; ' : ', ', `${row.label} ${accuracy(row)}`));
  words.push(rows.length > 5 ? ` and ${rows.length - 5} more below.` : '.');
  words.push(...cautions(rows[0]));
  const sameData = new Set(runs.map((run) => run.data.name)).size === 1;
  return sameData ? words : [...words, ' The runs have different data, so their accuracies are not comparable.'];
}

// Cautions on the first row: only differences from the reference are known.
function cautions(first) {
  const { reference, lines } = data.comparison.differences;
  const word = (line) => line[line.length - 1];
  const unclear = lines.filter((line) => !/^(above|below) /.test(word(line)));
  if (lines.every((line) => line[2] === '-')) return lines.length ? [' One run of each is not enough to rank them.'] : [];
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
  const received = run.training.round.length ? `${bytesText(perClient(run, 'bytes_down'))} received` : 'no communication';
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

// Mark the link of the visible section.
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
    + '“with prior” adds the logarithm of each client’s class frequencies to its logits, “best” is the best round (chosen on the test '
    + 'images), “last 5” the mean over the last five rounds. Numbers of several runs are means over splits and seeds, ± standard '
    + 'deviation. Bold: the highest, not necessarily significantly. (!): see the notes on controls.', shown.node);
  node.append(...pairedDifferences(), ...differences());
  onChange(shown.fill);
}

// Paired differences between methods, with verdicts.
function pairedDifferences() {
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
  if (!rows.length) return [el('p', { class: 'note' }, 'The runs differ only in split and seed.')];
  const shown = table({
    label: 'Differing settings', rows,
    columns: [{ title: 'setting', value: (row) => row.key, cell: (row) => el('span', { class: 'mono' }, row.key) }, ...columns],
  });
  return [el('h3', {}, 'Differing settings'), shown.node];
}

function setting(value) {
  if (!known(value)) return '–';
  return value === '' ? '""' : Array.isArray(value) ? value.join(' ') : String(value);
}
