// The rows of a report as the ops and samples of the matrix.
import { count } from "./demo/check/words.js";
import { printable, printableLines } from "./demo/printable.js";

const WORST_FIRST = ["wrong", "unexpected pass", "known", "not run", "right", "refused"];

export function engineName(engine) {
  return printable(engine.key);
}

export function wordOf(words) {
  return WORST_FIRST.find((word) => words.includes(word)) ?? "not run";
}

// One engine: an op with its cases, by name.
export function samplesOf(engine) {
  return [...byOp(engine)].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, rows]) => ({
    name: printable(name),
    doc: "",
    samples: rows.map(sampleOf),
  }));
}

function byOp({ rows = [] }) {
  return grouped(rows, (row) => row.op || row.family);
}

// A Map from key to what has it, in the order they come.
export function grouped(list, keyOf) {
  const groups = new Map();
  for (const one of list) {
    const key = keyOf(one);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(one);
  }
  return groups;
}

function sampleOf(row) {
  return {
    inputs: row.inputs ?? [],
    attrs: Object.fromEntries(Object.entries(row.attrs ?? {}).map(([name, value]) => [printable(name), printable(String(value))])),
    note: printableLines(row.note ?? ""),
    elements: elementsOf(row),
    facts: factsOf(row),
    result: resultOf(row),
  };
}

function elementsOf({ inputs = [], elements }) {
  const counts = inputs.map(([shape]) => shape.reduce((product, n) => product * n, 1));
  if (!counts.length) return elements ?? 1;
  return counts.includes(0) ? 0 : Math.max(...counts);
}

function factsOf(row) {
  const rate = [
    row.gb_s && `${row.gb_s.toPrecision(3)} GB/s`,
    row.gflop_s && `${row.gflop_s.toPrecision(3)} GFLOP/s`,
  ];
  return [
    ["Case", printable(row.case)],
    ["Family", printable(row.family ?? "")],
    ["Variant", printable(row.variant ?? "")],
    ["Throughput", rate.filter(Boolean).join(", ")],
    ["Known", row.known ? printableLines([row.known.reason, row.known.evidence].join("\n")) : ""],
  ];
}

// As the matrix and the details want it: what has no value is left out.
function resultOf(row) {
  const given = Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null));
  return {
    word: row.word,
    why: printableLines(row.why ?? ""),
    raised: printable(row.raised ?? ""),
    share: given.share,
    max_error: given.max_error,
    allowed: given.allowed,
    wrong: given.wrong,
    elements: given.elements,
    first: given.first,
    ms: given.cold_ms ?? given.warm_ms ?? 0,
    run_ms: given.warm_ms ?? given.cold_ms ?? 0,
    run_is: "when warm",
  };
}

// All engines: a row an op, a column an engine, and the worst word of the cases.
export function overview(engines) {
  const tried = engines.filter(({ rows }) => rows?.length);
  const per = tried.map((engine) => [engine, byOp(engine)]);
  const names = [...new Set(per.flatMap(([, ops]) => [...ops.keys()]))].sort();
  const ops = names.map((name) => ({
    name: printable(name),
    doc: "",
    samples: per.filter(([, ops]) => ops.has(name)).map(([engine, ops]) => summary(engine, ops.get(name))),
  }));
  const columns = tried.map((engine) => [engineName(engine), printable(engine.adapter ?? ""), (sample) => sample.engine === engine]);
  return { ops, columns };
}

function summary(engine, rows) {
  const word = wordOf(rows.map((row) => row.word));
  const tally = [...grouped(rows, (row) => row.word)];
  const shares = rows.map((row) => row.share).filter((share) => share !== null && share !== undefined);
  const worst = Math.max(0, ...shares.map((share) => (typeof share === "number" ? share : Infinity)));
  return {
    engine,
    name: `on ${engineName(engine)}`,
    inputs: [],
    attrs: {},
    result: {
      word,
      words: tally.map(([name]) => name),
      said: tally.map(([name, those]) => `${count(those.length)} ${name}`).join(", "),
      share: shares.length ? worst : undefined,
      ms: rows.reduce((sum, row) => sum + (row.warm_ms ?? 0), 0),
    },
  };
}
