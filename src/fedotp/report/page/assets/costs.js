// Cost: bytes and seconds; configuration and manifest.

const BYTES = [['B', 1], ['KiB', 2 ** 10], ['MiB', 2 ** 20], ['GiB', 2 ** 30], ['TiB', 2 ** 40]];
const SECONDS = [['seconds', 1], ['minutes', 60], ['hours', 3600]];
const PHASES = [['training', 'train', 1], ['evaluation', 'evaluate', 0.42]]; // name, key, opacity

// The largest unit that is at most half of `value`, for round ticks.
const unitOf = (value, units) => units.findLast(([, size]) => value >= 2 * size) ?? units[0];

function cumulated(values) {
  let total = 0;
  return values.map((value) => (total += value));
}

function bytesOption() {
  const shown = shownRuns().filter((run) => run.training.round.length);
  if (!shown.length) return null;
  const ups = shown.map((run) => cumulated(run.training.bytes_up));
  const downs = shown.map((run) => cumulated(run.training.bytes_down));
  const total = (r, i) => ups[r][i] + downs[r][i];
  const [unit, size] = unitOf(Math.max(...shown.map((_, r) => total(r, ups[r].length - 1))), BYTES);
  const lines = (r, round) => {
    const i = shown[r].training.round.indexOf(round);
    if (i < 0) return [[key(shown[r]), bytesText(0)]];
    const both = [['up · down', `${bytesText(ups[r][i])} · ${bytesText(downs[r][i])}`]];
    return [[key(shown[r]), bytesText(total(r, i))], ...(shown.length < 4 ? both : [])];
  };
  return {
    grid: grid(), xAxis: rounds(Math.max(...shown.map((run) => run.training.round.at(-1)))),
    yAxis: yAxis(`${unit} sent and received, all clients together`),
    series: shown.map((run, r) => ({
      ...lineOf(run), showSymbol: false, areaStyle: { color: tone(run), opacity: 0.05 },
      data: [[0, 0], ...run.training.round.map((round, i) => [round, total(r, i) / size])],
    })),
    tooltip: tooltip((params) => {
      const round = params[0].value[0];
      return [`After round ${round}`, params.flatMap((param) => lines(param.seriesIndex, round))];
    }, byRound),
  };
}

function timeOption() {
  const shown = shownRuns();
  if (!shown.length) return null;
  const [unit, size] = unitOf(Math.max(...shown.map((run) => run.seconds.train + run.seconds.evaluate)), SECONDS);
  return {
    grid: grid({ top: 30, right: 28 }), xAxis: axis(unit, { nameLocation: 'middle', nameGap: 26 }),
    legend: { top: 0, left: 0, icon: 'roundRect', itemWidth: 12, itemHeight: 8, textStyle: { color: css('muted') } },
    yAxis: categories(shown.map((run) => run.title), { inverse: true, axisLabel: { width: narrow() ? 90 : 150 } }),
    series: PHASES.map(([name, phase, opacity]) => ({
      type: 'bar', name, stack: 'time', barMaxWidth: 22, itemStyle: { color: alpha('#888888', opacity) },
      data: shown.map((run) => ({ value: run.seconds[phase] / size, itemStyle: { color: alpha(tone(run), opacity) } })),
    })),
    tooltip: tooltip((params) => {
      const run = shown[params[0].dataIndex];
      const n = run.training.round.length;
      return [run.title, [
        ...PHASES.map(([name, phase]) => [name, duration(run.seconds[phase])]),
        ...(n ? [['training of a round', duration(run.seconds.train / n)]] : []),
      ]];
    }, byBar),
  };
}

function traffic() {
  if (runs.every((run) => perClient(run, 'bytes_up') === 0)) return 'No communication.';
  if (runs.length > 1) return 'Only shared parameters are sent; methods without any stay at zero.';
  const [up, down] = ['bytes_up', 'bytes_down'].map((direction) => bytesText(perClient(runs[0], direction)));
  return `A client sends ${up} and receives ${down} in a round in which it participates: only the shared parameters.`;
}

function costs() {
  const sent = addChart('Bytes over rounds', 280, bytesOption);
  const time = addChart('Time by phase', () => 90 + 40 * Math.max(1, state.shown.size), timeOption);
  const part = (title, note, ...nodes) => el('div', {}, el('h3', {}, title), el('p', { class: 'note' }, note), ...nodes);
  section('costs', 'Cost', 'Communication and time', null, el('div', { class: 'pair' },
    part('Communication', traffic(), legend(), sent.node),
    part('Time by phase', runs.some((run) => run.deployed) ? 'All clients together; for real sites measured by the server, including waiting.'
      : 'All clients together, on the machine of the run.', time.node)));
  onChange(() => { sent.refresh(); time.refresh(); });
}

// Nested values as pairs of a dotted name and a text.
function flatten(value, prefix = '') {
  if (value === null || typeof value !== 'object') return [[prefix, setting(value)]];
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== 'object')) {
    const rest = value.length > 60 ? `, … (${count(value.length)})` : '';
    return [[prefix, value.slice(0, 60).map(setting).join(', ') + rest]];
  }
  return Object.entries(value).flatMap(([name, inner]) => flatten(inner, prefix ? `${prefix}.${name}` : name));
}

function origin() {
  const search = el('input', { type: 'search', placeholder: 'a setting or a value', oninput: () => fill() });
  const [settings, manifest, what] = [el('div'), el('div'), el('p', { class: 'note' })];
  const wanted = (...texts) => texts.join(' ').toLowerCase().includes(search.value.toLowerCase());
  function fill() {
    const { seed, ...parts } = focus().config;
    const lists = Object.entries({ run: { seed }, ...parts }).map(([part, values]) =>
      [part, flatten(values).filter(([name, value]) => wanted(`${part}.${name}`, value))]);
    settings.replaceChildren(el('div', { class: 'columns' }, lists.filter(([, rows]) => rows.length)
      .map(([part, rows]) => el('div', {}, el('h4', {}, part), facts(rows)))));
    manifest.replaceChildren(facts(flatten(focus().manifest).filter((row) => wanted(...row))));
  }
  section('origin', 'Configuration', 'Configuration and origin', null, what,
    el('div', { class: 'controls' }, el('label', {}, 'Search', search)),
    el('details', { open: runs.length === 1 }, el('summary', {}, 'Configuration'), settings),
    el('details', {}, el('summary', {}, 'Manifest: versions, digests, machine'), manifest));
  onChange(() => {
    const which = runs.length > 1 ? `${focus().title}. ` : '';
    what.textContent = `${which}All settings of the run, and its versions and digests.`;
    fill();
  });
}
