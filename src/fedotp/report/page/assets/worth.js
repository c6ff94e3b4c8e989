// What each client contributed: its Shapley value, and what is lost without it.

const inPoints = (share) => (known(share) ? `${share < 0 ? '−' : '+'}${percent(Math.abs(share), 2)}` : '–');
const MOST_BARS = 30;

function worthBars() {
  const worth = focus().worth;
  if (!worth) return null;
  const shown = [...worth.sites].sort((a, b) => b.shapley - a.shapley).slice(0, MOST_BARS);
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

function worthWords({ of, permutations, everybody, nobody }) {
  const what = of === 'global' ? 'What is shared is right' : 'Each client’s own classifier is right';
  const how = permutations === null ? 'Shapley values are exact, from all coalitions.'
    : `Shapley values are from ${plural(permutations, 'random order')}, with 95 % intervals of what more orders could change.`;
  return `${what} for ${percent(everybody, 2)} % of all clients’ test images with everybody, for ${percent(nobody, 2)} % with nobody; `
    + `the values, in points, sum up to the difference. ${how} All of one seed: small differences are chance.`;
}

function worth() {
  if (!runs.some((run) => run.worth)) return;
  const [said, list] = [el('p', { class: 'note' }), el('div')];
  const chart = addChart('What each client contributed', () => 70 + 30 * Math.min(MOST_BARS, focus().worth?.sites.length ?? 1), worthBars);
  const node = section('worth', 'Worth', 'What each client contributed', null, said, chart.node, list);
  const column = (title, key) => ({ title, number: true, value: (site) => site[key], cell: (site) => inPoints(site[key]) });
  onChange(() => {
    const found = focus().worth;
    node.hidden = !found;
    if (!found) return;
    said.textContent = worthWords(found);
    const between = { title: '95 % interval', value: (site) => site.low, cell: (site) => (known(site.low) ? `${inPoints(site.low)} to ${inPoints(site.high)}` : '–') };
    list.replaceChildren(table({
      label: 'What each client contributed', rows: found.sites, sort: [1, true], mark: (site) => site.name === state.client,
      columns: [
        { title: 'client', value: (site) => site.name }, column('Shapley', 'shapley'), ...(found.permutations === null ? [] : [between]),
        column('left out', 'leave_one_out'), column('others’ own', 'gain_of_others'),
      ],
    }).node);
    chart.refresh();
  });
}
