"use strict";
// The page sends images (POST /api/images) and requests predictions for them (POST /api/look).
// Names of files, clients and classes are untrusted: they are inserted as text only.

const $ = (id) => document.getElementById(id);
const state = { about: null, image: null, picture: null, label: null, mass: null, dial: null, prior: null, often: null, coverage: 0.9, limits: null, asked: 0 };
const SIDE = 320; // pixels of a map's canvas
const WAIT = 90; // milliseconds to debounce sliders

// Inferno, in nine steps.
const HEAT = [[0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85], [227, 89, 51], [249, 140, 10], [249, 201, 50], [252, 255, 164]];

function heat(value) {
  const at = Math.min(Math.max(value, 0), 1) * (HEAT.length - 1);
  const low = Math.min(Math.floor(at), HEAT.length - 2);
  return HEAT[low].map((c, i) => Math.round(c + (at - low) * (HEAT[low + 1][i] - c)));
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("Cannot reach the server; is `fedotp serve` still running?");
  }
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function complain(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
}

// An image ---------------------------------------------------------------------------------------------------

// Clear the previous prediction, so that it is not shown with an error about another image.
function forget() {
  state.asked++; // also discards pending answers
  state.image = state.label = null;
  $("picture").hidden = $("name").hidden = $("best").hidden = $("maps").hidden = $("limits").hidden = $("often").hidden = $("unlike").hidden = true;
  $("another").hidden = true;
  $("invitation").hidden = $("waiting").hidden = false;
  $("drop").classList.remove("full");
  $("status").textContent = "";
  for (const button of document.querySelectorAll("#samples button")) button.setAttribute("aria-pressed", "false");
}

async function take(file) {
  if (!file) return;
  complain("");
  forget();
  if (file.size > state.about.max_bytes) {
    complain(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the limit is ${state.about.max_bytes / 1e6} MB.`);
    return;
  }
  document.body.classList.add("busy");
  try {
    const { id } = await ask("/api/images", { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
    await show(id, file.name);
  } catch (error) {
    complain(`${file.name}: ${error.message}`);
  } finally {
    document.body.classList.remove("busy");
    $("file").value = ""; // allows choosing the same file again
  }
}

async function show(id, name) {
  state.image = id;
  state.label = null;
  const picture = $("picture");
  picture.src = `/api/images/${encodeURIComponent(id)}`;
  await picture.decode();
  state.picture = grey(picture);
  picture.alt = name;
  picture.hidden = false;
  $("invitation").hidden = true;
  $("another").hidden = false;
  $("drop").classList.add("full");
  $("name").textContent = name;
  $("name").hidden = false;
  for (const button of document.querySelectorAll("#samples button")) button.setAttribute("aria-pressed", button.dataset.id === id);
  await look();
}

// Prediction -------------------------------------------------------------------------------------------------

async function look() {
  if (!state.image) return;
  const number = ++state.asked;
  const question = { image: state.image, client: $("client").value, label: state.label, mass: state.mass, dial: state.dial, prior: state.prior };
  let answer;
  try {
    answer = await ask("/api/look", { method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" } });
  } catch (error) {
    if (number === state.asked) complain(error.message);
    return;
  }
  if (number !== state.asked) return; // a later request is pending
  complain("");
  showBest(answer);
  showOften(answer.prior);
  showLimits(answer.limits);
  showMaps(answer);
  document.body.dataset.answered = String(number);
  $("status").textContent = `${answer.best[0].name}, ${percent(answer.best[0].probability)}`;
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function showBest(answer) {
  $("waiting").hidden = true;
  $("best").hidden = false;
  const focused = document.activeElement?.dataset?.class;
  $("best").replaceChildren(
    ...answer.best.map(({ name, probability }) => {
      const bar = element("span", { className: "bar" });
      bar.style.width = `${100 * probability}%`;
      const button = element(
        "button",
        { type: "button", title: `${name}: ${percent(probability)}. Show where the prompts look for this class` },
        element("span", { className: "name", textContent: name }),
        element("span", { className: "track" }, bar),
        element("span", { className: "share", textContent: percent(probability) }),
      );
      button.dataset.class = name;
      button.setAttribute("aria-pressed", String(name === answer.label));
      button.addEventListener("click", () => choose(name));
      return element("li", {}, button);
    }),
  );
  if (focused !== undefined) [...$("best").querySelectorAll("button")].find((b) => b.dataset.class === focused)?.focus();
}

// The client's class frequencies and the strength of the class prior, if known.
function showOften(often) {
  state.often = often;
  $("often").hidden = often === null;
  if (often === null) return;
  const shares = often.classes.map(({ name, share }) => `${name} ${percent(share)}`).join(", ");
  const of = often.images === null ? "Given frequencies" : `Frequencies in the ${often.images} training images of ${$("client").value}`;
  const others = often.others ? ` and ${often.others} others` : "";
  const absent = often.absent ? `; ${often.absent} of the classes have no images` : "";
  $("frequencies").textContent = `${of}: ${shares}${others}${absent}.`;
  paintOften();
}

function paintOften() {
  const own = state.often.strength;
  const strength = state.prior ?? own;
  $("prior").max = Math.max(2, own);
  $("prior").value = strength;
  $("counts").checked = strength > 0;
  $("often").querySelector("output").textContent = strength.toFixed(2);
  const button = $("often").querySelector("button");
  button.textContent = `reset to ${Number(own.toFixed(4))}`;
  button.disabled = state.prior === null;
}

// Sets of classes, and a flag on unlike images, for calibrated clients.
function showLimits(limits) {
  state.limits = limits;
  $("limits").hidden = limits === null;
  $("unlike").hidden = !limits?.unlike;
  if (limits === null) return;
  if (limits.unlike) $("unlike").textContent = `Unlike the client's calibration images (p = ${limits.p_value.toPrecision(2)})`;
  const void_ = limits.images === null;
  $("limits").querySelector("label").hidden = void_;
  if (void_) {
    $("set").replaceChildren();
    $("promise").textContent = "Sets of classes are valid only for the classifier as calibrated; reset the sliders to see them.";
    return;
  }
  const able = limits.sets.filter(({ set }) => set !== null);
  $("coverage").replaceChildren(...limits.sets.map(({ coverage, least, set }) => element("option", {
    value: String(coverage), disabled: set === null, textContent: `${Math.round(100 * coverage)} %${set === null ? `, needs ${least} images` : ""}`,
  })));
  const chosen = able.find(({ coverage }) => coverage === state.coverage) ?? able.findLast(({ coverage }) => coverage <= state.coverage) ?? able[0];
  $("coverage").value = chosen ? String(chosen.coverage) : "";
  $("set").replaceChildren(...(chosen?.set ?? []).map((name) => element("li", { textContent: name })));
  $("promise").textContent = chosen
    ? `Valid for images like the ${limits.images} calibration images of this client${limits.unlike ? ", which this one is not" : ""}.`
    : `The ${limits.images} calibration images of this client are too few for a set.`;
}

function choose(label) {
  state.label = label;
  $("label").value = label === null ? "" : String(state.about.classes.indexOf(label));
  look();
}

// Maps -------------------------------------------------------------------------------------------------------

function grey(picture) {
  const canvas = element("canvas", { width: SIDE, height: SIDE });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, SIDE, SIDE);
  const pixels = context.getImageData(0, 0, SIDE, SIDE);
  for (let i = 0; i < pixels.data.length; i += 4) {
    const light = 0.299 * pixels.data[i] + 0.587 * pixels.data[i + 1] + 0.114 * pixels.data[i + 2];
    pixels.data.fill(light, i, i + 3);
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function draw(canvas, values, low, high) {
  const n = values.length;
  const small = element("canvas", { width: n, height: n });
  const pixels = new ImageData(n, n);
  values.flat().forEach((value, i) => pixels.data.set([...heat((value - low) / (high - low || 1)), 255], 4 * i));
  small.getContext("2d").putImageData(pixels, 0, 0);
  const context = canvas.getContext("2d");
  context.globalAlpha = 1;
  context.drawImage(state.picture, 0, 0, SIDE, SIDE);
  context.globalAlpha = 0.68;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, SIDE, SIDE);
}

function showMaps(answer) {
  const kinds = answer.kinds.map((kind, i) => (answer.kinds.indexOf(kind) === answer.kinds.lastIndexOf(kind) ? kind : `${kind} ${i + 1}`));
  const whats = answer.plan ? ["similarity", "plan"] : ["similarity"];
  $("maps").hidden = false;
  $("where").textContent = kinds.length > 1 ? "Where the prompts look" : "Where the prompt looks";
  $("grid").classList.toggle("alone", kinds.length === 1 && !answer.plan);
  $("grid").replaceChildren(
    ...kinds.map((kind, n) => {
      const pair = element("div", { className: "pair" });
      for (const what of whats) {
        const values = answer[what][n];
        const [low, high] = [Math.min(...values.flat()), Math.max(...values.flat())];
        const canvas = element("canvas", { width: SIDE, height: SIDE });
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${what} of the ${kind} prompt over the image, from ${low.toFixed(2)} to ${high.toFixed(2)}`);
        canvas.dataset.map = `${kind} ${what}`;
        draw(canvas, values, low, high);
        const range = element("span", { className: "range", textContent: `${low.toFixed(2)} to ${high.toFixed(2)}` });
        pair.append(element("figure", {}, canvas, element("figcaption", {}, element("span", { textContent: what }), range)));
      }
      const heading = element("h3", { textContent: kind === "caption" ? "Caption" : `${kind[0].toUpperCase()}${kind.slice(1)} prompt` });
      return element("div", { className: `prompt ${answer.kinds[n].replace(/ .*/, "")}` }, heading, pair);
    }),
  );
  $("meaning").hidden = !answer.plan;
}

function drawScale(canvas) {
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${heat(x / (canvas.width - 1)).join(",")})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
}

// Controls ---------------------------------------------------------------------------------------------------

// A slider for one number of the method, "mass" or "dial", with a button to reset it to the trained value.
function slider(name, row) {
  const trained = state.about[name]; // null: the method has no such option
  row.hidden = trained === null;
  if (trained === null) return;
  const [input, output, button] = ["input", "output", "button"].map((tag) => row.querySelector(tag));
  const words = (value) => (typeof value === "number" ? value.toFixed(2) : value);
  const set = (value) => {
    state[name] = value; // null: as trained
    if (value === null && typeof trained === "number") input.value = trained;
    output.textContent = words(value ?? trained);
    button.disabled = value === null;
  };
  let timer;
  input.addEventListener("input", () => {
    const value = Number(input.value);
    set(value === trained ? null : value);
    clearTimeout(timer);
    timer = setTimeout(look, WAIT);
  });
  button.addEventListener("click", () => {
    set(null);
    look();
  });
  if (trained < input.min) input.min = trained;
  button.textContent = `reset to ${typeof trained === "number" ? Number(trained.toFixed(4)) : trained}`;
  set(null);
}

function connectOften() {
  let timer;
  const set = (strength) => {
    state.prior = strength === state.often.strength ? null : strength; // null: unchanged
    paintOften();
    clearTimeout(timer);
    timer = setTimeout(look, WAIT);
  };
  $("prior").addEventListener("input", () => set(Number($("prior").value)));
  $("counts").addEventListener("change", () => set($("counts").checked ? state.often.strength || 1 : 0));
  $("often").querySelector("button").addEventListener("click", () => set(state.often.strength));
}

async function showSamples() {
  const client = $("client").value;
  const { samples } = await ask(`/api/samples?client=${encodeURIComponent(client)}`);
  if (client !== $("client").value) return;
  $("samples").hidden = samples.length === 0;
  $("samples").querySelector("ul").replaceChildren(
    ...samples.map(({ id, label }) => {
      const picture = element("img", { src: `/api/images/${encodeURIComponent(id)}`, alt: label, title: label });
      const button = element("button", { type: "button" }, picture);
      button.dataset.id = id;
      button.setAttribute("aria-pressed", String(id === state.image));
      button.addEventListener("click", () => show(id, `${label}, a test image of ${client}`).catch((error) => complain(error.message)));
      return element("li", {}, button);
    }),
  );
}

function connect() {
  connectOften();
  $("file").addEventListener("change", () => take($("file").files[0]));
  $("another").addEventListener("click", () => $("file").click());
  const over = (on) => (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", on);
  };
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", over(false));
  document.addEventListener("drop", (event) => {
    over(false)(event);
    take(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
  $("client").addEventListener("change", () => {
    state.prior = null; // each client has its own
    look();
    showSamples().catch((error) => complain(error.message));
  });
  $("coverage").addEventListener("change", () => {
    state.coverage = Number($("coverage").value);
    showLimits(state.limits);
  });
  $("label").addEventListener("change", () => choose($("label").value === "" ? null : state.about.classes[Number($("label").value)]));
}

async function start() {
  const about = await ask("/api/about");
  state.about = about;
  document.title = `${about.source} · fedotp`;
  $("about").textContent = `${about.method} · ${about.source} · ${about.backbone}`;
  $("client").replaceChildren(...about.clients.map((name) => element("option", { value: name, textContent: name })));
  $("label").replaceChildren(
    element("option", { value: "", textContent: "the predicted one" }),
    ...about.classes.map((name, k) => element("option", { value: String(k), textContent: name })),
  );
  slider("mass", $("amount"));
  slider("dial", $("between"));
  $("whole").hidden = about.transport;
  $("whole").textContent = `${about.method} compares the whole image and has no transport plan. The map shows the similarity of each patch and the prompt.`;
  drawScale($("scale"));
  connect();
  document.body.dataset.ready = "true";
  await showSamples();
}

start().catch((error) => complain(error.message));
