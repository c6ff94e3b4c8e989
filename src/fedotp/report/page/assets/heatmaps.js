// Heat maps of similarity and plan over the image.

const HEAT = ['#000004', '#1b0c41', '#4a0c6b', '#781c6d', '#a52c60', '#cf4446', '#ed6925', '#fb9b06', '#f7d13d', '#fcffa4'];

function heat(share) {
  const at = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
  const i = Math.min(HEAT.length - 2, Math.floor(at));
  return mix(HEAT[i], HEAT[i + 1], at - i);
}

function paint(canvas, values) {
  const flat = values.flat();
  const [low, high] = [Math.min(...flat), Math.max(...flat)];
  canvas.width = values[0].length;
  canvas.height = values.length;
  const context = canvas.getContext('2d');
  values.forEach((row, y) => row.forEach((value, x) => {
    context.fillStyle = heat((value - low) / (high - low || 1));
    context.fillRect(x, y, 1, 1);
  }));
}

function picture(map) {
  const source = map.image.startsWith('data:image/') ? map.image : null;
  return el('img', { src: source, alt: `a test image of ${map.client}: ${map.label}` });
}

function overlay(map, values, title, digits) {
  const label = `${title} over the image of ${map.label}. Arrow keys read the values.`;
  const canvas = el('canvas', { role: 'img', tabindex: '0', 'aria-label': label });
  const caption = el('figcaption', {}, title);
  paint(canvas, values);
  const [width, height] = [values[0].length, values.length];
  let [x, y] = [-1, 0];
  const read = () => { caption.textContent = `${title}: ${values[y][x].toFixed(digits)} in row ${y + 1}, column ${x + 1}`; };
  canvas.addEventListener('mousemove', (event) => {
    const place = (at, size, n) => Math.max(0, Math.min(n - 1, Math.floor((at / size) * n)));
    [x, y] = [place(event.offsetX, canvas.clientWidth, width), place(event.offsetY, canvas.clientHeight, height)];
    read();
  });
  canvas.addEventListener('keydown', (event) => {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!move) return;
    event.preventDefault();
    [x, y] = [(x + move[0] + width) % width, (y + move[1] + height) % height];
    read();
  });
  ['mouseleave', 'blur'].forEach((name) => canvas.addEventListener(name, () => { caption.textContent = title; }));
  return el('figure', {}, el('div', { class: 'frame under' }, picture(map), canvas), caption);
}

function mapRow(map, mass) {
  const right = map.label === map.predicted;
  const verdict = right ? ', correct' : `, predicted as ${map.predicted}`;
  const own = el('figure', {}, el('div', { class: 'frame' }, picture(map)), el('figcaption', {}, strong(map.label), verdict));
  return el('div', { class: 'map' }, own, map.prompts.flatMap((prompt) => [
    overlay(map, prompt.similarity, `${prompt.kind}: similarity`, 3),
    ...(prompt.plans[mass] ? [overlay(map, prompt.plans[mass], `${prompt.kind}: plan`, 4)] : []),
  ]));
}

// The panel of maps; `show` sets its maps and the initial mass.
function heatmaps() {
  let maps = [];
  const rows = el('div', { class: 'maps' });
  const mass = el('input', { type: 'range', 'aria-label': 'Mass', min: 0, step: 1, oninput: () => fill() });
  const chosen = el('output', { class: 'numbers' });
  const massControl = el('label', {}, 'Mass', mass, chosen);
  const client = el('select', { 'aria-label': 'Client of the maps', onchange: () => fill() });
  const node = el('div', {}, el('h3', {}, 'Where prompts look'), el('p', { class: 'note' }, 'For the image’s own class: similarity of '
    + 'each patch to the prompt, and share of the prompt’s mass in the transport plan. Each map has its own scale, from low (dark) to high (light).'),
  el('div', { class: 'controls' }, el('label', {}, 'Client', client), massControl), rows);
  const masses = () => Object.keys(maps[0]?.prompts[0]?.plans ?? {}).sort((a, b) => a - b);

  function fill() {
    const now = masses()[mass.value] ?? '';
    chosen.textContent = now;
    mass.setAttribute('aria-valuetext', now);
    rows.replaceChildren(...maps.filter((map) => map.client === client.value).map((map) => mapRow(map, now)));
  }
  function show(wanted, first) {
    const names = [...new Set(wanted.map((map) => map.client))];
    node.hidden = !wanted.length;
    if (wanted === maps && (client.value === state.client || !names.includes(state.client))) return;
    if (wanted !== maps) {
      maps = wanted;
      const steps = masses();
      massControl.hidden = !steps.length;
      mass.max = String(steps.length - 1);
      mass.value = String(Math.max(0, steps.indexOf(String(first))));
      client.replaceChildren(...names.map((name) => el('option', { value: name }, name)));
    }
    if (names.includes(state.client)) client.value = state.client;
    fill();
  }
  return { node, show };
}
