// Views: the same classifiers and the global model on other images and class names.

const viewName = (row) => `${row.view}, ${row.model} model`;
const drawn = (run) => run.views.filter((row) => row.round?.length > 1);

// Both models share the colour of a view; the global one is dashed.
function viewTone(row) {
  const names = [...new Set(drawn(focus()).map((other) => other.view))];
  const colour = data.colours[names.indexOf(row.view) % data.colours.length];
  return isDark() ? mix(colour, '#ffffff', 0.38) : colour;
}
const viewDash = (row) => (row.model === 'global' ? 1 : 0);
const viewKey = (row) => el('span', { class: 'key' }, el('span', { class: `swatch dash${viewDash(row)}`, tone: viewTone(row) }), viewName(row));

function viewsOption() {
  const shown = drawn(focus());
  if (!shown.length) return null;
  const lowest = Math.min(...shown.flatMap((row) => row.accuracy));
  return {
    grid: grid(), xAxis: rounds(Math.max(...shown.flatMap((row) => row.round))),
    yAxis: yAxis('accuracy, %', { min: Math.floor(lowest / ONE_PERCENT / 10) * 10, max: 100 }),
    series: shown.map((row) => ({
      type: 'line', name: viewName(row), symbol: 'circle', symbolSize: 5, showSymbol: row.round.length <= MANY_ROUNDS,
      itemStyle: { color: viewTone(row) }, lineStyle: { color: viewTone(row), width: 2.2, type: DASHES[viewDash(row)] },
      data: row.round.map((round, i) => [round, row.accuracy[i] / ONE_PERCENT]),
    })),
    tooltip: tooltip((params) => [`Round ${params[0].value[0]}`,
      params.map((param) => [viewKey(shown[param.seriesIndex]), `${param.value[1].toFixed(1)} %`])], byRound),
  };
}

function viewTable() {
  const rows = runs.flatMap((run) => run.views.map((row) => ({ ...row, run })));
  const number = (title, column, write) => ({ title, number: true, value: (row) => row[column], cell: (row) => write(row[column]) });
  const inPercent = (share) => percent(share, 2);
  return table({
    label: 'Accuracy in each view', rows,
    columns: [
      ...(runs.length > 1 ? [{ title: 'run', value: (row) => row.run.title, cell: (row) => key(row.run) }] : []),
      { title: 'view', value: (row) => row.view }, { title: 'model', value: (row) => row.model },
      { title: 'test data', value: (row) => row.what },
      number('images', 'images', count), number('classes', 'classes', count), number('clients', 'clients', count),
      number('last round %', 'last', inPercent), number('best round %', 'best', inPercent), number('best round', 'best_round', count),
      number('mean of last 5 %', 'last_five', inPercent),
    ],
  });
}

// Means over runs that differ only in split and seed: three lines for each, last, best and mean of the last five.
function comparedViews() {
  const tables = (data.comparison?.views ?? []).flatMap(({ by, titles, lines }) =>
    [el('h3', {}, `Compared: ${by}`), comparedBy(by, titles, lines)]);
  return tables.length ? [...tables, el('h3', {}, 'Each run')] : [];
}

function comparedBy(by, titles, lines) {
  return table({
    label: `Views compared: ${by}`, rows: lines,
    columns: [
      { title: 'method', value: (line) => line[0] }, { title: 'round', value: (line) => line[1] },
      ...titles.map((title, i) => ({
        title, number: true, value: (line) => (line[i + 2] === '-' ? null : Number.parseFloat(line[i + 2])),
        cell: (line) => withSpread({ text: line[i + 2] }),
      })),
    ],
  }).node;
}

function views() {
  if (!runs.some((run) => run.views.length)) return;
  const shown = viewTable();
  const lines = addChart('Accuracy in each view over rounds', () => (narrow() ? 280 : 340), viewsOption);
  const which = el('div', { class: 'legend' });
  section('views', 'Views', 'Views', 'The same classifiers on other images and class names. The personal model is that of each '
    + 'client, the global one that of a new client. Numbers are means over clients; the best round is that of each view, '
    + 'chosen on the same test images.', ...comparedViews(), shown.node, which, lines.node);
  onChange(() => which.replaceChildren(...drawn(focus()).map(viewKey)));
  onChange(lines.refresh);
  onChange(shown.fill);
}
