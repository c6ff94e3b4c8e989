// What clients know of their limits: sets of classes that are to hold the true one, and images unlike a client's own.

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
      { title: 'images', number: true, value: (row) => row.images },
      { title: 'covered %', number: true, value: (row) => row.coverage, cell: range },
      { title: 'classes in a set', number: true, value: (row) => row.size, cell: (row) => row.size.toFixed(2) },
      ...(together ? [share('covered, calibrated by all, %', 'by_all')] : []),
      share('own flagged %', 'flagged'),
      ...(together ? [share('others’ flagged %', 'others_flagged')] : []),
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
    said.textContent = `Half of a client’s test images calibrate, and on the other half the sets of classes are to hold the true one in ${
      Math.round(100 * found.asked)} of 100 images, no set being empty: means over 100 divisions, and the range of 95 of them. A client that is right more `
      + 'often than that has sets of one class. With images of all clients together the promise holds for all of them together, not for each. '
      + 'Flagged are images that look unlike the client’s own: of these one in twenty.';
    shown.replaceChildren(limitsTable(found));
  });
}
