// The side of the page: one case in numbers, and what the engine is.
import { make } from "../make.js";
import { count, milliseconds, number, percent, size } from "./words.js";

const KINDS = { right: "good", wrong: "bad", refused: "warn", known: "warn", "unexpected pass": "warn" };
const REASONS = {
  refused: "Why it was refused",
  known: "Known to be wrong",
  "unexpected pass": "Right, although known to fail",
  "not run": "Why it was not run",
};

// {title, body}: a case as nodes.
export function caseNodes(cell) {
  const { op, sample, result } = cell;
  const rows = [
    ["Inputs", sample.inputs.map(([shape, dtype], k) => `x${k}: ${size(shape)} ${dtype}`).join("\n")],
    ["Attributes", Object.entries(sample.attrs).map(([name, value]) => `${name} = ${value}`).join("\n")],
    ["Note", sample.note],
    ["Tolerance", op.tolerance],
    ...(sample.facts ?? []),
    ...resultRows(result),
  ];
  const word = result?.word ?? "not run yet";
  return {
    title: [`${op.name} `, make("span", { class: `badge ${KINDS[word] ?? ""}` }, [word])],
    body: [...(op.doc ? [make("p", { class: "note" }, [op.doc])] : []), pairs(rows), ...reason(result)],
  };
}

function resultRows(result) {
  if (!result) return [];
  const rows = [];
  if (result.share !== undefined) {
    rows.push(["Largest error", number(result.max_error)]);
    rows.push(["Nearest to the limit", nearest(result)]);
    rows.push(["Elements", count(result.elements)]);
  }
  if (result.wrong) rows.push(["Wrong elements", count(result.wrong)]);
  if (result.first) {
    const { at, got, want } = result.first;
    rows.push(["First wrong", `at [${at.join(", ")}]\ngot ${number(got)}\nwanted ${number(want)}`]);
  }
  if (result.ms !== undefined && result.share !== undefined) {
    rows.push(["Time", `${milliseconds(result.ms)}, ${milliseconds(result.run_ms)} ${result.run_is ?? "of it running"}`]);
  }
  if (result.spoiled) rows.push(["On purpose", "one element was changed by “Break it”"]);
  return rows;
}

function nearest({ share, allowed }) {
  if (share === 0) return "no error";
  if (typeof share !== "number") return "an error, but the result must be exact";
  return `${percent(share)} of ${number(allowed)} allowed`;
}

function reason(result) {
  if (!result?.why) return [];
  const label = REASONS[result.word] ?? "Why it is wrong";
  return [make("h3", {}, [label]), make("p", { class: "why" }, [result.why])];
}

export function factsNodes(row) {
  const { facts } = row;
  const limits = Object.entries(facts.limits ?? {}).map(([name, value]) => [name.replaceAll("_", " "), count(value)]);
  const nodes = [
    pairs([
      ["Name", facts.adapter ?? row.engine],
      ["Vendor", facts.vendor],
      ["Kind", facts.limits && (facts.software ? "software, on the CPU" : "hardware")],
      ["Types", (facts.dtypes ?? []).join(", ")],
      ["Features", (facts.features ?? []).join(", ")],
    ]),
  ];
  if (limits.length) {
    nodes.push(make("details", {}, [make("summary", {}, ["Limits"]), pairs(limits, "pairs limits")]));
  }
  return nodes;
}

// Name and value, two columns; what has no value is left out.
export function pairs(rows, kind = "pairs") {
  const list = make("dl", { class: kind });
  for (const [name, value] of rows) {
    if (value) list.append(make("dt", {}, [name]), make("dd", {}, [value]));
  }
  return list;
}

