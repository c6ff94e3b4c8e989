// Some of the clients: their images, and the accuracy of each method.

const MANY_CLASSES = 8;

function classBar(name, n, most, run) {
  const bar = el('i', { tone: tone(run) });
  bar.style.width = `${Math.max(2, (100 * n) / most)}%`;
  return el('div', { class: 'class-bar' }, el('span', {}, name), el('span', {}, bar), el('span', { class: 'numbers' }, count(n)));
}

function siteCard(site, run) {
  const i = clientNumber(run, site.client);
  const counts = Object.entries(site.classes);
  const rest = counts.slice(MANY_CLASSES);
  const pictures = site.images.filter(([, image]) => image.startsWith('data:image/'));
  const scores = shownRuns().filter((other) => clientNumber(other, site.client) >= 0)
    .map((other) => [key(other), ` ${percent(other.clients.accuracy[clientNumber(other, site.client)])} %`]);
  return el('article', { class: 'site' },
    el('h4', {}, el('button', { class: 'link', type: 'button', onclick: () => pursue(site.client) }, site.client)),
    el('p', { class: 'note' }, plural(run.clients.train[i], 'training image')),
    el('div', { class: 'thumbs' }, pictures.map(([label, image]) => el('img', { src: image, alt: label, title: label }))),
    counts.slice(0, MANY_CLASSES).map(([name, n]) => classBar(name, n, counts[0][1], run)),
    rest.length ? el('p', { class: 'note' }, `and ${plural(sum(rest.map(([, n]) => n)), 'image')} of ${rest.length} more classes`) : null,
    el('ul', { class: 'scores' }, scores.map((words) => el('li', {}, words))));
}

function sites() {
  if (!runs.some((run) => run.analysis?.sites?.length)) return;
  const cards = el('div', { class: 'sites' });
  const node = section('sites', 'Sites', 'Some of the sites', 'Some test images of each client, their number by class, and the '
    + 'accuracy of each method.', cards);
  onChange(() => {
    const shown = focus().analysis?.sites ?? [];
    cards.replaceChildren(...shown.map((site) => siteCard(site, focus())));
    node.hidden = !shown.length;
  });
}
