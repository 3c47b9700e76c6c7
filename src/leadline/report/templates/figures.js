// Figures: a mark shows its label on hover or focus, arrow keys move between marks, a click or Enter shows its samples.

const tip = find("tip"), drawer = find("drawer");

function showTip(mark) {
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.x + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = box.y - own.height - 8;
  tip.style.left = left + "px";
  tip.style.top = (above > 50 ? above : box.bottom + 8) + "px";
}

async function openSamples(mark) {
  tip.hidden = true;
  find("drawer-title").textContent = mark.getAttribute("aria-label");
  find("drawer-list").replaceChildren();
  drawer.showModal();
  await showSamples(find("drawer-list"), matching(filterOf(mark.dataset.select)));
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

// `root` holds marks: an svg or a table.
function makeInteractive(root) {
  const marks = [...root.querySelectorAll("[data-select]")];
  if (!marks.length) return;
  for (const mark of marks) {
    mark.setAttribute("role", "button");
    mark.setAttribute("tabindex", "-1");
  }
  marks[0].setAttribute("tabindex", "0");
  const markOf = (event) => event.target.closest("[data-select]");
  root.addEventListener("pointerover", (event) => { const mark = markOf(event); if (mark) showTip(mark); else tip.hidden = true; });
  root.addEventListener("pointerleave", () => { tip.hidden = true; });
  root.addEventListener("focusin", (event) => { const mark = markOf(event); if (mark) showTip(mark); });
  root.addEventListener("focusout", () => { tip.hidden = true; });
  root.addEventListener("click", (event) => { const mark = markOf(event); if (mark) openSamples(mark); });
  root.addEventListener("keydown", (event) => {
    const mark = markOf(event);
    if (!mark) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openSamples(mark); return; }
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbour(marks, mark, event.key);
    if (!next) return;
    mark.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
for (const svg of document.querySelectorAll("figure svg")) makeInteractive(svg);
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
find("drawer-close").addEventListener("click", () => drawer.close());
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
