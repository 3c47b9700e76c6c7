// The page around them: the switch of maps, the browser of samples.

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
