// Figures: marks say what they are when pointed at, move by arrow keys, and open their samples.

const tip = find("tip"), drawer = find("drawer");

function point(mark) {
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.x + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = box.y - own.height - 8;
  tip.style.left = left + "px";
  tip.style.top = (above > 50 ? above : box.bottom + 8) + "px";
}

async function open(mark) {
  tip.hidden = true;
  find("drawer-title").textContent = mark.getAttribute("aria-label");
  find("drawer-list").replaceChildren();
  drawer.showModal();
  await showSamples(find("drawer-list"), matching(wishOf(mark.dataset.select)));
  const cards = find("drawer-list").querySelectorAll("details.sample");
  for (const one of cards.length <= 3 ? cards : [cards[0]]) one.open = true;
}

function neighbour(marks, mark, key) {
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  const middle = (m) => { const b = m.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; };
  const [x, y] = middle(mark);
  let best = null, least = Infinity;
  for (const other of marks) {
    if (other === mark) continue;
    const [ox, oy] = middle(other);
    const along = (ox - x) * dx + (oy - y) * dy, aside = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
    if (along > 1 && along + 4 * aside < least) { least = along + 4 * aside; best = other; }
  }
  return best;
}

// `svg` is a drawing or a table of marks.
function enliven(svg) {
  const marks = [...svg.querySelectorAll("[data-select]")];
  if (!marks.length) return;
  for (const mark of marks) {
    mark.setAttribute("role", "button");
    mark.setAttribute("tabindex", "-1");
  }
  marks[0].setAttribute("tabindex", "0");
  const markOf = (event) => event.target.closest("[data-select]");
  svg.addEventListener("pointerover", (event) => { const mark = markOf(event); if (mark) point(mark); else tip.hidden = true; });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  svg.addEventListener("focusin", (event) => { const mark = markOf(event); if (mark) point(mark); });
  svg.addEventListener("focusout", () => { tip.hidden = true; });
  svg.addEventListener("click", (event) => { const mark = markOf(event); if (mark) open(mark); });
  svg.addEventListener("keydown", (event) => {
    const mark = markOf(event);
    if (!mark) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(mark); return; }
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbour(marks, mark, event.key);
    if (!next) return;
    mark.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
for (const svg of document.querySelectorAll("figure svg")) enliven(svg);
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
find("drawer-close").addEventListener("click", () => drawer.close());
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
