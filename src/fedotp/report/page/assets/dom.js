// Elements, numbers and tables. Text from runs becomes text nodes only: it is never parsed as markup.

const data = JSON.parse(document.getElementById('data').textContent);
const runs = data.runs;

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'tone') node.style.setProperty('--tone', value);
    else if (known(value) && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter(known));
  return node;
}

// Shares come in millionths.
const ONE_PERCENT = 10_000;
const known = (value) => value !== null && value !== undefined;
function percent(share, digits = 1) {
  const steps = 10 ** digits; // halves are rounded up
  return known(share) ? (Math.round((share * steps) / ONE_PERCENT) / steps).toFixed(digits) : '–';
}
const count = (n) => (known(n) ? n.toLocaleString('en-US') : '–');
const plural = (n, what) => `${count(n)} ${what}${n === 1 ? '' : 's'}`;

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
  return [power === 0 ? value.toFixed(0) : value.toFixed(value < 10 ? 2 : 1), units[power]];
}
const bytesText = (value) => bytes(value).join(' ');

function duration(seconds) {
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return seconds < 6000 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// The run initially shown in detail: the best of the analysed ones.
function bestRun() {
  const accuracy = (i) => [typeof (runs[i].analysis ?? '') === 'object', runs[i].totals.accuracy ?? -1];
  const isBetter = ([seen, share], [otherSeen, other]) => (seen === otherSeen ? share > other : seen);
  return runs.reduce((best, _, i) => (isBetter(accuracy(i), accuracy(best)) ? i : best), 0);
}

// The current choices and their listeners.
const state = {
  shown: new Set(), focus: bestRun(), client: '', // lines in the charts; the run in detail; a client's name
  lines: false, spread: 'std', order: 'name', search: '',
};
const listeners = [];
const onChange = (listener) => { listeners.push(listener); listener(); };
function choose(changes) {
  Object.assign(state, changes);
  listeners.forEach((listener) => listener());
}
const focus = () => runs[state.focus];
const clientNumber = (run, name) => run.clients.name.indexOf(name);

// `short` is the section's name in the links.
function section(id, short, title, note, ...children) {
  const node = el('section', { id, 'data-short': short, 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title` }, title));
  if (note) node.append(el('p', { class: 'note' }, note));
  node.append(...children);
  document.getElementById('main').append(node);
  return node;
}

const swatch = (run) => el('span', { class: 'swatch', tone: tone(run) });
const key = (run) => el('span', { class: 'key' }, swatch(run), run.title);

// Colours of the runs; empty for a single run.
function legend() {
  const node = el('div', { class: 'legend' });
  if (runs.length > 1) onChange(() => node.replaceChildren(...shownRuns().map(key)));
  return node;
}

function selection(label, options, value, onchange) {
  const select = el('select', { 'aria-label': label, onchange: (event) => onchange(event.target.value) },
    options.map(([id, text]) => el('option', { value: id }, text)));
  select.value = value;
  return el('label', {}, label, select);
}

function tickbox(label, checked, onchange) {
  const box = el('input', { type: 'checkbox', onchange: (event) => onchange(event.target.checked) });
  box.checked = checked;
  return el('label', {}, box, label);
}

// A table that sorts by its headings. Columns: {title, value(row) to sort by, cell(row) to show, number}; `kind` is a row's class.
function table({ columns, rows, label, sort = null, limit = 100, mark = () => false, kind = () => null }) {
  const body = el('tbody');
  const heads = columns.map((column, i) => el('th', { scope: 'col', class: column.number ? 'number' : null },
    el('button', { type: 'button', onclick: () => sortBy(i) }, column.title)));
  const more = el('button', { type: 'button', onclick: () => { limit = Infinity; fill(); } });
  let [by, down] = sort ?? [null, false];
  let filtered = rows;

  function sortBy(i) {
    down = by === i ? !down : Boolean(columns[i].number);
    by = i;
    fill();
  }
  function sorted() {
    if (by === null) return filtered;
    const value = columns[by].value;
    return [...filtered].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (!known(x) || !known(y)) return Number(known(y)) - Number(known(x)); // unknown values last
      const order = typeof x === 'number' ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true });
      return down ? -order : order;
    });
  }
  function cell(column, row) {
    const classes = [column.number ? 'number' : '', column.best?.(row) ? 'best' : ''].join(' ').trim();
    const content = column.cell ? column.cell(row) : column.value(row);
    return el('td', { class: classes || null }, known(content) ? content : '–');
  }
  function fill() {
    heads.forEach((head, i) => {
      if (i === by) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const lines = sorted();
    body.replaceChildren(...lines.slice(0, limit).map((row) =>
      el('tr', { class: mark(row) ? 'chosen' : kind(row) }, columns.map((column) => cell(column, row)))));
    more.hidden = lines.length <= limit;
    more.textContent = `Show all ${count(lines.length)}`;
  }
  fill();
  const whole = el('table', {}, el('thead', {}, el('tr', {}, heads)), body);
  const node = el('div', {}, el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label }, whole), more);
  return { node, fill, show: (wanted) => { filtered = wanted; fill(); } };
}

function facts(rows) {
  return el('div', { class: 'scroll' }, el('table', {}, el('tbody', {}, rows.map(([name, ...values]) =>
    el('tr', {}, el('td', { class: 'mono' }, name), values.map((value) => el('td', { class: 'mono' }, value)))))));
}
