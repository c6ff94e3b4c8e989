// Put the page together.

header();
if (runs.length > 1) comparison();
sites();
accuracy();
notesSection();
views();
clients();
classes();
limits();
costs();
privacy();
analysisSection();
origin();
toolbar();
document.getElementById('foot').append(el('p', {}, `Made by fedotp ${data.fedotp} on ${data.made} from `
  + `${runs.map((run) => run.name).join(' · ')}. Charts: Apache ECharts, Apache-2.0. This page is a single file without network access.`));
