// A report of `rlxweb smoke`, drawn: the engines, then the matrix of the check page, for
// one engine or with a column for each. What is drawn is the document in this page; what a
// driver wrote is shown as text, with nothing in it that hides.
import { make } from "./demo/make.js";
import { pairs } from "./demo/check/details.js";
import { download } from "./demo/check/download.js";
import { legendNodes, Matrix } from "./demo/check/matrix.js";
import { Sheet } from "./demo/check/sheet.js";
import { count } from "./demo/check/words.js";
import { printable, printableLines } from "./demo/printable.js";
import { engineName, grouped, overview, samplesOf, wordOf } from "./rows.js";

const WORDS = ["wrong", "refused", "known", "unexpected pass", "not run"];
const MEANINGS = [["right", "right"], ...WORDS.map((word) => [word, word])];
const COLOURS = ["result", "error", "time"];
const MOST_LINES = 200;

const at = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;
const all = JSON.parse(at("document").textContent);
const sheet = new Sheet((cell) => matrix.pick(cell));
let matrix = null;

showAbout();
showEngines();
showComparison();
showChoices();
show("all");

// --- the run and its engines --------------------------------------------------------------

function showAbout() {
  const { machine = {}, versions = {} } = all;
  at("about").textContent = printable(
    `${all.level} run${all.pattern ? ` of “${all.pattern}”` : ""}, ${all.began}, ${count(Math.round(all.seconds))} s; every result is compared with NumPy in float64.`,
    400,
  );
  const rows = [...Object.entries(machine), ...Object.entries(versions)];
  const facts = rows.map(([name, value]) => [name.replaceAll("_", " "), value && printableLines(text(value))]);
  at("facts").replaceChildren(pairs([...facts, ["required", (all.required ?? []).join(", ")]]));
  at("download").addEventListener("click", () => download(all, "rlxweb-smoke.json"));
}

function text(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function counted(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

function total(word) {
  return all.engines.reduce((sum, { counts = {} }) => sum + (counts[word] ?? 0), 0);
}

function isRequired(device) {
  return (all.required ?? []).some((name) => name.split(":")[0] === device);
}

function showEngines() {
  const heads = ["engine", "adapter", "result", ...["right", ...WORDS.slice(0, 4)], "time"];
  at("engine-heads").append(...heads.map((head, k) => make("th", { scope: "col", ...(k > 2 ? { class: "number" } : {}) }, [head])));
  at("engines").append(...all.engines.map(engineRow));
  const bad = all.engines.filter(({ word, device }) => word !== "right" && (word !== "missing" || isRequired(device)));
  const ran = all.engines.filter(({ word }) => word !== "missing").length;
  const wrong = total("wrong");
  at("sentence").textContent = bad.length
    ? `${count(bad.length)} of ${count(ran)} engines not right: ${bad.map(({ key, word }) => `${printable(key)} ${word}`).join(", ")}`
    : ran ? `${counted(total("right"), "case")} right on ${counted(ran, "engine")}` : "No engine was tested";
  at("sentence").dataset.state = all.exit_code === 0 ? "right" : "wrong";
  const parts = [
    wrong && `${count(wrong)} wrong`,
    total("known") && `${count(total("known"))} known to be wrong`,
    total("unexpected pass") && `${count(total("unexpected pass"))} right although known to be wrong`,
    total("refused") && `${count(total("refused"))} refused, because an engine does not support a dtype or an op`,
    total("not run") && `${count(total("not run"))} not run`,
    `exit code ${all.exit_code}`,
  ];
  at("aside").textContent = `${parts.filter(Boolean).join(", ")}.`;
}

function engineRow(engine) {
  const { counts = {}, word } = engine;
  const button = make("button", { type: "button" }, [engineName(engine)]);
  button.addEventListener("click", () => show(engine.key));
  const kind = word === "right" ? "good" : word === "missing" ? "" : "bad";
  const why = engine.why ? [make("span", { class: "why" }, [` ${printableLines(engine.why)}`])] : [];
  const driver = [engine.backend, engine.driver, engine.compiler].filter(Boolean).join(", ");
  return make("tr", { "data-key": engine.key }, [
    make("th", { scope: "row" }, engine.rows?.length ? [button] : [engineName(engine)]),
    make("td", {}, [printable(engine.adapter ?? ""), make("span", { class: "driver" }, [printable(driver)])]),
    make("td", { class: "why" }, [make("span", { class: `badge ${kind}` }, [word]), ...why]),
    ...["right", ...WORDS.slice(0, 4)].map((name) => make("td", { class: "number" }, [counts[name] ? count(counts[name]) : ""])),
    make("td", { class: "number" }, [engine.seconds ? `${engine.seconds.toFixed(1)} s` : ""]),
  ]);
}

// --- what changed -----------------------------------------------------------------------

function showComparison() {
  const { comparison } = all;
  if (!comparison) return;
  at("comparison").hidden = false;
  const lines = comparison.lines ?? [];
  const nodes = [...grouped(lines, ({ what }) => what)].flatMap(([what, those]) => [
    make("h3", {}, [`${what} (${count(those.length)})`]),
    make("ul", { class: "lines" }, those.slice(0, MOST_LINES).map(({ engine, subject, said }) =>
      make("li", {}, [printableLines([engine, subject, said].filter(Boolean).join(": "))]))),
  ]);
  at("comparison-body").replaceChildren(...(nodes.length ? nodes : [make("p", { class: "note" }, ["Nothing changed."])]));
}

// --- the matrix ---------------------------------------------------------------------------

function showChoices() {
  const tried = all.engines.filter(({ rows }) => rows?.length);
  at("engine").append(
    make("option", { value: "all" }, ["All engines"]),
    ...tried.map((engine) => make("option", { value: engine.key }, [engineName(engine)])),
  );
  at("engine").addEventListener("change", () => show(at("engine").value));
  const words = ["wrong", ...WORDS.slice(1).filter(total)];
  choice("filter", ["all", ...words], (word) => (word === "all" ? "All" : `${capital(word)} (${count(total(word))})`));
  choice("colour", COLOURS, capital);
  at("filter").addEventListener("change", showFiltered);
  at("colour").addEventListener("change", () => {
    matrix.colour(chosen("colour"));
    showLegend();
  });
  showLegend();
}

function choice(name, values, label) {
  at(name).querySelector("div").append(...values.map((value, k) => make("label", {}, [
    make("input", { type: "radio", name, value, ...(k ? {} : { checked: "" }) }),
    make("span", {}, [label(value)]),
  ])));
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

function showLegend() {
  const here = MEANINGS.filter(([word]) => word === "right" || total(word));
  at("legend").replaceChildren(...legendNodes(chosen("colour"), here));
}

function show(key) {
  sheet.close();
  const engine = all.engines.find((one) => one.key === key);
  at("engine").value = key;
  at("matrix").dataset.of = engine ? "one" : "all";
  at("matrix-title").textContent = engine ? "Op × size" : "Op × engine";
  at("hint").textContent = engine
    ? "Each square is a case, in the column for the size of its largest input. Click a square for its numbers, or move with the arrow keys and press Enter."
    : "Each square shows the worst result of an op on an engine. Click a square to see the cases of the op.";
  for (const row of at("engines").children) row.toggleAttribute("aria-current", row.dataset.key === key);
  if (engine) fill(samplesOf(engine), (cell, byKeyboard) => sheet.open(cell, byKeyboard));
  else {
    const { ops, columns } = overview(all.engines);
    fill(ops, (cell) => openOp(cell.sample.engine, cell.op.name), columns);
  }
}

function fill(ops, onPick, columns) {
  at("matrix").replaceChildren();
  matrix = ops.length ? new Matrix(at("matrix"), ops, onPick, columns) : null;
  if (!matrix) return;
  for (const cell of matrix.cells) cell.result = cell.sample.result;
  matrix.showAll();
  matrix.colour(chosen("colour"));
  showFiltered();
}

// The op on one engine, its worst case picked.
function openOp(engine, op) {
  show(engine.key);
  const cells = matrix.cells.filter((cell) => cell.op.name === op && !cell.button.hidden);
  const worst = wordOf(cells.map((cell) => cell.result.word));
  const cell = cells.find(({ result }) => result.word === worst);
  if (cell) sheet.open(cell, true);
}

function showFiltered() {
  const word = chosen("filter");
  const none = matrix?.filter(word) === 0;
  at("nothing").hidden = !none;
  at("nothing").textContent = none ? `No case ${word === "unexpected pass" ? "passes unexpectedly" : `is ${word}`}.` : "";
}
