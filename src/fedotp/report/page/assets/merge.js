// Runs that differ only in split and seed are shown as one: means and standard deviations.

const meanOf = (values) => {
  const there = values.filter((value) => known(value));
  return there.length ? there.reduce((a, b) => a + b, 0) / there.length : null;
};
const stdOf = (values) => {
  const mean = meanOf(values);
  return values.length > 1 ? Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1)) : 0;
};

// Rounds that all tables have, and a function that returns the values of a column in such a round.
function inCommon(tables) {
  const rounds = tables.length ? tables[0].round.filter((round) => tables.every((table) => table.round.includes(round))) : [];
  const at = (column) => rounds.map((round) => tables.map((table) => table[column][table.round.indexOf(round)]));
  return [rounds, at];
}

// Mean, standard deviation, minimum and maximum over runs of the mean over clients.
function mergedCurve(members) {
  const [round, at] = inCommon(members.map((run) => run.curve).filter((curve) => curve.round.length));
  const accuracy = at('mean');
  const of = (f) => accuracy.map((values) => f(values));
  return {
    round, mean: of(meanOf), std: of(stdOf), min: of((x) => Math.min(...x)), max: of((x) => Math.max(...x)),
    loss: at('loss').map(meanOf), shown: [], clients: [],
  };
}

function mergedTraining(members) {
  const [round, at] = inCommon(members.map((run) => run.training).filter((training) => training.round.length));
  const columns = ['bytes_up', 'bytes_down', 'images', 'answered', 'sampled', 'loss', 'seconds'];
  return { round, ...Object.fromEntries(columns.map((column) => [column, at(column).map(meanOf)])) };
}

// Runs with the same split, in which clients have the same images: that of the run in detail, if possible.
function sameSplit(members) {
  const split = (run) => run.config.partition?.seed;
  const same = members.filter((run) => split(run) === split(focus()));
  return same.length ? same : members.filter((run) => split(run) === split(members[0]));
}

function mergedClients(members) {
  const same = sameSplit(members);
  const each = (column) => same[0].clients[column].map((_, i) => meanOf(same.map((run) => run.clients[column][i])));
  return { ...same[0].clients, ...Object.fromEntries(data.metrics.map(({ key: metric }) => [metric, each(metric)])) };
}

function mergedDomains(members) {
  return Object.fromEntries(Object.entries(members[0].domains).map(([name, { clients }]) => {
    const of = (column) => meanOf(members.map((run) => run.domains[name]?.[column]));
    return [name, { clients, accuracy: of('accuracy'), accuracy_std: of('accuracy_std') }];
  }));
}

// Merged runs in the shape of a run, for charts of several runs and the table of fairness.
function merge(all) {
  const complete = all.filter((run) => run.state === 'complete');
  const members = complete.length ? complete : all;
  const columns = (part) => Object.keys(members[0][part]);
  const means = (part) => Object.fromEntries(columns(part).map((column) => [column, meanOf(members.map((run) => run[part][column]))]));
  return {
    members, group: all[0].group, colour: all[0].colour, title: all[0].label, label: all[0].label,
    totals: means('totals'), seconds: means('seconds'), domains: mergedDomains(members),
    curve: mergedCurve(members), training: mergedTraining(members),
    get clients() { return mergedClients(members); },
  };
}

const groups = [...new Set(runs.map((run) => run.group))].map((group) => runs.filter((run) => run.group === group));
const shownAs = groups.map((members) => (members.length > 1 ? merge(members) : members[0]));
const isMerged = shownAs.length < runs.length;
state.shown = new Set(shownAs.keys());
const shownRuns = () => shownAs.filter((_, i) => state.shown.has(i));
