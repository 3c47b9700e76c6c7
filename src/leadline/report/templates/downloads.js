// Downloads: the data of the page as CSV and JSONL.

const sampleColumns = ["run", "task", "length", ...index.columns];

// A spreadsheet executes text that begins like a formula, so such text gets a quote in front (the last four characters are
// full-width forms).
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

async function* lines(kind) {
  if (kind === "cells.csv") {
    yield index.cells.columns.join(",");
    for (const row of index.cells.rows) yield row.map(field).join(",");
    return;
  }
  if (kind === "samples.csv") yield sampleColumns.join(",");
  for await (const row of rows()) yield kind === "samples.csv" ? sampleColumns.map((name) => field(row[name])).join(",") : JSON.stringify(row);
}

const MIME_TYPES = { csv: "text/csv", jsonl: "application/x-ndjson" };

async function download(kind) {
  const parts = [];
  for await (const line of lines(kind)) parts.push(line + "\n");
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: MIME_TYPES[kind.split(".")[1]] }));
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
