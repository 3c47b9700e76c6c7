// The list of runs: searches and sorts without leaving the page, remembers selected runs, and follows new ones. The server
// makes the rows; a fetched page is parsed, never executed, and only its list is used.

const find = (id) => document.getElementById(id);
const filterForm = find("filter"), maxCompared = 12;

// --- selected runs, over all pages of the list --------------------------------------------------

let selected = [];
try { selected = JSON.parse(sessionStorage.getItem("leadline-selected")) ?? []; } catch { /* no storage */ }

function showSelection() {
  try { sessionStorage.setItem("leadline-selected", JSON.stringify(selected)); } catch { /* no storage */ }
  for (const box of document.querySelectorAll("[name=run]")) {
    box.checked = selected.includes(box.value);
    box.disabled = box.hasAttribute("data-broken") || (!box.checked && selected.length >= maxCompared);
  }
  const count = selected.length;
  find("selected-text").textContent = count === 0 ? "Select two or more runs to compare them." : count === 1 ? "1 run selected; select another." : `${count} runs selected; the others are compared with the first.`;
  find("compare-button").disabled = count < 2;
  find("clear-button").hidden = count === 0;
}

document.addEventListener("change", (event) => {
  if (event.target.name !== "run") return;
  selected = selected.filter((id) => id !== event.target.value);
  if (event.target.checked) selected.push(event.target.value);
  showSelection();
});
find("clear-button").addEventListener("click", () => { selected = []; showSelection(); });
find("compare").addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign("/compare?" + new URLSearchParams(selected.map((id) => ["run", id])));
});

// --- loading the list ----------------------------------------------------------------------------

let latest = 0;

async function load(address) {
  const mine = ++latest;
  let text;
  try {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) return;
    text = await answer.text();
  } catch { return; /* the server is not reachable; the stream reconnects */ }
  if (mine !== latest) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("list");
  const held = document.activeElement, at = held?.closest("[data-run]")?.dataset.run;
  find("list").replaceWith(document.adoptNode(fresh));
  showSelection();
  // Keep the keyboard focus where it was.
  if (held?.isConnected || !held) return;
  const again = at ? `[data-run="${CSS.escape(at)}"] ${held.tagName.toLowerCase()}` : held.dataset.order ? `[data-order="${held.dataset.order}"]` : held.rel ? `[rel="${held.rel}"]` : null;
  if (again) document.querySelector(again)?.focus();
}

function go(address) {
  history.pushState(null, "", address);
  load(address);
}

function wantedAddress() {
  const values = [...new FormData(filterForm)].filter(([name, value]) => value && !(name === "sort" && value === "-date"));
  return "/?" + new URLSearchParams(values);
}

let timer = 0;
filterForm.addEventListener("submit", (event) => { event.preventDefault(); go(wantedAddress()); });
filterForm.addEventListener("input", (event) => {
  clearTimeout(timer);
  timer = setTimeout(() => { history.replaceState(null, "", wantedAddress()); load(wantedAddress()); }, event.target.name === "q" ? 200 : 0);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("#list th a[data-order], .pages a");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
  const sort = new URL(link.href).searchParams.get("sort") ?? "-date";
  filterForm.elements.sort.value = sort;
});
addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  filterForm.elements.q.value = query.get("q") ?? "";
  filterForm.elements.status.value = query.get("status") ?? "";
  filterForm.elements.sort.value = query.get("sort") ?? "-date";
  load(location.href);
});

// --- updates -------------------------------------------------------------------------------------

let stream = null;

function listen() {
  stream?.close();
  stream = new EventSource("/events");
  stream.addEventListener("open", () => load(location.href)); // what changed between the page and its stream
  stream.addEventListener("list", () => load(location.href));
}

// Browsers allow few connections to one server: hidden tabs close theirs.
document.addEventListener("visibilitychange", () => { if (document.hidden) stream?.close(); else listen(); });
if (!document.hidden) listen();
showSelection();
