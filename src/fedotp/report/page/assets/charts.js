// Charts: drawn when they become visible, and again when the choice, the size or the theme changes.

const root = document.documentElement;
const darkMedia = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : darkMedia.matches);
const css = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

function mix(from, to, share) {
  const parts = [from, to].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const mixed = parts[0].map((x, i) => Math.round(x + (parts[1][i] - x) * share));
  return `#${mixed.map((x) => x.toString(16).padStart(2, '0')).join('')}`;
}
// A run's colour; lighter on a dark page.
const tone = (run) => (isDark() ? mix(run.colour, '#ffffff', 0.38) : run.colour);
const alpha = (hex, opacity) => hex + Math.round(255 * opacity).toString(16).padStart(2, '0');
const DASHES = ['solid', 'dashed', 'dotted'];
const narrow = () => window.innerWidth < 700;

const charts = [];
const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
  const chart = charts.find((other) => other.node === entry.target);
  chart.visible = entry.isIntersecting;
  if (chart.visible && chart.stale) draw(chart);
}), { rootMargin: '200px' });
const sizes = new ResizeObserver((entries) => entries.forEach((entry) => {
  const chart = charts.find((other) => other.node === entry.target);
  if (chart.instance && entry.contentRect.width > 0) redraw(chart);
}));

// `build` returns an ECharts option, or null for an empty chart; `height` in pixels.
function addChart(label, height, build) {
  const node = el('div', {
    class: 'chart', role: 'img', tabindex: '0', 'aria-label': `${label}. Arrow keys read the values.`,
  });
  const chart = { node, label, height, build, stale: true, visible: false, instance: null, at: -1 };
  node.addEventListener('keydown', (event) => step(chart, event));
  node.addEventListener('blur', () => chart.instance?.dispatchAction({ type: 'hideTip' }));
  charts.push(chart);
  setHeight(chart);
  watcher.observe(node);
  sizes.observe(node);
  return { node, refresh: () => redraw(chart) };
}

function setHeight(chart) {
  const height = typeof chart.height === 'function' ? chart.height() : chart.height;
  chart.node.style.height = `${height}px`;
}

function redraw(chart) {
  setHeight(chart);
  chart.stale = true;
  delete chart.node.dataset.drawn;
  if (chart.visible || chart.node.hidden) draw(chart);
}

function draw(chart) {
  chart.stale = false;
  const option = chart.build();
  chart.node.hidden = option === null;
  if (option === null || !chart.node.clientWidth) return;
  if (!chart.instance) {
    const sharp = { renderer: 'canvas', devicePixelRatio: Math.max(2, devicePixelRatio) };
    chart.instance = echarts.init(chart.node, null, sharp);
    chart.instance.on('finished', () => { chart.node.dataset.drawn = ''; });
  }
  chart.instance.resize();
  chart.instance.clear(); // keeps the order of series
  chart.instance.setOption({ ...base(), ...option });
  if (option.onclick) {
    chart.instance.off('click');
    chart.instance.on('click', option.onclick);
  }
  chart.option = option;
}

const base = () => ({
  animation: false,
  textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: css('muted') },
  backgroundColor: 'transparent',
});

const grid = (more = {}) => ({ left: 8, right: 16, top: 34, bottom: 22, containLabel: true, ...more });

const axis = (name, more = {}) => ({
  type: 'value', name, nameTextStyle: { color: css('muted'), fontSize: 12 }, nameGap: 12,
  axisLabel: { color: css('muted'), fontSize: 12, hideOverlap: true },
  axisLine: { show: false, lineStyle: { color: css('line') } }, axisTick: { show: false },
  splitLine: { lineStyle: { color: css('line') } }, ...more,
});
const categories = (names, more = {}) => axis('', {
  type: 'category', data: names, splitLine: { show: false }, ...more,
  axisLabel: { color: css('muted'), fontSize: 12, overflow: 'truncate', width: 110, hideOverlap: true, ...more.axisLabel },
});
// A vertical axis with its name above.
const yAxis = (name, more = {}) => axis(name, { nameTextStyle: { color: css('muted'), fontSize: 12, align: 'left' }, ...more });
const rounds = (last) => axis('round', {
  min: 0, max: Math.max(last, 1), minInterval: 1, nameLocation: 'middle', nameGap: 26, splitLine: { show: false },
});

// The formatter returns a node made of text, so that names are never parsed as markup.
const tooltip = (content, more = {}) => ({
  trigger: 'item', confine: true, transitionDuration: 0, padding: [8, 12], textStyle: { color: css('ink') },
  backgroundColor: css('surface'), borderColor: css('line'), borderWidth: 1,
  extraCssText: 'box-shadow: 0 4px 18px rgba(0,0,0,.12); border-radius: 8px;',
  formatter: (params) => {
    const [title, lines] = content(params);
    return el('div', { class: 'tip' }, el('b', {}, title), lines.map(([name, value]) =>
      el('div', {}, el('span', {}, name), el('span', {}, value ?? '–'))));
  },
  ...more,
});
const byRound = {
  trigger: 'axis',
  axisPointer: { type: 'line', lineStyle: { color: '#8888', width: 1 }, label: { show: false } },
};
const byBar = { trigger: 'axis', axisPointer: { type: 'shadow', shadowStyle: { color: '#8881' } } };

// The style of a run's line.
const lineOf = (run, width = 2.2) => ({
  type: 'line', name: run.title, symbol: 'circle', symbolSize: 5, itemStyle: { color: tone(run) },
  lineStyle: { color: tone(run), width },
});

// Arrow keys step through the values of the first series that has any.
function step(chart, event) {
  const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === 'Escape') chart.instance?.dispatchAction({ type: 'hideTip' });
  if (!move || !chart.instance) return;
  event.preventDefault();
  const series = chart.option.series.findIndex((one) => !one.silent && one.data?.length);
  if (series < 0) return;
  const n = chart.option.series[series].data.length;
  chart.at = (chart.at + move + n) % n;
  chart.instance.dispatchAction({ type: 'showTip', seriesIndex: series, dataIndex: chart.at });
}

const redrawAll = () => charts.forEach(redraw);
darkMedia.addEventListener('change', () => { choose({}); redrawAll(); });

// Prints are light, with all parts open and drawn; charts get their width here, before the layout changes.
const PAPER = 680; // pixels between the margins of A4 or Letter, at most
const onScreen = { theme: undefined, closed: [] };
addEventListener('beforeprint', () => {
  onScreen.theme = root.dataset.theme;
  onScreen.closed = [...document.querySelectorAll('details:not([open])')];
  root.dataset.theme = 'light';
  onScreen.closed.forEach((details) => { details.open = true; });
  choose({});
  charts.forEach((chart) => {
    setHeight(chart);
    chart.node.style.width = `${Math.min(chart.node.clientWidth, PAPER)}px`;
    draw(chart);
  });
});
addEventListener('afterprint', () => {
  if (onScreen.theme) root.dataset.theme = onScreen.theme; else delete root.dataset.theme;
  onScreen.closed.forEach((details) => { details.open = false; });
  charts.forEach((chart) => { chart.node.style.width = ''; });
  choose({});
  redrawAll();
});
