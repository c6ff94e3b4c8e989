// Classes: those of each client, and confusions.

// A client's confusions are flat triples of label, predicted class and number of images.
function eachTriple(triples, visit) {
  for (let i = 0; i < triples.length; i += 3) visit(triples[i], triples[i + 1], triples[i + 2]);
}

// Counts by label and predicted class, of the selected client or of all, without classes that do not occur.
function confused(run) {
  const chosen = clientNumber(run, state.client);
  const [cells, labels, columns] = [new Map(), new Map(), new Set()];
  const add = (map, id, n) => map.set(id, (map.get(id) ?? 0) + n);
  run.confusion.filter((_, client) => chosen < 0 || client === chosen).forEach((triples) => eachTriple(triples, (label, predicted, n) => {
    add(cells, label * run.data.classes.length + predicted, n);
    add(labels, label, n);
    columns.add(label).add(predicted);
  }));
  const inOrder = (numbers) => [...numbers].sort((a, b) => a - b);
  return { cells, labels, rows: inOrder(labels.keys()), columns: inOrder(columns) };
}

function confusionHeight() {
  const n = confused(focus()).rows.length;
  return Math.max(150, Math.min(720, n * (n > 40 ? 8 : 30) + 130));
}

// A cell of the matrix: its colour the share of its row, its text the number of images.
function confusionCell(api, { gap, written, colours }) {
  const [x, y, n, part] = [0, 1, 2, 3].map((dimension) => api.value(dimension));
  const [centre, size] = [api.coord([x, y]), api.size([1, 1])];
  const text = { text: count(n), fill: part > 0.5 ? colours.page : colours.ink, fontSize: 12 };
  return {
    type: 'rect', textConfig: { position: 'inside' }, textContent: written && n ? { style: text } : undefined,
    shape: { x: centre[0] - (size[0] - gap) / 2, y: centre[1] - (size[1] - gap) / 2, width: size[0] - gap, height: size[1] - gap },
    style: { fill: mix(colours.empty, colours.full, Math.sqrt(part)) },
    emphasis: { style: { stroke: colours.ink, lineWidth: 1 } },
  };
}

function confusionOption() {
  const run = focus();
  const { cells, labels, rows, columns } = confused(run);
  if (!rows.length) return null;
  const names = run.data.classes;
  const values = rows.flatMap((row, y) => columns.map((column, x) => {
    const n = cells.get(row * names.length + column) ?? 0;
    return [x, y, n, n / labels.get(row)];
  }));
  const colours = { page: css('bg'), ink: css('ink'), empty: css('sunken'), full: tone(run) };
  const look = { colours, gap: rows.length > 40 ? 0 : 2, written: columns.length <= 14 && !narrow() };
  return {
    grid: grid({ top: 8 }),
    xAxis: categories(columns.map((k) => names[k]), { axisLabel: { rotate: columns.length > 8 || narrow() ? 45 : 0, width: 80 } }),
    yAxis: categories(rows.map((k) => names[k]), { inverse: true, axisLabel: { width: 100 } }),
    // not a series of type heatmap: its layers do not print
    series: [{ type: 'custom', progressive: 0, data: values, renderItem: (_, api) => confusionCell(api, look) }],
    tooltip: tooltip(({ value: [x, y, n, part] }) => [
      columns[x] === rows[y] ? `${names[rows[y]]}: correct` : `${names[rows[y]]} predicted as ${names[columns[x]]}`,
      [['test images', `${count(n)} of ${count(labels.get(rows[y]))}`], ['share', `${(100 * part).toFixed(1)} %`]],
    ]),
  };
}

// The most frequent errors of the selected client or of all, as a table.
function mistakesOf(run) {
  const { cells, labels } = confused(run);
  const names = run.data.classes;
  const pairs = [...cells].map(([id, n]) => ({ label: Math.floor(id / names.length), predicted: id % names.length, n }));
  const rows = pairs.filter((row) => row.label !== row.predicted).sort((a, b) => b.n - a.n);
  if (!rows.length) return [];
  const share = (row) => row.n / labels.get(row.label);
  const shown = table({
    label: 'Most frequent errors', rows, limit: 5,
    columns: [
      { title: 'class', value: (row) => names[row.label] },
      { title: 'predicted as', value: (row) => names[row.predicted] },
      { title: 'test images', number: true, value: (row) => row.n, cell: (row) => `${count(row.n)} of ${count(labels.get(row.label))}` },
      { title: 'share %', number: true, value: share, cell: (row) => (100 * share(row)).toFixed(1) },
    ],
  });
  return [el('h3', {}, 'Most frequent errors'), shown.node];
}

const partitionHeight = () => Math.max(200, Math.min(760, focus().data.classes.length * 26 + 90));

// Client, class and number of test images.
function imagesByClass(run) {
  return run.confusion.flatMap((triples, client) => {
    const counts = new Map();
    eachTriple(triples, (label, _, n) => counts.set(label, (counts.get(label) ?? 0) + n));
    return [...counts].map(([label, n]) => [client, label, n]);
  });
}

function partitionOption() {
  const run = focus();
  const { name: names, domain, train } = run.clients;
  const dots = imagesByClass(run);
  if (!dots.length) return null;
  const most = dots.reduce((a, b) => Math.max(a, b[2]), 0);
  const room = Math.min((narrow() ? 250 : 800) / names.length, (partitionHeight() - 90) / run.data.classes.length);
  const largest = Math.max(5, Math.min(26, room));
  const domains = [...new Set(domain)];
  const colour = (d) => (domains.length > 1 ? tone({ colour: data.colours[d % data.colours.length] }) : tone(run));
  const faded = (client) => state.client && names[client] !== state.client;
  return {
    grid: grid({ top: domains.length > 1 ? 34 : 12 }),
    legend: { show: domains.length > 1, type: 'scroll', top: 0, left: 0, icon: 'circle', textStyle: { color: css('muted') } },
    xAxis: categories(names, {
      axisLabel: { rotate: names.length > 10 || narrow() ? 45 : 0, width: 80 },
      splitLine: { show: names.length <= 40, lineStyle: { color: css('line') } },
    }),
    yAxis: categories(run.data.classes, { inverse: true, axisLabel: { width: 100 } }),
    series: domains.map((one, d) => ({
      type: 'scatter', name: one ?? 'mixed', itemStyle: { color: colour(d) },
      symbolSize: (value) => Math.max(2.5, largest * Math.sqrt(value[2] / most)),
      data: dots.filter(([client]) => domain[client] === one)
        .map((value) => ({ value, itemStyle: { opacity: faded(value[0]) ? 0.2 : 0.85 } })),
    })),
    tooltip: tooltip(({ value: [client, label, n] }) => [names[client], [
      [run.data.classes[label], plural(n, 'test image')], ['training images in total', count(train[client])],
    ]]),
  };
}

function noPredictions(run) {
  if (!isComplete(run)) return 'No predictions yet: they are written at the end of a run.';
  if (run.deployed && !run.missing.length) return 'Unavailable, since not every site shares its predictions.';
  return 'The predictions of this run are missing: see the notes.';
}

function classes() {
  const chart = addChart('Confusion matrix', confusionHeight, confusionOption);
  const bubbles = addChart('Classes of each client', partitionHeight, partitionOption);
  const [what, dots] = [el('p', { class: 'note' }), el('p', { class: 'note' })];
  const mistakes = el('div');
  section('confusion', 'Confusion', 'Confusion matrix', null, what, chart.node, mistakes);
  section('partition', 'Classes', 'Classes of the clients', null, dots, bubbles.node);
  onChange(() => {
    const run = focus();
    const who = clientNumber(run, state.client) >= 0 ? state.client : 'all clients';
    const there = run.confusion.length > 0;
    what.textContent = there ? `Test images of ${who}${runs.length > 1 ? `, ${run.title}` : ''}: rows are true classes, columns predicted `
      + 'ones; colours show the square root of the share, so that rare errors are visible. Classes that do not occur are not shown.'
      : noPredictions(run);
    dots.textContent = there ? 'The area of a dot is the number of a client’s test images of a class.'
      : 'Unavailable without predictions; the table of clients lists their numbers of images.';
    mistakes.replaceChildren(...mistakesOf(run));
    chart.refresh();
    bubbles.refresh();
  });
}
