// A run in progress: its progress, heatmaps and failures as they arrive, and the report again when the server has a newer
// one. Untrusted text arrives as JSON and reaches the page only through textContent.

const live = find("live"), heatmaps = find("live-heatmaps");
let stream = null, layout = "", shownTag = live.dataset.tag, refreshing = false, buttons = new Map();

// --- progress and failures ---------------------------------------------------------------------

function showProgress(state) {
  const bar = find("live-bar"), count = state.asked.toLocaleString("en");
  bar.hidden = state.planned === null;
  if (state.planned !== null) { bar.max = Math.max(1, state.planned); bar.value = state.asked; }
  const parts = [state.planned === null ? `${count} ${state.asked === 1 ? "sample" : "samples"}` : `${count} of ${state.planned.toLocaleString("en")} samples`];
  if (state.rate) parts.push(state.rate);
  if (state.left) parts.push(state.left);
  if (state.failed) parts.push(`${state.failed.toLocaleString("en")} failed`);
  find("live-text").textContent = parts.join(" · ");
}

function showFailures(failures) {
  const place = find("live-failures"), list = place.querySelector("ul");
  place.hidden = failures.length === 0;
  const shown = failures.toReversed().map((failed) => {
    const item = make("li"), when = make("time", "", new Date(failed.at * 1000).toLocaleTimeString());
    item.append(when, " ", make("b", "", failed.place), " ", failed.why);
    return item;
  });
  list.replaceChildren(...shown);
}

// --- heatmaps ----------------------------------------------------------------------------------

// Each heatmap is {title, rows_title, columns, rows, cells}, as in report/heatmap_data.py.
function drawHeatmaps(found) {
  const names = JSON.stringify(found.map((data) => [data.title, data.columns, data.rows]));
  if (names !== layout) {
    layout = names;
    find("heatmap-0").hidden = found.length === 0;
    buttons = new Map();
    heatmaps.replaceChildren(...found.map(drawHeatmap));
    for (const table of heatmaps.querySelectorAll("table")) makeInteractive(table);
  }
  for (const data of found) fillCells(data.cells);
}

function drawHeatmap(data) {
  const figure = make("figure"), wide = make("div", "wide"), table = make("table", "heatmap"), head = make("tr");
  const selections = new Map(data.cells.map((cell) => [cell.row + "\n" + cell.column, cell.select]));
  if (data.title) table.append(make("caption", "", data.title));
  head.append(header(data.rows_title, "col"), ...data.columns.map((name) => header(name, "col")));
  table.append(head);
  for (const row of data.rows) {
    const line = make("tr");
    line.append(header(row, "row"), ...data.columns.map((column) => cellButton(selections.get(row + "\n" + column))));
    table.append(line);
  }
  wide.append(table);
  figure.append(wide);
  return figure;
}

function header(text, scope) {
  const node = make("th", "", text);
  node.scope = scope;
  return node;
}

function cellButton(select) {
  const node = make("td");
  if (select === undefined) return node;
  const button = make("button");
  button.type = "button";
  button.dataset.select = select;
  buttons.set(select, button);
  node.append(button);
  return node;
}

function fillCells(cells) {
  for (const cell of cells) {
    const button = buttons.get(cell.select);
    if (!button) continue;
    button.setAttribute("aria-label", cell.label);
    button.style.background = cell.colour || "transparent";
    button.style.color = cell.ink;
    button.classList.toggle("empty", cell.mean === null);
    button.replaceChildren(cell.mean === null ? "" : cell.value);
    if (cell.mean !== null && cell.note) button.append(make("small", "", cell.note));
  }
}

// --- refreshing the report ---------------------------------------------------------------------

async function refresh() {
  if (refreshing || inUse()) return;
  refreshing = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok || inUse()) return;
    replaceReport(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* the server is not reachable; the stream reconnects */ } finally { refreshing = false; }
}

function showReportTime() {
  find("live-report").textContent = `The report below is from ${new Date().toLocaleTimeString()}; it is updated while the run continues.`;
}

function replaceReport(fresh) {
  const article = document.querySelector("article"), other = document.adoptNode(fresh.querySelector("article"));
  for (const part of other.querySelectorAll("details[class]")) part.open = article.querySelector(`details.${part.className}`)?.open ?? false;
  const panel = fresh.getElementById("live");
  if (panel) {
    shownTag = panel.dataset.tag;
    showReportTime();
  } else { // the run has ended: this is its final report
    stream?.close();
    find("main").dataset.status = fresh.getElementById("main").dataset.status ?? "";
    live.replaceWith(...[...fresh.querySelectorAll("main > .warning")].map((node) => document.adoptNode(node)));
  }
  article.replaceWith(other);
  document.querySelector(".bar nav").replaceWith(document.adoptNode(fresh.querySelector(".bar nav")));
  for (const svg of other.querySelectorAll("figure svg")) makeInteractive(svg);
  connectSwitches(other);
  const chosen = Object.fromEntries([...form.elements].map((one) => [one.name, one.value]));
  index = JSON.parse(fresh.getElementById("index").textContent);
  fillFilters();
  for (const [name, value] of Object.entries(chosen)) control(name).value = value;
}

// --- updates -----------------------------------------------------------------------------------

function update(message) {
  const state = JSON.parse(message.data);
  showProgress(state);
  showFailures(state.failures);
  if (state.heatmaps) drawHeatmaps(state.heatmaps);
  fillCells(state.cells);
  const over = state.status !== "running";
  find("live-status").textContent = { running: "Running", finished: "Finished", stopped: "Stopped" }[state.status];
  if (over) { stream.close(); showFinalReport(); } else if (state.due || state.tag !== shownTag) refresh();
}

// The final report replaces this panel once nothing in the old one is open or focused.
async function showFinalReport() {
  while (live.isConnected) { await refresh(); await new Promise((done) => setTimeout(done, 1000)); }
}

function listen() {
  stream?.close();
  stream = new EventSource(live.dataset.events);
  stream.addEventListener("state", update);
  stream.addEventListener("error", () => { find("live-status").textContent = "Running; the dashboard is not reachable"; });
}

// Browsers allow few connections to one server: hidden tabs close theirs.
document.addEventListener("visibilitychange", () => {
  if (!live.isConnected) return;
  if (document.hidden) stream?.close(); else listen();
});
if (!document.hidden) listen();
showReportTime();
