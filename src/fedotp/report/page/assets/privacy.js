// Privacy: upper bounds from the accountant, lower bounds from attacks.

const TARGETS = { global: 'shared prompt', personal: 'clients’ own classifiers', bundle: 'bundle', zero_shot: 'zero-shot CLIP (control)', allowed: 'limit by the accountant' };
const ATTACKS = { loss: 'loss', learned: 'reduction of the loss against zero-shot CLIP' };
const epsilonText = (value) => (known(value) ? value.toFixed(2) : 'no guarantee');
const interval = ([value, ...ends], digits, unit = 1) => {
  const [first, ...others] = [value, ...ends].map((number) => (unit * number).toFixed(digits));
  return others.length ? `${first} [${others.join(', ')}]` : first;
};

// Epsilon spent after each round.
function spentOption() {
  const shown = shownRuns().filter((run) => run.training.epsilon);
  if (!shown.length) return null;
  return {
    grid: grid(), xAxis: rounds(Math.max(...shown.map((run) => run.training.round.at(-1)))),
    yAxis: yAxis('epsilon, maximum over clients'),
    series: shown.map((run) => ({
      ...lineOf(run), showSymbol: false, data: [[0, 0], ...run.training.round.map((round, i) => [round, run.training.epsilon[i]])],
    })),
    tooltip: tooltip((params) => [
      `After round ${params[0].value[0]}`, params.map((param) => [key(shown[param.seriesIndex]), epsilonText(param.value[1])]),
    ], byRound),
  };
}

function epsilonOption() {
  const { audit } = focus().privacy ?? {};
  if (!audit) return null;
  const { epsilon, upper, right, guesses } = audit;
  const colour = tone(focus());
  const bar = (name, opacity, value) => ({
    type: 'bar', name, stack: 'epsilon', barMaxWidth: 22, itemStyle: { color: alpha(colour, opacity) }, data: [value],
  });
  return {
    grid: grid({ top: 30, left: 16, right: 28 }), xAxis: axis('epsilon', { nameLocation: 'middle', nameGap: 26 }),
    legend: { top: 0, left: 0, icon: 'roundRect', itemWidth: 12, itemHeight: 8, textStyle: { color: css('muted') } },
    yAxis: categories(['every release'], { axisLabel: { width: narrow() ? 90 : 170 } }),
    series: [
      bar('at least, from the audit', 1, epsilon),
      ...(known(upper) ? [bar('at most, from the accountant', 0.25, Math.max(0, upper - epsilon))] : []),
    ],
    tooltip: tooltip(() => ['every release', [
      ['at least', epsilon.toFixed(2)], ['at most', epsilonText(upper)],
      ['correct guesses', `${count(right)} of ${count(guesses)}`],
    ]], byBar),
  };
}

function auditText({ unit, upper, broken, canaries, confidence, delta }) {
  const words = `${count(canaries)} canaries (synthetic ${unit === 'site' ? 'sites' : 'gradients'}) are each included in a run of the same settings with probability 1/2. `
    + `The attacker guesses from the releases which were included: epsilon is at least the lower bound with ${(100 * confidence).toFixed(0)} % confidence, at delta ${delta}. `;
  if (broken) return `${words}This exceeds the accountant’s upper bound: the guarantee is violated.`;
  return words + (known(upper) ? `The accountant’s upper bound is ${upper.toFixed(2)}.` : 'Without noise there is no privacy guarantee.');
}

function probeText({ members, others, confidence, fair }) {
  return `${plural(members, 'training image')} against ${plural(others, 'other image')} of the same clients. An AUC of 0.5 is chance; the true positive `
    + 'rate (TPR) is the share of recognised members at the given share of others wrongly taken for members (FPR). '
    + `Intervals hold jointly with ${(100 * confidence).toFixed(0)} %. `
    + (fair ? '' : 'The control separates them, too, so these numbers do not measure membership alone. ')
    + 'Stronger attacks may find more.';
}

function boundTable() {
  const rows = runs.filter((run) => run.privacy?.audit).map((run) => ({ ...run.privacy.audit, run }));
  const number = (title, value, cell) => ({ title, number: true, value, cell });
  return table({
    label: 'Upper and lower bounds of epsilon', rows,
    columns: [
      ...(runs.length > 1 ? [{ title: 'run', value: (row) => row.run.title, cell: (row) => key(row.run) }] : []),
      number('epsilon, at least', (row) => row.epsilon, (row) => row.epsilon.toFixed(2)),
      number('epsilon, at most', (row) => row.upper, (row) => epsilonText(row.upper)),
      number('canaries', (row) => row.canaries, (row) => count(row.canaries)),
      number('correct guesses', (row) => row.right / Math.max(row.guesses, 1), (row) => `${count(row.right)} of ${count(row.guesses)}`),
    ],
  });
}

// The accountant's limit of any attack, as a row of the table.
function allowedRow({ allowed }) {
  if (!allowed) return [];
  const tpr = Object.fromEntries(Object.entries(allowed.tpr).map(([share, rate]) => [share, [rate]]));
  return [{ target: 'allowed', score: `epsilon ${allowed.epsilon.toFixed(2)}`, auc: [allowed.auc], tpr }];
}

function attackTable() {
  const probed = runs.filter((run) => run.privacy?.probe);
  const lines = ({ probe }) => [...probe.attacks, ...allowedRow(probe)];
  const rows = probed.flatMap((run) => lines(run.privacy).map((attack) => ({ ...attack, run })));
  const shares = [...new Set(rows.flatMap((row) => Object.keys(row.tpr)))].sort((a, b) => a - b);
  return table({
    label: 'Membership probe', rows, kind: (row) => (['zero_shot', 'allowed'].includes(row.target) ? 'control' : null),
    columns: [
      ...(runs.length > 1 ? [{ title: 'run', value: (row) => row.run.title, cell: (row) => key(row.run) }] : []),
      { title: 'attack on', value: (row) => TARGETS[row.target] ?? row.target }, { title: 'by', value: (row) => ATTACKS[row.score] ?? row.score },
      { title: 'AUC', number: true, value: (row) => row.auc[0], cell: (row) => interval(row.auc, 3) },
      ...shares.map((share) => ({
        title: `TPR at ${100 * share} % FPR, %`, number: true, value: (row) => row.tpr[share]?.[0],
        cell: (row) => (row.tpr[share] ? interval(row.tpr[share], 1, 100) : null),
      })),
    ],
  });
}

function privacy() {
  const looked = runs.filter((run) => run.privacy);
  const isAccounted = runs.some((run) => run.training.epsilon);
  if (!looked.length && !isAccounted) return;
  const node = section('privacy', 'Privacy', 'Privacy', 'The accountant gives an upper bound of epsilon, attacks a lower bound. '
    + 'The actual leakage is between them.');
  node.append(...looked.filter((run) => run.privacy.problem).map((run) => el('p', { class: 'notice' }, `Missing: ${run.privacy.problem}`)));
  if (isAccounted) {
    const chart = addChart('Epsilon spent over rounds', 240, spentOption);
    node.append(el('h3', {}, 'Epsilon spent'), chart.node);
    onChange(chart.refresh);
  }
  if (looked.some((run) => run.privacy.audit)) {
    const said = el('p', { class: 'note' });
    const chart = addChart('Upper and lower bounds of epsilon', () => 140, epsilonOption);
    const shown = boundTable();
    node.append(el('h3', {}, 'Audit with canaries'), said, chart.node, shown.node);
    onChange(() => {
      said.textContent = focus().privacy?.audit ? auditText(focus().privacy.audit) : '';
      said.className = focus().privacy?.audit?.broken ? 'notice' : 'note';
      chart.refresh();
      shown.fill();
    });
  }
  if (looked.some((run) => run.privacy.probe)) {
    const said = el('p', { class: 'note' });
    const shown = attackTable();
    node.append(el('h3', {}, 'Membership inference'), said, shown.node);
    onChange(() => {
      said.textContent = focus().privacy?.probe ? probeText(focus().privacy.probe) : '';
      shown.fill();
    });
  }
}
