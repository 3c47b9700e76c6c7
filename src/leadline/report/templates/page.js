// The switch between measured and smoothed heatmaps, and the sample browser.

// --- measured or smoothed -----------------------------------------------------------------------

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

// --- sample browser -----------------------------------------------------------------------------

const form = find("filters");
const control = (name) => form.querySelector(`[name="${name}"]`);

function fill(name, options) {
  control(name).replaceChildren(...options.map(([value, title]) => {
    const option = make("option", "", title);
    option.value = value;
    return option;
  }));
}

function distinct(values) { return [...new Set(values)].sort((a, b) => a - b); }

function fillFilters() {
  fill("run", [["", "all"], ...index.runs.map((run, at) => [String(at), run.title])]);
  control("run").closest("label").hidden = index.runs.length < 2;
  fill("outcome", [["not correct", "not correct"], ["", "all"], ...index.classes.filter((c) => c.count).map((c) => [c.name, `${c.title} (${c.count.toLocaleString("en")})`])]);
  const tasks = [...new Set(index.runs.flatMap((run) => run.tasks))];
  fill("task", [["", "all"], ...tasks.map((task) => [task, task])]);
  fill("length", [["", "all"], ...distinct(index.runs.flatMap((run) => run.lengths)).map((n) => [String(n), formatLength(n)])]);
  fill("depth", [["", "all"], ...distinct(index.runs.flatMap((run) => run.depths)).map((d) => [String(d), formatPercent(d)])]);
}

// Task numbers differ between runs, so a task is looked up by name in every run.
async function* browsed() {
  const value = (name) => control(name).value;
  for (const [at, run] of index.runs.entries()) {
    if (value("run") !== "" && Number(value("run")) !== at) continue;
    const filter = { run: at, text: value("text").trim() };
    if (value("outcome")) filter.outcome = value("outcome");
    if (value("length")) filter.length = Number(value("length"));
    if (value("depth")) filter.depth = Number(value("depth"));
    if (value("task")) filter.task = run.tasks.indexOf(value("task"));
    yield* matching(filter);
  }
}

const browse = () => showSamples(find("browser"), browsed());

if (index.packs.length || index.samples) {
  fillFilters();
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  let timer = 0;
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(browse, 200); });
  // Nothing is unpacked before the section is scrolled into view.
  const watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); browse(); }
  }, { rootMargin: "300px" });
  watcher.observe(find("samples"));
}
