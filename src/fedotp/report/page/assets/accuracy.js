// Accuracy over rounds: the mean over clients, the spread, and single clients.

const MANY_ROUNDS = 30; // lines with more points have no dots

const lastRound = () => Math.max(1, ...shownRuns().flatMap((run) => run.curve.round));
const evaluatedAt = (run, round) => run.curve.round.findLastIndex((r) => r <= round);
const level = (run) => run.curve.round.length === 1; // a single evaluation (zero-shot CLIP) is a horizontal line
const dotted = (run) => !level(run) && run.curve.round.length <= MANY_ROUNDS;
const single = (run) => (run.members?.includes(focus()) ? focus() : run); // the run whose clients are shown: the one in detail
const curveOf = (run, name) => single(run).curve.clients[single(run).curve.shown.indexOf(clientNumber(single(run), name))];

function points(run, values) {
  const inPercent = (value) => (known(value) ? value / ONE_PERCENT : null);
  if (level(run)) return [[0, inPercent(values[0])], [lastRound(), inPercent(values[0])]];
  return run.curve.round.map((round, i) => [round, inPercent(values[i])]);
}

// The lower and upper edge of a run's band.
function edges(run) {
  const { mean, std, min, max } = run.curve;
  if (level(run) || state.spread === 'none') return [mean, mean];
  if (state.spread === 'range') return [min, max];
  return [mean.map((m, i) => Math.max(0, m - std[i])), mean.map((m, i) => Math.min(100 * ONE_PERCENT, m + std[i]))];
}

function band(run) {
  const [low, high] = edges(run);
  const outline = [...points(run, high), ...points(run, low).reverse()];
  const opacity = (isDark() ? 0.17 : 0.12) / (state.shown.size > 2 ? 1.7 : 1);
  return {
    type: 'custom', silent: true, data: [0], z: 1, clip: true,
    renderItem: (_, api) => ({
      type: 'polygon', shape: { points: outline.map((point) => api.coord(point)) }, style: { fill: alpha(tone(run), opacity) },
    }),
  };
}

function clientLines(run) {
  const lines = run.curve.clients.map((values) => points(run, values).filter((point) => known(point[1])));
  const opacity = Math.max(0.12, Math.min(0.45, 6 / run.curve.shown.length));
  return {
    type: 'lines', coordinateSystem: 'cartesian2d', polyline: true, progressive: 0, silent: true, z: 2,
    lineStyle: { color: tone(run), width: 1, opacity },
    data: lines.filter((line) => line.length > 1).map((coords) => ({ coords })),
  };
}

const meanLine = (run) => {
  const line = lineOf(run, 2.4);
  if (level(run)) line.lineStyle.type = [2, 4];
  return { ...line, data: points(run, run.curve.mean), z: 3, showSymbol: dotted(run) };
};

const chosenLine = (run) => ({
  type: 'line', name: state.client, data: points(single(run), curveOf(run, state.client)), connectNulls: true, z: 4,
  symbol: 'circle', symbolSize: 5, showSymbol: dotted(run),
  lineStyle: { color: tone(run), width: 1.5, type: [6, 3] },
  itemStyle: { color: css('bg'), borderColor: tone(run), borderWidth: 1.5 },
});

function accuracyTip(shown, params) {
  const round = Math.max(...params.filter((param) => param.seriesType === 'line').map((param) => param.value[0]));
  return [`Round ${round}`, shown.flatMap((run) => {
    const i = level(run) ? 0 : evaluatedAt(run, round);
    if (i < 0) return [];
    const { mean, std, min, max } = run.curve;
    const own = curveOf(run, state.client)?.[evaluatedAt(single(run), round)];
    return [
      [key(run), `${percent(mean[i])} ± ${percent(std[i])} %`],
      ...(shown.length < 4 ? [[run.members ? 'lowest – highest run' : 'worst – best client', `${percent(min[i])} – ${percent(max[i])} %`]] : []),
      ...(known(own) ? [[state.client, `${percent(own)} %`]] : []),
    ];
  })];
}

function accuracyOption() {
  const shown = shownRuns().filter((run) => run.curve.round.length);
  if (!shown.length) return null;
  const chosen = shown.filter((run) => curveOf(run, state.client));
  const tick = isMerged ? 5 : 10;
  const highs = [...shown.flatMap((run) => edges(run)[1]), ...chosen.map(() => 100 * ONE_PERCENT)];
  const top = isMerged && !state.lines ? Math.min(100, Math.ceil(Math.max(...highs) / ONE_PERCENT / tick) * tick) : 100;
  const lows = [
    ...shown.flatMap((run) => (state.lines ? single(run).curve.min : edges(run)[0])),
    ...chosen.flatMap((run) => curveOf(run, state.client).filter(known)),
  ];
  return {
    grid: grid(), xAxis: rounds(lastRound()),
    yAxis: yAxis('accuracy of a client, %', { min: Math.floor(Math.min(...lows) / ONE_PERCENT / tick) * tick, max: top }),
    series: [
      ...shown.map(meanLine), ...chosen.map(chosenLine),
      ...(state.spread === 'none' ? [] : shown.filter((run) => !level(run)).map(band)),
      ...(state.lines ? shown.map(single).map(clientLines) : []),
    ],
    tooltip: tooltip((params) => accuracyTip(shown, params), byRound),
  };
}

function lossOption() {
  const shown = shownRuns().filter((run) => run.training.loss.some(known));
  if (!shown.length) return null;
  return {
    grid: grid(), xAxis: rounds(lastRound()), yAxis: yAxis('training loss'),
    series: shown.map((run) => ({
      ...lineOf(run, 2), connectNulls: true, showSymbol: run.training.round.length <= MANY_ROUNDS,
      data: run.training.round.map((round, i) => [round, run.training.loss[i]]),
    })),
    tooltip: tooltip((params) => [`Round ${params[0].value[0]}`,
      params.map((param) => [key(shown[param.seriesIndex]), param.value[1]?.toPrecision(3)])], byRound),
  };
}

function accuracy() {
  if (!runs.some((run) => run.curve.round.length)) return;
  const chart = addChart('Accuracy over rounds', () => (narrow() ? 300 : 400), accuracyOption);
  const ends = isMerged ? 'lowest to highest run' : 'worst to best client';
  const spreads = [['std', '± one standard deviation'], ['range', ends], ['none', 'none']];
  const what = isMerged ? 'lines are means over clients and over runs that differ only in split and seed, bands the spread of these '
    + 'runs or, for a single run, of its clients.' : 'lines are means over clients, bands their spread.';
  const node = section('accuracy', 'Accuracy', 'Accuracy over rounds',
    `Accuracy of clients on their own test images: ${what} Select a client above to highlight it.`,
  el('div', { class: 'controls' }, selection('Spread', spreads, state.spread, (spread) => choose({ spread })),
    tickbox('Each client’s line', state.lines, (lines) => choose({ lines }))), legend(), chart.node);
  if (runs.some((run) => run.curve.shown.length < nClients(run))) {
    node.append(el('p', { class: 'note' }, 'Only some of the clients, evenly spread, have a line.'));
  }
  onChange(chart.refresh);
  if (runs.some((run) => run.training.loss.some(known))) {
    const loss = addChart('Training loss over rounds', 260, lossOption);
    node.append(el('h3', {}, 'Training loss'), loss.node);
    onChange(loss.refresh);
  }
}
