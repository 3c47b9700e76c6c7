// Downloads: what the page holds, as tables for other programs.

const WHOLE = new Set(["length", "sample", "body", "ours", "theirs", "written", "attempts"]);
const REAL = new Set(["depth", "score", "seconds"]);
const names = ["run", "task", "length", ...index.columns];
const typed = names.map((name) => [name, WHOLE.has(name) ? "int" : REAL.has(name) ? "double" : "text"]);

// A spreadsheet runs a text that begins like a formula, so such texts get a quote in front; the last four are full width.
function field(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

async function* rows() {
  for await (const sample of matching({})) {
    const run = index.runs[sample.run];
    yield { ...sample, run: run.name, task: run.tasks[sample.task], class: index.classes[sample.class].name };
  }
}

// Facts are lists of numbers, which a flat table holds as their JSON.
async function* flat() {
  for await (const row of rows()) yield row.facts === null ? row : { ...row, facts: JSON.stringify(row.facts) };
}

async function* lines(kind) {
  if (kind === "cells.csv") {
    yield index.cells.columns.join(",");
    for (const row of index.cells.rows) yield row.map(field).join(",");
    return;
  }
  if (kind === "samples.csv") yield names.join(",");
  for await (const row of rows()) yield kind === "samples.csv" ? names.map((name) => field(row[name])).join(",") : JSON.stringify(row);
}

const KINDS = { csv: "text/csv", jsonl: "application/x-ndjson", parquet: "application/vnd.apache.parquet" };

async function download(kind) {
  const parts = [];
  if (kind.endsWith("parquet")) parts.push(...await parquet(typed, flat()));
  else for await (const line of lines(kind)) parts.push(line + "\n");
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: KINDS[kind.split(".")[1]] }));
  link.download = kind;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

find("downloads").hidden = false;
for (const button of document.querySelectorAll("[data-download]")) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    try { await download(button.dataset.download); } finally { button.disabled = false; }
  });
}
