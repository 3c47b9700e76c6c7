// The list of runs: filters and sorts without leaving the page, keeps what is ticked, and shows runs as they come.
// The server makes the rows; a fetched page is parsed, never run, and only its list is taken.

const find = (id) => document.getElementById(id);
const filter = find("filter"), most = 12;

// --- what is ticked, over all pages of the list --------------------------------------------------

let ticked = [];
try { ticked = JSON.parse(sessionStorage.getItem("leadline-ticked")) ?? []; } catch { /* no storage */ }

function keepTicks() {
  try { sessionStorage.setItem("leadline-ticked", JSON.stringify(ticked)); } catch { /* no storage */ }
  for (const box of document.querySelectorAll("[name=run]")) {
    box.checked = ticked.includes(box.value);
    box.disabled = box.hasAttribute("data-broken") || (!box.checked && ticked.length >= most);
  }
  const count = ticked.length;
  find("ticked-words").textContent = count === 0 ? "Tick two or more runs to compare them." : count === 1 ? "1 run ticked; tick another." : `${count} runs ticked; the first is what the others are compared with.`;
  find("ticked-go").disabled = count < 2;
  find("ticked-clear").hidden = count === 0;
}

document.addEventListener("change", (event) => {
  if (event.target.name !== "run") return;
  ticked = ticked.filter((id) => id !== event.target.value);
  if (event.target.checked) ticked.push(event.target.value);
  keepTicks();
});
find("ticked-clear").addEventListener("click", () => { ticked = []; keepTicks(); });
find("compare").addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign("/compare?" + new URLSearchParams(ticked.map((id) => ["run", id])));
});

// --- another list --------------------------------------------------------------------------------

let turn = 0;

async function load(address) {
  const mine = ++turn;
  let text;
  try {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) return;
    text = await answer.text();
  } catch { return; /* the server is away; the stream will say when it is back */ }
  if (mine !== turn) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("list");
  const held = document.activeElement, at = held?.closest("[data-run]")?.dataset.run;
  find("list").replaceWith(document.adoptNode(fresh));
  keepTicks();
  // The one who came by keyboard stays where he was.
  if (held?.isConnected || !held) return;
  const again = at ? `[data-run="${CSS.escape(at)}"] ${held.tagName.toLowerCase()}` : held.dataset.order ? `[data-order="${held.dataset.order}"]` : held.rel ? `[rel="${held.rel}"]` : null;
  if (again) document.querySelector(again)?.focus();
}

function go(address) {
  history.pushState(null, "", address);
  load(address);
}

function wished() {
  const values = [...new FormData(filter)].filter(([name, value]) => value && !(name === "sort" && value === "-date"));
  return "/?" + new URLSearchParams(values);
}

let waiting = 0;
filter.addEventListener("submit", (event) => { event.preventDefault(); go(wished()); });
filter.addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { history.replaceState(null, "", wished()); load(wished()); }, event.target.name === "q" ? 200 : 0);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("#list th a[data-order], .pages a");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
  const sort = new URL(link.href).searchParams.get("sort") ?? "-date";
  filter.elements.sort.value = sort;
});
addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  filter.elements.q.value = query.get("q") ?? "";
  filter.elements.status.value = query.get("status") ?? "";
  filter.elements.sort.value = query.get("sort") ?? "-date";
  load(location.href);
});

// --- runs as they come ---------------------------------------------------------------------------

let stream = null;

function listen() {
  stream?.close();
  stream = new EventSource("/events");
  stream.addEventListener("open", () => load(location.href)); // for what came between the page and its stream
  stream.addEventListener("list", () => load(location.href));
}

// A browser holds few connections to one server: tabs that nobody sees give theirs up.
document.addEventListener("visibilitychange", () => { if (document.hidden) stream?.close(); else listen(); });
if (!document.hidden) listen();
keepTicks();
