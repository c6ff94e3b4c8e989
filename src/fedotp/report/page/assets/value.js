// What each client contributed: its Shapley value, and what is lost without it.

const inPoints = (share) => (known(share) ? `${share < 0 ? '−' : '+'}${percent(Math.abs(share), 2)}` : '–');
const MOST_BARS = 30;

function valueBars() {
  const found = focus().value;
  if (!found) return null;
  const shown = [...found.sites].sort((a, b) => b.shapley - a.shapley).slice(0, MOST_BARS);
  return {
    grid: grid({ top: 8, bottom: 30 }), xAxis: axis('points of accuracy', { nameLocation: 'middle', nameGap: 26 }),
    yAxis: categories(shown.map((site) => site.name), { inverse: true, axisLabel: { width: narrow() ? 90 : 150 } }),
    series: [
      { type: 'bar', barMaxWidth: 18, itemStyle: { color: tone(focus()) }, data: shown.map((site) => site.shapley / ONE_PERCENT) },
      {
        type: 'custom', silent: true, z: 3, data: shown.map((_, i) => i).filter((i) => shown[i].high > shown[i].low),
        renderItem: (_, api) => {
          const i = api.value(0);
          const [[x1, y], [x2]] = [shown[i].low, shown[i].high].map((bound) => api.coord([bound / ONE_PERCENT, i]));
          return { type: 'line', shape: { x1, x2, y1: y, y2: y }, style: { stroke: css('ink'), lineWidth: 1.4, opacity: 0.7 } };
        },
      },
    ],
    tooltip: tooltip((params) => {
      const site = shown[params[0].dataIndex];
      return [site.name, [['Shapley value', inPoints(site.shapley)], ['left out', inPoints(site.leave_one_out)]]];
    }, byBar),
  };
}

function valueWords({ of, permutations, all, none }) {
  const what = of === 'global' ? 'What is shared is right' : 'Each client’s own classifier is right';
  const how = permutations === null ? 'Shapley values are exact, from all coalitions.'
    : `Shapley values are from ${plural(permutations, 'random order')}, with 95 % intervals of what more orders could change.`;
  return `${what} for ${percent(all, 2)} % of all clients’ test images with all clients, for ${percent(none, 2)} % with none; `
    + `the values, in points, sum up to the difference. ${how} All of one seed: small differences are chance.`;
}

function values() {
  if (!runs.some((run) => run.value)) return;
  const [said, list] = [el('p', { class: 'note' }), el('div')];
  const chart = addChart('What each client contributed', () => 70 + 30 * Math.min(MOST_BARS, focus().value?.sites.length ?? 1), valueBars);
  const node = section('value', 'Value', 'What each client contributed', null, said, chart.node, list);
  const column = (title, key) => ({ title, number: true, value: (site) => site[key], cell: (site) => inPoints(site[key]) });
  onChange(() => {
    const found = focus().value;
    node.hidden = !found;
    if (!found) return;
    said.textContent = valueWords(found);
    const between = { title: '95 % interval', value: (site) => site.low, cell: (site) => (known(site.low) ? `${inPoints(site.low)} to ${inPoints(site.high)}` : '–') };
    list.replaceChildren(table({
      label: 'What each client contributed', rows: found.sites, sort: [1, true], mark: (site) => site.name === state.client,
      columns: [
        { title: 'client', value: (site) => site.name }, column('Shapley', 'shapley'), ...(found.permutations === null ? [] : [between]),
        column('left out', 'leave_one_out'),
      ],
    }).node);
    chart.refresh();
  });
}
