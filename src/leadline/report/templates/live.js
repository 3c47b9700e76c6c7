// A run that is not over: its progress, map and failures as they come, and the report anew when the server has printed it.
// Strangers' words come as JSON and reach the page through textContent alone.

const live = find("live"), maps = find("live-maps");
let stream = null, layout = "", printed = live.dataset.tag, refreshing = false, buttons = new Map();

// --- progress and failures ---------------------------------------------------------------------

function tellProgress(state) {
  const bar = find("live-bar"), count = state.asked.toLocaleString("en");
  bar.hidden = state.planned === null;
  if (state.planned !== null) { bar.max = Math.max(1, state.planned); bar.value = state.asked; }
  const words = [state.planned === null ? `${count} ${state.asked === 1 ? "sample" : "samples"}` : `${count} of ${state.planned.toLocaleString("en")} samples`];
  if (state.rate) words.push(state.rate);
  if (state.left) words.push(state.left);
  if (state.failed) words.push(`${state.failed.toLocaleString("en")} failed`);
  find("live-words").textContent = words.join(" · ");
}

function tellFailures(failures) {
  const place = find("live-failures"), list = place.querySelector("ul");
  place.hidden = failures.length === 0;
  const shown = failures.toReversed().map((failed) => {
    const item = make("li"), when = make("time", "", new Date(failed.at * 1000).toLocaleTimeString());
    item.append(when, " ", make("b", "", failed.place), " ", failed.why);
    return item;
  });
  list.replaceChildren(...shown);
}

// --- the map, cell by cell ---------------------------------------------------------------------

function drawMaps(tables) {
  if (JSON.stringify(tables) === layout) return;
  layout = JSON.stringify(tables);
  find("heatmap-0").hidden = tables.length === 0;
  buttons = new Map();
  maps.replaceChildren(...tables.map(drawMap));
  for (const table of maps.querySelectorAll("table")) enliven(table);
}

function drawMap(map) {
  const figure = make("figure"), wide = make("div", "wide"), table = make("table", "map"), head = make("tr");
  if (map.title) table.append(make("caption", "", map.title));
  head.append(column(map.down), ...map.columns.map(column));
  table.append(head);
  for (const row of map.rows) {
    const line = make("tr"), name = make("th", "", row.name);
    name.scope = "row";
    line.append(name, ...row.cells.map(cell));
    table.append(line);
  }
  wide.append(table);
  figure.append(wide);
  return figure;
}

function column(words) {
  const node = make("th", "", words);
  node.scope = "col";
  return node;
}

function cell(select) {
  const node = make("td"), button = make("button");
  button.type = "button";
  button.dataset.select = select;
  buttons.set(select, button);
  node.append(button);
  return node;
}

function fillCell(button, found) {
  button.setAttribute("aria-label", found.label);
  button.style.background = found.colour ?? "transparent";
  button.style.color = found.ink ?? "";
  button.classList.toggle("empty", found.colour === undefined);
  button.replaceChildren(found.colour === undefined ? "" : found.value);
  if (found.colour !== undefined && found.short) button.append(make("small", "", found.short));
}

// --- the report, anew --------------------------------------------------------------------------

async function refresh() {
  if (refreshing || inUse()) return;
  refreshing = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok || inUse()) return;
    replaceReport(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* the server is away; the stream will say when it is back */ } finally { refreshing = false; }
}

function dateReport() {
  find("live-report").textContent = `The report below was made at ${new Date().toLocaleTimeString()} and is made anew as the run goes on.`;
}

function replaceReport(fresh) {
  const article = document.querySelector("article"), other = document.adoptNode(fresh.querySelector("article"));
  for (const part of other.querySelectorAll("details")) part.open = article.querySelector(`details.${part.className}`)?.open ?? false;
  const panel = fresh.getElementById("live");
  if (panel) {
    printed = panel.dataset.tag;
    dateReport();
  } else { // the run is over: this is its report
    stream?.close();
    find("main").dataset.status = fresh.getElementById("main").dataset.status ?? "";
    live.replaceWith(...[...fresh.querySelectorAll("main > .warning")].map((node) => document.adoptNode(node)));
  }
  article.replaceWith(other);
  document.querySelector(".bar nav").replaceWith(document.adoptNode(fresh.querySelector(".bar nav")));
  for (const svg of other.querySelectorAll("figure svg")) enliven(svg);
  connectSwitches(other);
  const chosen = Object.fromEntries([...form.elements].map((one) => [one.name, one.value]));
  index = JSON.parse(fresh.getElementById("index").textContent);
  prepare();
  for (const [name, value] of Object.entries(chosen)) control(name).value = value;
}

// --- hearing -----------------------------------------------------------------------------------

function hear(message) {
  const state = JSON.parse(message.data);
  tellProgress(state);
  tellFailures(state.failures);
  if (state.maps) drawMaps(state.maps);
  for (const [select, found] of Object.entries(state.cells)) {
    const button = buttons.get(select);
    if (button) fillCell(button, found);
  }
  const over = state.status !== "running";
  find("live-status").textContent = { running: "Running", finished: "Finished", stopped: "Stopped" }[state.status];
  if (over) { stream.close(); end(); } else if (state.due || state.tag !== printed) refresh();
}

// The last report replaces this panel as soon as nobody is busy in the old one.
async function end() {
  while (live.isConnected) { await refresh(); await new Promise((done) => setTimeout(done, 1000)); }
}

function listen() {
  stream?.close();
  stream = new EventSource(live.dataset.events);
  stream.addEventListener("state", hear);
  stream.addEventListener("error", () => { find("live-status").textContent = "Running; the dashboard does not answer"; });
}

// A browser holds few connections to one server: tabs that nobody sees give theirs up.
document.addEventListener("visibilitychange", () => {
  if (!live.isConnected) return;
  if (document.hidden) stream?.close(); else listen();
});
if (!document.hidden) listen();
dateReport();
