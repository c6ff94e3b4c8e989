// Prediction sets of clients, and flags on images unlike a client's own.

const limitsOf = () => focus().analysis?.limits ?? null;
const inHundred = (value) => (known(value) ? (100 * value).toFixed(1) : null);

function limitsTable(found) {
  const share = (title, column) => ({ title, number: true, value: (row) => row[column], cell: (row) => inHundred(row[column]) });
  const range = (row) => el('span', {}, inHundred(row.coverage), el('span', { class: 'plusminus' }, ` ${inHundred(row.low)} to ${inHundred(row.high)}`));
  const together = found.clients.length > 1;
  return table({
    label: 'Limits of clients', rows: found.clients, mark: (row) => row.client === state.client,
    columns: [
      { title: 'client', value: (row) => row.client },
      { title: 'calibration images', number: true, value: (row) => row.images },
      { title: 'coverage %', number: true, value: (row) => row.coverage, cell: range },
      { title: 'classes in a set', number: true, value: (row) => row.size, cell: (row) => row.size.toFixed(2) },
      ...(together ? [share('coverage, calibrated with all, %', 'by_all')] : []),
      share('own images flagged %', 'flagged'),
      ...(together ? [share('others’ images flagged %', 'others_flagged')] : []),
    ],
  }).node;
}

function limits() {
  if (!runs.some((run) => run.analysis?.limits)) return;
  const shown = el('div');
  const said = el('p', { class: 'note' });
  const node = section('limits', 'Limits', 'Limits', null, said, shown);
  onChange(() => {
    const found = limitsOf();
    node.hidden = !found;
    if (!found) return;
    said.textContent = `Half of a client’s test images are used for calibration, the other half for testing prediction sets of ${
      Math.round(100 * found.asked)} % coverage: means over 100 random divisions, and the range of 95 of them. Sets are never empty, so a client with `
      + 'a higher accuracy has a higher coverage. With images of all clients, the coverage is guaranteed on average over clients, not for each. '
      + 'Flagged images look unlike the client’s own, of which at most 5 % are flagged.';
    shown.replaceChildren(limitsTable(found));
  });
}
