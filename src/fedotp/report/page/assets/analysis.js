// Prompts and plans: statistics of transport, t-SNE of the clients' prompts.

// Title of a chart, and its lines as pairs of a name and values for each mass.
const PLAN_CHARTS = [
  ['accuracy, %', (plans) => [['accuracy', plans.accuracy.map((x) => 100 * x)]]],
  ['entropy (1: uniform)', (plans) => plans.prompts.map((name, i) => [name, plans.entropy[i]])],
  ['overlap (1: the same patches)', (plans) => (plans.prompts.length > 1 ? [['overlap', plans.overlap]] : [])],
  ['share of unassigned patches', (plans) => [['unassigned', plans.unassigned]]],
];
const BY_FIVE = { min: ({ min }) => Math.max(0, Math.floor(min / 5) * 5 - 5), max: ({ max }) => Math.min(100, Math.ceil(max / 5) * 5) };

const analysed = () => (focus().analysis && typeof focus().analysis === 'object' ? focus().analysis : null);

// One statistic of the plans against mass; a dotted line at the mass the run was trained with.
function planOption(title, choices) {
  const plans = analysed()?.plans;
  const lines = plans ? choices(plans) : [];
  if (!lines.length) return null;
  const other = data.colours.find((colour) => colour !== focus().colour);
  const colours = [tone(focus()), tone({ colour: other })];
  const trained = {
    silent: true, symbol: 'none', label: { show: false }, lineStyle: { color: css('muted'), type: [2, 4] },
    data: [{ xAxis: plans.mass_trained }],
  };
  const extent = { min: Math.min(...plans.masses), max: Math.max(...plans.masses) };
  return {
    grid: grid({ left: 4, right: 12, top: 50 }),
    legend: { show: lines.length > 1, top: 0, left: 0, itemWidth: 16, textStyle: { color: css('muted'), fontSize: 11 } },
    xAxis: axis('mass', { ...extent, nameLocation: 'middle', nameGap: 26, splitLine: { show: false } }),
    yAxis: yAxis(title, { scale: true, splitNumber: 3, nameGap: 16, ...(title.endsWith('%') ? BY_FIVE : {}) }),
    series: lines.map(([name, values], i) => ({
      type: 'line', name, symbol: 'circle', symbolSize: 6, itemStyle: { color: colours[i % 2] },
      lineStyle: { color: colours[i % 2], width: 2, type: DASHES[i % 3] },
      data: plans.masses.map((mass, m) => [mass, values[m]]), markLine: i ? undefined : trained,
    })),
    tooltip: tooltip((params) => [`Mass ${params[0].value[0]}`,
      params.map((param) => [param.seriesName, param.value[1]?.toPrecision(3)])], byRound),
  };
}

function tsneOption() {
  const plane = analysed()?.tsne;
  if (!plane) return null;
  const groups = [...new Set(plane.group)];
  const bare = { axisLabel: { show: false }, splitLine: { show: false }, scale: true };
  const faded = (i) => state.client && plane.client[i] !== state.client;
  const name = (param) => plane.client[param.value[2]];
  return {
    grid: { left: 16, right: 90, top: groups.length > 1 ? 44 : 16, bottom: 16 }, xAxis: axis('', bare), yAxis: axis('', bare),
    legend: {
      show: groups.length > 1, type: 'scroll', top: 0, left: 0, icon: 'circle', textStyle: { color: css('muted') },
      pageTextStyle: { color: css('muted') },
    },
    series: groups.map((group, g) => ({
      type: 'scatter', name: setting(group), symbolSize: 11, itemStyle: { color: tone({ colour: data.colours[g % data.colours.length] }) },
      label: { show: plane.x.length <= 20, position: 'right', color: css('muted'), fontSize: 11, formatter: name },
      data: plane.x.map((_, i) => i).filter((i) => plane.group[i] === group)
        .map((i) => ({ value: [plane.x[i], plane.y[i], i], itemStyle: { opacity: faded(i) ? 0.2 : 0.85 } })),
    })),
    tooltip: tooltip((param) => [name(param), [['group', setting(plane.group[param.value[2]])]]]),
    onclick: (param) => choose({ client: name(param) }),
  };
}

function planText(plans) {
  const share = (value) => `${(100 * value).toFixed(1)} %`;
  return `On ${plural(plans.n_images, 'test image')}. Accuracy with the trained mass ${plans.mass_trained}: ${share(plans.accuracy_trained)}; `
    + `with a uniform plan: ${share(plans.accuracy_uniform)}. A patch is unassigned if it gets less than a tenth of the uniform share. `
    + 'Dotted: the trained mass.';
}

// Reasons for missing parts.
function notes(analysis) {
  if (typeof analysis === 'string') return [el('p', { class: 'notice' }, `Not analysed: ${analysis}`)];
  const texts = analysis ? new Set(analysis.notes) : ['This run was not analysed.'];
  return [...texts].map((text) => el('p', { class: 'note' }, text));
}

function analysisSection() {
  if (runs.every((run) => run.analysis === null)) return;
  const plans = PLAN_CHARTS.map(([title, choices]) => addChart(`Plans against mass: ${title}`, 220, () => planOption(title, choices)));
  const plane = addChart('t-SNE of the clients’ prompts', 360, tsneOption);
  const [why, said] = [el('div'), el('p', { class: 'note' })];
  const maps = heatmaps();
  const planPart = el('div', {}, el('h3', {}, 'Plans against mass'), said, el('div', { class: 'quad' }, plans.map((chart) => chart.node)));
  const planePart = el('div', {}, el('h3', {}, 'Prompts of the clients'),
    el('p', { class: 'note' }, 't-SNE of the clients’ private prompts: similar prompts are close; axes have no meaning.'),
    el('div', { class: 'plane' }, plane.node));
  section('analysis', 'Prompts', 'Prompts and plans', 'Where the prompts look, and their similarity between clients.',
    why, maps.node, planPart, planePart);
  onChange(() => {
    const found = analysed();
    why.replaceChildren(...notes(focus().analysis));
    planPart.hidden = !found?.plans;
    planePart.hidden = !found?.tsne;
    if (found?.plans) said.textContent = planText(found.plans);
    maps.show(found?.maps ?? [], found?.plans?.mass_trained);
    [...plans, plane].forEach((chart) => chart.refresh());
  });
}
