// Reads the form, asks for an answer, and puts it in its places. What is shown, drawn or worded comes from the server.
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("form");
const byId = (id) => document.getElementById(id);
const SETTLE = 90; // milliseconds without a change before a question is asked
const PATIENCE = 250; // before the page says that it is computing
const STEPS = 1000; // of a slider

let state = { ...data.presets[Object.keys(data.presets)[0]] };
let scale = "log";
let answer = null;
let inFlight = null;
let timer = 0;
let editing = false;

// -- state, address, form ----------------------------------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.search);
  for (const [name, value] of given) {
    if (name in state) state[name] = value;
    if (name === "axes" && ["log", "linear"].includes(value)) scale = value;
  }
}

function writeAddress(push = false) {
  const query = new URLSearchParams(Object.entries(state).filter(([name]) => name !== other()));
  if (scale !== "log") query.set("axes", scale);
  const now = `?${query}`;
  if (push && now !== location.search) history.pushState(null, "", now);
  else history.replaceState(null, "", now);
}

// Of epochs and steps one is kept and the other follows.
const other = () => (state.keep === "epochs" ? "num_steps" : "epochs");

function showForm() {
  for (const [name, value] of Object.entries(state)) {
    const field = form.elements[name];
    if (field instanceof RadioNodeList) field.value = value;
    else if (name === "record") showRecord(value);
    else if (field && field !== document.activeElement) field.value = value;
    showSlider(name, value);
  }
  for (const radio of document.querySelectorAll('input[name="scale"]')) radio.checked = radio.value === scale;
  showHandle();
}

function showRecord(value) {
  const select = form.elements.record;
  const named = [...select.options].some((option) => option.value === value && value !== "other");
  select.value = named ? value : "other";
  byId("susceptibility").closest(".k-box").hidden = named;
  if (!named && byId("susceptibility") !== document.activeElement) byId("susceptibility").value = value;
}

function showSlider(name, value) {
  const slider = byId(`${name}-slider`);
  if (!slider) return;
  const { low, high, zero } = data.scales[name];
  const number = Number(String(value).replaceAll(",", ""));
  if (!Number.isFinite(number)) return;
  let place = low === 0 ? number / high : Math.log(Math.max(number, low) / low) / Math.log(high / low);
  if (zero) place = number <= 0 ? 0 : 0.02 + 0.98 * Math.min(Math.max(place, 0), 1);
  slider.value = String(Math.round(STEPS * Math.min(Math.max(place, 0), 1)));
  slider.setAttribute("aria-valuetext", value === "" ? "none" : String(value));
}

function fromSlider(name, position) {
  const { low, high, zero, whole } = data.scales[name];
  let place = position / STEPS;
  if (low === 0) return rounded(place * high, 3);
  if (zero) {
    if (place < 0.02) return "0";
    place = (place - 0.02) / 0.98;
  }
  const value = low * (high / low) ** place;
  return whole ? String(Math.max(1, Math.round(Number(rounded(value, 3))))) : rounded(value, 3);
}

const rounded = (value, digits) => String(Number(value.toPrecision(digits)));

function change(name, value) {
  state[name] = value;
  if (name === "epochs") state.keep = "epochs";
  if (name === "num_steps") state.keep = "steps";
  if (name === "noise_std") state.follow = "noise";
  if (name === "sampling" && value === "full") state.batch_size = state.dataset_size;
  if (name === "dataset_size" && state.sampling === "full") state.batch_size = value;
  changed();
}

// Back undoes what was typed into one field, or one drag: its first step makes an entry, the others change it.
function changed(back = false) {
  clearProblems(); // what was wrong may be right now
  showForm();
  writeAddress(!editing && !back);
  editing = !back;
  clearTimeout(timer);
  timer = setTimeout(ask, SETTLE);
}

// -- questions and answers -----------------------------------------------------------------------------------------

async function ask() {
  inFlight?.abort();
  const mine = new AbortController();
  inFlight = mine;
  document.body.classList.add("stale");
  const patience = setTimeout(() => (byId("working").hidden = false), PATIENCE);
  try {
    const response = await fetch("/answer", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(state),
      signal: mine.signal,
    });
    const told = await response.json();
    if (told.answer) show(told.answer);
    else complain(told.field, told.problem);
    const again = Number(response.headers.get("Retry-After"));
    if (again && inFlight === mine) timer = setTimeout(ask, 1000 * again); // until then a change of a value asks sooner
  } catch (error) {
    if (mine.signal.reason === "cancelled") complain(null, "Cancelled: change a value to ask again.");
    else if (error.name !== "AbortError" && !mine.signal.aborted)
      complain(null, "No answer: is gmip app still running in its terminal?");
  } finally {
    clearTimeout(patience);
    if (inFlight === mine) {
      inFlight = null;
      byId("working").hidden = true;
      document.body.classList.remove("stale");
    }
  }
}

function clearProblems() {
  for (const place of document.querySelectorAll(".problem")) place.hidden = true;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

function complain(name, sentence) {
  clearProblems();
  const place = (name && byId(`${name}-problem`)) || byId("problem");
  place.textContent = sentence;
  place.hidden = false;
  if (name && form.elements[name] instanceof Element) form.elements[name].setAttribute("aria-invalid", "true");
  byId("verdict").className = "verdict bad";
  byId("target").textContent = name ? sentence : "";
  byId("sentence").textContent = "";
  answer = null;
  document.body.classList.add("failed"); // what is still drawn answers another question
}

function show(found) {
  clearProblems();
  document.body.classList.remove("failed");
  answer = found;
  byId("verdict").className = `verdict ${found.badge}`;
  byId("target").textContent = found.target;
  byId("sentence").textContent = found.sentence;
  byId("standing").textContent = found.standing;
  byId("command").textContent = found.command;
  byId("python").textContent = found.python;
  byId("assumptions").replaceChildren(...found.assumptions.map((text) => element("li", text)));
  byId("rows").replaceChildren(
    ...found.rows.map(([name, value]) => {
      const row = element("tr");
      const head = element("th", name);
      head.scope = "row";
      row.append(head, element("td", value));
      return row;
    }),
  );
  byId("legend").innerHTML = found.legend;
  if (state.follow === "target") state.noise_std = found.fields.noise_std;
  state[other()] = found.fields[other()];
  draw();
  showForm();
  writeAddress();
}

function draw() {
  if (answer) byId("drawing").innerHTML = answer.chart[scale];
  showHandle();
}

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

// -- the target, as a point of the chart -----------------------------------------------------------------------------

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function toUnit(rate) {
  return scale === "linear" ? rate : 1 - Math.log10(Math.max(rate, data.axes.lowest)) / Math.log10(data.axes.lowest);
}

function toRate(unit) {
  return scale === "linear" ? unit : data.axes.lowest ** (1 - unit);
}

function showHandle() {
  const { width, height, left, right, top, bottom } = data.axes;
  const [fpr, tpr] = [Number(state.fpr), Number(state.tpr)];
  const handle = byId("handle");
  handle.hidden = !(fpr > 0 && tpr > 0 && tpr <= 1 && fpr < 1);
  if (handle.hidden) return;
  handle.style.left = `${(100 * (left + toUnit(fpr) * (width - left - right))) / width}%`;
  handle.style.top = `${(100 * (height - bottom - toUnit(tpr) * (height - top - bottom))) / height}%`;
  handle.setAttribute("aria-valuenow", String(tpr));
  handle.setAttribute("aria-valuetext", `${rounded(100 * tpr, 3)}% of the members at ${rounded(100 * fpr, 3)}% false alarms`);
}

// A rate that people name (0.1%, 1%, 5%, 10%) if it is near.
function snapped(rate) {
  return [0.0001, 0.001, 0.01, 0.05, 0.1, 0.5].find((named) => Math.abs(Math.log(rate / named)) < 0.06) ?? rate;
}

function moveTarget(fpr, tpr) {
  const low = scale === "linear" ? 1e-3 : data.axes.lowest;
  state.fpr = rounded(snapped(clamp(fpr, low, 0.9)), 2);
  state.tpr = rounded(clamp(tpr, low, 1), 2);
  state.follow = "target";
  changed();
}

function dragged(event) {
  const { width, height, left, right, top, bottom } = data.axes;
  const box = byId("drawing").getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * width;
  const y = ((event.clientY - box.top) / box.height) * height;
  moveTarget(
    toRate(clamp((x - left) / (width - left - right), 0, 1)),
    toRate(clamp((height - bottom - y) / (height - top - bottom), 0, 1)),
  );
}

const handle = byId("handle");
handle.addEventListener("pointerdown", (event) => {
  handle.setPointerCapture(event.pointerId);
  handle.focus();
  event.preventDefault();
});
handle.addEventListener("pointermove", (event) => {
  if (handle.hasPointerCapture(event.pointerId)) dragged(event);
});
handle.addEventListener("keydown", (event) => {
  const by = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[event.key];
  if (!by) return;
  event.preventDefault();
  const step = event.shiftKey ? 0.1 : 0.02;
  moveTarget(toRate(clamp(toUnit(Number(state.fpr)) + by[0] * step, 0, 1)), toRate(clamp(toUnit(Number(state.tpr)) + by[1] * step, 0, 1)));
});

// -- events ----------------------------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const field = event.target;
  if (field.dataset.slider) change(field.dataset.slider, fromSlider(field.dataset.slider, Number(field.value)));
  else if (field.id === "susceptibility") change("record", field.value);
  else if (field.name === "record") change("record", field.value === "other" ? state.num_params : field.value);
  else if (field.id === "preset") {
    if (field.value) state = { ...data.presets[field.value] };
    changed();
  } else if (field.name in state) change(field.name, field.value);
});
form.addEventListener("focusout", () => showForm());
byId("cancel").addEventListener("click", () => inFlight?.abort("cancelled"));
for (const radio of document.querySelectorAll('input[name="scale"]'))
  radio.addEventListener("input", () => {
    scale = radio.value;
    writeAddress();
    draw();
  });
for (const button of document.querySelectorAll("[data-copy]"))
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
for (const button of document.querySelectorAll("[data-save]"))
  button.addEventListener("click", async () => {
    if (!answer) return;
    const kind = button.dataset.save;
    save(`gmip.${kind}`, kind === "csv" ? new Blob([answer.csv], { type: "text/csv" }) : await picture(kind));
  });

async function picture(kind) {
  const drawing = byId("drawing").querySelector("svg").cloneNode(true);
  drawing.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  drawing.setAttribute("width", data.axes.width);
  drawing.setAttribute("height", data.axes.height);
  drawing.setAttribute("font-family", "system-ui, sans-serif");
  const text = new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" });
  if (kind === "svg") return text;
  const image = new Image();
  const address = URL.createObjectURL(text);
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * data.axes.width, 2 * data.axes.height];
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const end of ["change", "focusout"]) form.addEventListener(end, () => (editing = false));
byId("handle").addEventListener("pointerup", () => (editing = false));
window.addEventListener("popstate", () => {
  document.activeElement?.blur(); // a field that is being edited would keep its text
  state = { ...data.presets[Object.keys(data.presets)[0]] };
  readAddress();
  changed(true);
});
readAddress();
showForm();
ask();
