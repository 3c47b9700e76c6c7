"use strict";
(() => {
  const KEYS = { y: "yes", n: "no", p: "partial" };
  const part = (id) => document.getElementById(id);
  let rows = [];
  let at = 0;

  const labelled = () => rows.filter((row) => row.label).length;

  function show() {
    const row = rows[at];
    for (const name of ["question", "targets", "evidence", "answer"]) part(name).textContent = row[name];
    part("evidence-part").hidden = !row.evidence;
    part("progress").textContent = `${at + 1} of ${rows.length}, ${labelled()} labelled`;
    part("bar").max = rows.length;
    part("bar").value = labelled();
    for (const button of document.querySelectorAll("[data-label]"))
      button.setAttribute("aria-pressed", String(button.dataset.label === row.label));
    if (labelled() === rows.length) part("said").textContent = "All answers are labelled. You can close this page.";
  }

  function step(by) {
    at = Math.min(Math.max(at + by, 0), rows.length - 1);
    show();
  }

  async function put(label) {
    const row = at;
    try {
      const reply = await fetch("label", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ row, label }),
      });
      if (!reply.ok) throw new Error(await reply.text());
    } catch (error) {
      part("said").textContent = `Not saved: ${error.message}`;
      return;
    }
    rows[row].label = label;
    part("said").textContent = "";
    step(1);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !rows.length) return;
    if (KEYS[event.key]) put(KEYS[event.key]);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") step(event.key === "ArrowRight" ? 1 : -1);
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || !rows.length) return;
    if (button.dataset.label) put(button.dataset.label);
    else step(Number(button.dataset.step));
  });

  fetch("rows")
    .then((reply) => reply.json())
    .then((found) => {
      rows = found;
      const first = rows.findIndex((row) => !row.label);
      at = first < 0 ? 0 : first;
      if (rows.length) show();
    });
})();
