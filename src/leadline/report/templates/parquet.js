// A Parquet file of flat, nullable columns: plain values, one gzipped page for each column of a row group, and the
// footer in Thrift's compact protocol (parquet-format, version 1 data pages). Other programs then read texts to the
// letter and numbers as numbers.

const PARQUET = { int: 2, double: 5, text: 6 };
const THRIFT = { i32: 5, i64: 6, binary: 8, list: 9, struct: 12 };
const GROUP = 5000;
const utf8 = new TextEncoder();

// --- Thrift's compact protocol: a struct is [[field, type, value], ...] in the order of its fields ---------------

function varint(out, number) {
  for (; number > 127; number = Math.floor(number / 128)) out.push((number % 128) + 128);
  out.push(number);
}

function thrift(out, type, value) {
  if (type === "i32" || type === "i64") varint(out, 2 * value);  // zigzag; nothing here is negative
  else if (type === "binary") { const bytes = utf8.encode(value); varint(out, bytes.length); out.push(...bytes); }
  else if (type === "struct") {
    let last = 0;
    for (const [field, kind, inner] of value) {
      out.push(((field - last) << 4) | THRIFT[kind]);
      last = field;
      thrift(out, kind, inner);
    }
    out.push(0);
  } else {
    const { of, items } = value;
    if (items.length < 15) out.push((items.length << 4) | THRIFT[of]);
    else { out.push(0xf0 | THRIFT[of]); varint(out, items.length); }
    for (const item of items) thrift(out, of, item);
  }
}

const packed = (struct) => { const out = []; thrift(out, "struct", struct); return Uint8Array.from(out); };
const list = (of, items) => ({ of, items });

// --- pages -------------------------------------------------------------------------------------

// Which rows have a value: one run of bits after the four bytes of its size.
function presence(values) {
  const bits = new Uint8Array(Math.ceil(values.length / 8));
  values.forEach((value, at) => { if (value !== null) bits[at >> 3] |= 1 << (at & 7); });
  const head = [];
  varint(head, 2 * bits.length + 1);
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, head.length + bits.length, true);
  return [size, Uint8Array.from(head), bits];
}

function plain(type, values) {
  const there = values.filter((value) => value !== null);
  if (type === "text") {
    const known = new Map();  // many texts are the same
    const texts = there.map((value) => {
      if (!known.has(value)) known.set(value, utf8.encode(value));
      return known.get(value);
    });
    const bytes = new Uint8Array(texts.reduce((size, text) => size + 4 + text.length, 0)), sizes = new DataView(bytes.buffer);
    let at = 0;
    for (const text of texts) {
      sizes.setUint32(at, text.length, true);
      bytes.set(text, at + 4);
      at += 4 + text.length;
    }
    return [bytes];
  }
  const view = new DataView(new ArrayBuffer(8 * there.length));
  there.forEach((value, at) => type === "int" ? view.setBigInt64(8 * at, BigInt(value), true) : view.setFloat64(8 * at, value, true));
  return [new Uint8Array(view.buffer)];
}

async function page(type, values) {
  const body = new Blob([...presence(values), ...plain(type, values)]);
  const squeezed = new Uint8Array(await new Response(body.stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
  const about = [[1, "i32", values.length], [2, "i32", 0], [3, "i32", 3], [4, "i32", 3]];
  const head = packed([[1, "i32", 0], [2, "i32", body.size], [3, "i32", squeezed.length], [5, "struct", about]]);
  return { parts: [head, squeezed], size: head.length + squeezed.length, full: head.length + body.size };
}

// --- the file ----------------------------------------------------------------------------------

// `columns` is [[name, "text" | "int" | "double"], ...]; `rows` gives objects; a missing value is null.
async function parquet(columns, rows) {
  const mark = utf8.encode("PAR1");
  const parts = [mark], groups = [];
  let at = mark.length, total = 0, waiting = [];
  async function close() {
    if (!waiting.length) return;
    const chunks = [];
    let bytes = 0;
    for (const [name, type] of columns) {
      const made = await page(type, waiting.map((row) => row[name] ?? null));
      const about = [
        [1, "i32", PARQUET[type]], [2, "list", list("i32", [0, 3])], [3, "list", list("binary", [name])], [4, "i32", 2],
        [5, "i64", waiting.length], [6, "i64", made.full], [7, "i64", made.size], [9, "i64", at],
      ];
      chunks.push([[2, "i64", at], [3, "struct", about]]);
      parts.push(...made.parts);
      at += made.size;
      bytes += made.full;
    }
    groups.push([[1, "list", list("struct", chunks)], [2, "i64", bytes], [3, "i64", waiting.length]]);
    total += waiting.length;
    waiting = [];
  }
  for await (const row of rows) {
    waiting.push(row);
    if (waiting.length === GROUP) await close();
  }
  await close();
  const leaf = ([name, type]) => [[1, "i32", PARQUET[type]], [3, "i32", 1], [4, "binary", name], ...(type === "text" ? [[6, "i32", 0]] : [])];
  const schema = [[[4, "binary", "samples"], [5, "i32", columns.length]], ...columns.map(leaf)];
  const footer = packed([
    [1, "i32", 1], [2, "list", list("struct", schema)], [3, "i64", total], [4, "list", list("struct", groups)],
    [6, "binary", "Leadline"],
  ]);
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, footer.length, true);
  return [...parts, footer, size, mark];
}
