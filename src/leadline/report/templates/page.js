// The page around them: the switch of maps, the browser of samples, downloads.

// --- as measured or smoothed --------------------------------------------------------------------

function connectSwitches(root) {
  for (const group of root.querySelectorAll(".switch")) {
    const buttons = [...group.querySelectorAll("[data-show]")];
    group.hidden = false;
    for (const button of buttons) {
      button.addEventListener("click", () => {
        for (const other of buttons) {
          other.setAttribute("aria-pressed", String(other === button));
          find(other.dataset.show).hidden = other !== button;
        }
      });
    }
  }
}
connectSwitches(document);

// --- the browser of samples ------------------------------------------------------------------

const form = find("filters");
const control = (name) => form.querySelector(`[name="${name}"]`);

function fill(name, options) {
  control(name).replaceChildren(...options.map(([value, words]) => {
    const option = make("option", "", words);
    option.value = value;
    return option;
  }));
}

function distinct(values) { return [...new Set(values)].sort((a, b) => a - b); }

function prepare() {
  fill("run", [["", "all"], ...index.runs.map((run, at) => [String(at), run.title])]);
  control("run").closest("label").hidden = index.runs.length < 2;
  fill("outcome", [["not correct", "not correct"], ["", "all"], ...index.classes.filter((c) => c.count).map((c) => [c.name, `${c.words} (${c.count.toLocaleString("en")})`])]);
  const tasks = [...new Set(index.runs.flatMap((run) => run.tasks))];
  fill("task", [["", "all"], ...tasks.map((task) => [task, task])]);
  fill("length", [["", "all"], ...distinct(index.runs.flatMap((run) => run.lengths)).map((n) => [String(n), lengthWords(n)])]);
  fill("depth", [["", "all"], ...distinct(index.runs.flatMap((run) => run.depths)).map((d) => [String(d), percent(d)])]);
}

// Task numbers differ between runs, so a task is wished for by name and looked up run by run.
async function* browsed() {
  const value = (name) => control(name).value;
  for (const [at, run] of index.runs.entries()) {
    if (value("run") !== "" && Number(value("run")) !== at) continue;
    const wish = { run: at, text: value("text").trim() };
    if (value("outcome")) wish.outcome = value("outcome");
    if (value("length")) wish.length = Number(value("length"));
    if (value("depth")) wish.depth = Number(value("depth"));
    if (value("task")) wish.task = run.tasks.indexOf(value("task"));
    yield* matching(wish);
  }
}

const browse = () => showSamples(find("browser"), browsed());

if (index.packs.length || index.samples) {
  prepare();
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(browse, 200); });
  // Nothing is unpacked before somebody scrolls there.
  const watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); browse(); }
  }, { rootMargin: "300px" });
  watcher.observe(find("samples"));
}

// --- downloads -------------------------------------------------------------------------------

// A spreadsheet runs a text that begins like a formula, so such texts get a quote in front.
function field(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

async function* lines(kind) {
  if (kind === "cells.csv") {
    yield index.cells.columns.join(",");
    for (const row of index.cells.rows) yield row.map(field).join(",");
    return;
  }
  const columns = ["run", "task", "length", ...index.columns];
  if (kind === "samples.csv") yield columns.join(",");
  for await (const sample of matching({})) {
    const run = index.runs[sample.run];
    const row = { ...sample, run: run.name, task: run.tasks[sample.task], class: index.classes[sample.class].name };
    yield kind === "samples.csv" ? columns.map((name) => field(row[name])).join(",") : JSON.stringify(row);
  }
}

async function download(kind) {
  const parts = [];
  for await (const line of lines(kind)) parts.push(line + "\n");
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: kind.endsWith("csv") ? "text/csv" : "application/x-ndjson" }));
  link.download = kind;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

find("downloads").hidden = false;
for (const button of document.querySelectorAll("[data-download]")) {
  button.addEventListener("click", () => download(button.dataset.download));
}
