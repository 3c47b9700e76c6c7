// Samples: unpacked when they are opened, shown as cards. Untrusted text reaches the page only through textContent;
// nothing here makes HTML from text. The scripts of this folder are joined into one script with one scope.

const find = (id) => document.getElementById(id);
let index = JSON.parse(find("index").textContent);
const PAGE = 25;

function make(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
}

// --- unpacking -------------------------------------------------------------------------------

// Samples are in the page, or on the server that shows it, which has newer ones when the run has grown. A list that is
// being shown keeps the packs it started with.
let archive = { entries: index.packs, text: (number) => find("pack-" + number).textContent, read: new Map(), tag: null };

async function packsNow() {
  if (!index.samples) return archive;
  const answer = await fetch(index.samples, { cache: "no-cache" });
  if (!answer.ok) throw new Error("samples cannot be loaded: " + answer.status);
  const tag = answer.headers.get("etag");
  if (tag !== archive.tag) {
    const found = await answer.json();
    archive = { entries: found.index, text: (number) => found.packs[number], read: new Map(), tag };
    find("left-out").textContent = found.left_out;
  }
  return archive;
}

function unpack(from, number) {
  if (!from.read.has(number)) from.read.set(number, read(from.text(number)));
  return from.read.get(number);
}

async function read(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const texts = new Set(index.texts);

function sampleAt(pack, row, run, task, length) {
  const sample = { run, task, length };
  for (const name of index.columns) {
    const column = pack.columns[name];
    const value = column === undefined ? null : column[row];
    sample[name] = value !== null && texts.has(name) ? pack.strings[value] : value;
  }
  return sample;
}

// A filter is {run, task, length, depth, outcome, text}; a missing key means any.
async function* matching(filter) {
  const from = await packsNow();
  for (const [number, entry] of from.entries.entries()) {
    if (filter.run !== undefined && filter.run !== entry.run) continue;
    for (const [task, length, first, count] of entry.parts) {
      if (filter.task !== undefined && filter.task !== task) continue;
      if (filter.length !== undefined && filter.length !== length) continue;
      const pack = await unpack(from, number);
      for (let row = first; row < first + count; row++) {
        const sample = sampleAt(pack, row, entry.run, task, length);
        if (matches(sample, filter)) yield sample;
      }
    }
  }
}

function matches(sample, filter) {
  if (filter.depth !== undefined && sample.depth !== filter.depth) return false;
  const outcome = index.classes[sample.class].name;
  if (filter.outcome === "not correct" ? outcome === "correct" : filter.outcome !== undefined && outcome !== filter.outcome) return false;
  if (!filter.text) return true;
  const hay = [sample.question, sample.answer, sample.targets, sample.failure, sample.document].join("\n").toLowerCase();
  return hay.includes(filter.text.toLowerCase());
}

function filterOf(selection) {
  const [run, task, length, depth, outcome] = selection.split("/");
  const filter = { run: Number(run) };
  if (task !== "*") filter.task = Number(task);
  if (length !== "*") filter.length = Number(length);
  if (depth !== "*") filter.depth = depth === "-" ? null : Number(depth);
  if (outcome !== "*") filter.outcome = outcome;
  return filter;
}

// --- a list of samples -----------------------------------------------------------------------

const turns = new WeakMap();

// Shows the samples of a source, a page at a time. A later call for the same element ends an earlier one.
function showSamples(place, source) {
  const mine = (turns.get(place) ?? 0) + 1;
  turns.set(place, mine);
  const list = make("div"), more = make("div", "more"), button = make("button", "", "Show more"), count = make("span");
  button.type = "button";
  more.append(button, count);
  place.replaceChildren(list, more);
  let shown = 0;
  async function next() {
    button.disabled = true;
    count.textContent = "loading…";
    let ended = false;
    for (const until = shown + PAGE; shown < until; shown++) {
      const { value, done } = await source.next();
      if (turns.get(place) !== mine) return;
      ended = done;
      if (done) break;
      list.append(card(value));
    }
    button.disabled = false;
    button.hidden = ended;
    const number = shown.toLocaleString("en");
    count.textContent = !ended ? `${number} shown` : shown ? `all ${number} shown` : "no samples";
    place.dataset.shown = String(shown);
  }
  button.addEventListener("click", next);
  return next();
}

function card(sample) {
  const outcome = index.classes[sample.class], run = index.runs[sample.run];
  const node = make("details", "sample"), head = make("summary"), badge = make("span", "badge"), dot = make("i");
  dot.style.background = outcome.colour;
  badge.append(dot, outcome.title);
  const where = [run.tasks[sample.task], formatLength(sample.length)];
  if (sample.depth !== null) where.push("depth " + formatPercent(sample.depth));
  if (index.runs.length > 1) where.unshift(run.title);
  head.append(badge, make("span", "place", where.join(" · ")), make("span", "gist", oneLine(sample.answer ?? sample.failure ?? "")));
  node.append(head);
  node.addEventListener("toggle", () => { if (node.open && node.childElementCount === 1) node.append(body(sample)); });
  return node;
}

function body(sample) {
  const node = make("div", "body");
  const targets = (sample.targets ?? "").split("\n").filter((t) => t);
  add(node, "question", textBlock(sample.question));
  if (sample.prefix) add(node, "answer prefix", textBlock(sample.prefix));
  if (sample.answer === null) {
    add(node, "expected", textBlock(targets.join("\n")));
    add(node, "no answer", textBlock(sample.failure ?? ""));
  } else {
    const given = sample.graded ?? sample.answer;
    const [expected, answer] = compared(targets, given);
    add(node, targets.length > 1 ? "expected (all of)" : "expected", expected);
    if (sample.graded !== null) add(node, "graded part", answer);
    add(node, "answer", sample.graded === null ? answer : textBlock(sample.answer));
  }
  if (sample.thinking) add(node, "thinking", textBlock(sample.thinking));
  if (sample.facts) add(node, "position of the fact", factPositions(sample));
  if (sample.excerpt) add(node, "surrounding text", highlighted(sample.excerpt, targets));
  add(node, "details", make("span", "place", sampleDetails(sample)));
  return node;
}

function add(node, name, content) {
  const part = make("div");
  part.append(make("b", "", name), content);
  node.append(part);
}

const textBlock = (text) => make("p", "text", text === "" ? "(empty)" : text);
const oneLine = (text) => text.replace(/\s+/g, " ").trim().slice(0, 160);
const formatPercent = (share) => `${Number((100 * share).toPrecision(3))}%`;

function formatLength(tokens) {
  for (const [size, unit] of [[1048576, "m"], [1024, "k"]]) {
    if (tokens >= size && (tokens * 4) % size === 0) return tokens / size + unit;
  }
  return String(tokens);
}

function sampleDetails(sample) {
  const parts = [`sample ${sample.sample}`, `document ${sample.document}`, `score ${sample.score ?? "none"}`];
  parts.push(sample.theirs === null ? `${sample.ours.toLocaleString("en")} tokens sent` : `${sample.ours.toLocaleString("en")} tokens sent, ${sample.theirs.toLocaleString("en")} read`);
  if (sample.written !== null) parts.push(`${sample.written} completion tokens`);
  if (sample.finish) parts.push(`finish reason ${sample.finish}`);
  parts.push(`${sample.seconds} s`);
  if (sample.attempts > 1) parts.push(`${sample.attempts} attempts`);
  for (const name of ["detail", "labels", "notes"]) if (sample[name]) parts.push(sample[name]);
  return parts.join(" · ");
}

function factPositions(sample) {
  const node = make("span");
  const words = sample.facts.map(([start, depth, asked]) => `token ${start.toLocaleString("en")} of ${sample.body.toLocaleString("en")}, depth ${formatPercent(depth)} (planned ${formatPercent(asked)})`);
  const line = make("div", "where");
  line.setAttribute("aria-hidden", "true");
  for (const [, depth] of sample.facts) {
    const tick = make("i");
    tick.style.left = 100 * depth + "%";
    line.append(tick);
  }
  node.append(make("span", "place", words.join("; ")), line);
  return node;
}

// --- expected against given ------------------------------------------------------------------

function highlighted(text, targets) {
  const node = make("p", "text");
  const spots = [];
  const low = text.toLowerCase();
  for (const target of targets) {
    const at = low.indexOf(target.toLowerCase());
    if (at >= 0) spots.push([at, at + target.length]);
  }
  spots.sort((a, b) => a[0] - b[0]);
  let from = 0;
  for (const [start, end] of spots) {
    if (start < from) continue;
    node.append(text.slice(from, start), make("mark", "", text.slice(start, end)));
    from = end;
  }
  node.append(text.slice(from));
  return node;
}

// Targets found in the answer are highlighted. A short answer without the target is compared with it letter by letter.
function compared(targets, given) {
  const found = targets.some((t) => given.toLowerCase().includes(t.toLowerCase()));
  const target = targets[0] ?? "", answer = given.trim();
  if (found || targets.length !== 1 || !answer || target.length > 120 || answer.length > 240) {
    return [textBlock(targets.join("\n")), given === "" ? textBlock("") : highlighted(given, targets)];
  }
  const common = commonLetters(target, answer);
  return [markedLetters(target, common[0], "ins"), markedLetters(answer, common[1], "del")];
}

function commonLetters(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const inA = new Set(), inB = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { inA.add(i++); inB.add(j++); }
    else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return [inA, inB];
}

function markedLetters(text, common, tag) {
  const node = make("p", "text");
  for (let from = 0; from < text.length;) {
    let to = from + 1;
    while (to < text.length && common.has(to) === common.has(from)) to++;
    node.append(common.has(from) ? text.slice(from, to) : make(tag, "", text.slice(from, to)));
    from = to;
  }
  return node;
}
