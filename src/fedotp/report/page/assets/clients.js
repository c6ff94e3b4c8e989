// Clients: fairness, bars by client and by domain, the table.

const found = (text) => (text ?? '').toLowerCase().includes(state.search);
const pursue = (name) => choose({ client: state.client === name ? '' : name });

function clientNames() {
  const names = [...new Set(shownRuns().flatMap((run) => run.clients.name))].filter(found);
  const value = (name) => focus().clients.accuracy[clientNumber(focus(), name)] ?? -1;
  return state.order === 'accuracy' ? names.sort((a, b) => value(b) - value(a)) : names;
}

function clientBars() {
  const names = clientNames();
  const shown = shownRuns();
  if (!names.length || !shown.length) return null;
  const [many, few] = [names.length > 40, names.length * shown.length <= 12 && !narrow()];
  const written = { position: 'top', color: css('muted'), fontSize: 11, formatter: (param) => param.value.toFixed(1) };
  const bar = (run, name) => {
    const accuracy = run.clients.accuracy[clientNumber(run, name)];
    const faded = state.client && state.client !== name;
    return { value: known(accuracy) ? accuracy / ONE_PERCENT : '-', itemStyle: { opacity: faded ? 0.35 : 1 } };
  };
  return {
    grid: grid(), yAxis: yAxis('accuracy, %', { nameGap: 18, min: 0, max: 100 }),
    xAxis: categories(names, { axisLabel: { rotate: names.length > 12 || narrow() ? 45 : 0, width: names.length > 12 ? 80 : 110 } }),
    series: shown.map((run) => ({
      type: 'bar', name: run.title, barMaxWidth: shown.length > 1 ? 26 : 44, barGap: '8%', barCategoryGap: many ? '12%' : '32%',
      itemStyle: { color: tone(run), borderRadius: many ? 0 : [3, 3, 0, 0] },
      label: { show: few, ...written }, data: names.map((name) => bar(run, name)),
    })),
    tooltip: tooltip((params) => {
      const name = names[params[0].dataIndex];
      const having = shown.filter((run) => clientNumber(run, name) >= 0);
      return [name, having.map((run) => [key(run), `${percent(run.clients.accuracy[clientNumber(run, name)])} %`])];
    }, byBar),
    onclick: (param) => pursue(names[param.dataIndex]),
  };
}

const domainOf = (run, name) => (Object.hasOwn(run.domains, name) ? run.domains[name] : null);
const DOMAIN_BARS = { barMaxWidth: 46, barGap: '8%', barCategoryGap: '32%' };

// The standard deviation over a domain's clients as a thin line on its bar.
const whiskers = (run, place, shown, names) => ({
  type: 'custom', silent: true, z: 3, data: names.map((_, i) => i).filter((i) => domainOf(run, names[i])),
  renderItem: (_, api) => {
    const i = api.value(0);
    const { accuracy, accuracy_std: std } = domainOf(run, names[i]);
    const { offsetCenter } = api.barLayout({ count: shown.length, ...DOMAIN_BARS })[place];
    const [x, top] = api.coord([i, Math.min(100, 100 * (accuracy + std))]);
    const bottom = api.coord([i, Math.max(0, 100 * (accuracy - std))])[1];
    const shape = { x1: x + offsetCenter, x2: x + offsetCenter, y1: top, y2: bottom };
    return { type: 'line', shape, style: { stroke: css('ink'), lineWidth: 1.2, opacity: 0.7 } };
  },
});

function domainBars() {
  const shown = shownRuns().filter((run) => Object.keys(run.domains).length);
  const names = [...new Set(shown.flatMap((run) => Object.keys(run.domains)))];
  if (!names.length) return null;
  const text = ({ accuracy, accuracy_std: std, clients: n }) =>
    `${(100 * accuracy).toFixed(1)} ± ${(100 * std).toFixed(1)} % of ${plural(n, 'client')}`;
  return {
    grid: grid(), xAxis: categories(names), yAxis: yAxis('accuracy, %', { min: 0, max: 100 }),
    series: [
      ...shown.map((run) => ({
        type: 'bar', name: run.title, ...DOMAIN_BARS, itemStyle: { color: tone(run), borderRadius: [3, 3, 0, 0] },
        data: names.map((name) => (domainOf(run, name) ? 100 * domainOf(run, name).accuracy : '-')),
      })),
      ...shown.map((run, place) => whiskers(run, place, shown, names)),
    ],
    tooltip: tooltip((params) => {
      const name = names[params[0].dataIndex];
      return [name, shown.filter((run) => domainOf(run, name)).map((run) => [key(run), text(domainOf(run, name))])];
    }, byBar),
  };
}

function fairness() {
  const gap = (run) => run.clients.accuracy[extreme(run, -1)] - run.clients.accuracy[extreme(run, 1)];
  const column = (title, value) => ({ title, number: true, value, cell: (run) => percent(value(run), 2) });
  return table({
    label: 'Fairness between clients', rows: shownAs.filter((run) => known(run.totals.accuracy)),
    columns: [
      { title: isMerged ? 'method' : 'run', value: (run) => run.title, cell: key },
      column('mean %', (run) => run.totals.accuracy),
      column('standard deviation', (run) => run.totals.accuracy_std),
      column('worst tenth %', (run) => run.totals.accuracy_worst_decile),
      column('minimum %', (run) => run.totals.accuracy_min),
      ...(isMerged ? [] : [{ title: 'worst client', value: (run) => run.clients.name[extreme(run, 1)] }, column('best minus worst', gap)]),
      column('all images pooled %', (run) => run.totals.accuracy_pooled),
    ],
  });
}

function clientTable() {
  const of = (row, column) => focus().clients[column][row.i];
  const rows = () => focus().clients.name.map((name, i) => ({ name, i })).filter((row) => found(row.name) || found(of(row, 'domain')));
  const number = (title, column, write) => ({ title, number: true, value: (row) => of(row, column), cell: (row) => write(of(row, column)) });
  const name = (row) => [
    el('button', { class: 'link', type: 'button', 'aria-pressed': String(row.name === state.client), onclick: () => pursue(row.name) }, row.name),
    of(row, 'joined') ? el('span', { class: 'note' }, ' joined later') : '',
  ];
  const domain = { title: 'domain', value: (row) => of(row, 'domain'), cell: (row) => of(row, 'domain') ?? 'mixed' };
  const shown = table({
    label: 'Clients', rows: rows(), limit: 20, mark: (row) => row.name === state.client,
    columns: [
      { title: 'client', value: (row) => row.name, cell: name },
      ...(runs.some((run) => run.clients.domain.some(known)) ? [domain] : []),
      number('training images', 'train', count),
      number('test images', 'test', count),
      ...data.metrics.map(({ heading, key: metric, share }) =>
        number(heading, metric, (value) => (share ? percent(value, 2) : value?.toFixed(3)))),
    ],
  });
  return { node: shown.node, refresh: () => shown.show(rows()) };
}

function joinedLater(run) {
  if (!run.joined_later.length) return [];
  const number = (title, column, write) => ({ title, number: true, value: (row) => row[column], cell: (row) => write(row[column]) });
  const inPercent = (share) => percent(share, 2);
  const shown = table({
    label: 'Clients that joined after the run', rows: run.joined_later,
    columns: [
      { title: 'client', value: (row) => row.name }, number('training images', 'train', count), number('test images', 'test', count),
      number('accuracy before %', 'before', inPercent), number('after fitting %', 'after', inPercent),
    ],
  });
  return [el('h3', {}, 'Joined after the run'), shown.node];
}

function clients() {
  const bars = addChart('Accuracy of each client', () => (narrow() ? 280 : 320), clientBars);
  const domains = addChart('Accuracy by domain', 280, domainBars);
  const [fair, each] = [fairness(), clientTable()];
  const search = el('input', { type: 'search', placeholder: 'part of a name', oninput: (event) => choose({ search: event.target.value.toLowerCase() }) });
  const orders = [['name', 'as in the run'], ['accuracy', 'best first']];
  const [title, later] = [el('h3'), el('div')];
  const controls = el('div', { class: 'controls' }, el('label', {}, 'Search', search),
    selection('Order', orders, state.order, (order) => choose({ order })));
  const tested = runs.some((run) => known(run.totals.accuracy));
  const node = section('clients', 'Clients', 'Clients', 'Every client is tested on its own images. Click a bar or a name to highlight '
    + 'a client on the whole page.', ...(tested ? [el('h3', {}, 'Fairness'), fair.node, el('h3', {}, 'Accuracy of each client'),
    controls, legend(), bars.node] : []));
  if (runs.some((run) => Object.keys(run.domains).length)) {
    node.append(el('h3', {}, 'By domain'), el('p', { class: 'note' }, 'Mean ± standard deviation over the clients of each domain.'),
      domains.node);
    onChange(domains.refresh);
  }
  node.append(title, each.node, later);
  onChange(() => {
    title.textContent = runs.length > 1 ? `Clients of ${focus().title}` : 'All clients';
    later.replaceChildren(...joinedLater(focus()));
    fair.fill();
    each.refresh();
    bars.refresh();
  });
}
