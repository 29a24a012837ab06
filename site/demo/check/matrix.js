// The matrix: a row per op, a column per size of sample, a square per case. The check page
// and the report of `rlxweb smoke --html` show the same one.
//
//   const matrix = new Matrix(node, ops, onPick);   // ops as check.py's plan gives them
//   new Matrix(node, ops, onPick, columns)          // or other columns: [label, title, has(sample)]
//   matrix.cells      [{op, at, sample, button, result}] in the order they are run
//   matrix.show(cell) after its result changed, matrix.showAll() after many did;
//   matrix.clear() before a new run
//   matrix.filter("all" or a word), matrix.colour("result" | "error" | "time")
import { make } from "../make.js";
import { brief, milliseconds, percent, shapes } from "./words.js";

const SIZES = [
  ["empty", "an input without elements", ({ elements }) => elements === 0],
  ["1", "one element", ({ elements }) => elements === 1],
  ["2–99", "2 to 99 elements", ({ elements }) => elements > 1 && elements < 100],
  ["100–9,999", "100 to 9,999 elements", ({ elements }) => elements >= 100 && elements < 10_000],
  ["10,000 +", "10,000 elements and more", ({ elements }) => elements >= 10_000],
];

export class Matrix {
  constructor(node, ops, onPick, columns = SIZES) {
    this.columns = columns;
    this.cells = [];
    this.rows = ops.map((op) => this.#row(op));
    this.onPick = onPick;
    this.shown = "all";
    const heads = [
      make("th", { scope: "col" }, ["op"]),
      ...columns.map(([label, title]) => make("th", { scope: "col", title }, [label])),
      make("th", { scope: "col", class: "number", title: "the largest error divided by the allowed error" }, ["error / allowed"]),
      make("th", { scope: "col", class: "number" }, ["time"]),
    ];
    this.table = make("table", { class: "matrix", "data-colour": "result", "aria-describedby": "hint" }, [
      make("caption", { class: "hidden-text" }, ["Every op and its cases"]),
      make("thead", {}, [make("tr", {}, heads)]),
      make("tbody", {}, this.rows.map((row) => row.node)),
    ]);
    node.replaceChildren(this.table);
    this.table.addEventListener("click", (event) => this.#clicked(event));
    this.table.addEventListener("keydown", (event) => this.#key(event));
    this.#tabTo(this.cells[0]);
  }

  #row(op) {
    const cells = op.samples.map((sample, at) => {
      const button = make("button", { type: "button", class: "cell", tabindex: "-1" });
      const cell = { op, at, sample, button, result: null };
      button.cell = cell;
      return cell;
    });
    this.cells.push(...cells);
    const columns = this.columns.map(([label, , belongs]) =>
      make("td", { "data-label": label }, cells.filter((c) => belongs(c.sample)).map((c) => c.button)));
    const worst = make("td", { class: "number", "data-label": "error" });
    const time = make("td", { class: "number", "data-label": "time" });
    const name = make("th", { scope: "row", title: op.doc }, [op.name]);
    const node = make("tr", {}, [name, ...columns, worst, time]);
    const row = { node, cells, worst, time };
    for (const cell of cells) {
      cell.row = row;
      paint(cell);
    }
    return row;
  }

  clear() {
    for (const cell of this.cells) cell.result = null;
    this.showAll();
  }

  // After many results changed.
  showAll() {
    for (const cell of this.cells) paint(cell);
    for (const row of this.rows) sumUp(row);
    this.filter(this.shown);
  }

  running(cell) {
    cell.button.dataset.word = "running";
  }

  show(cell) {
    paint(cell);
    sumUp(cell.row);
    if (this.shown !== "all") this.#filterRow(cell.row);
  }

  colour(by) {
    this.table.dataset.colour = by;
  }

  // How many cases are shown.
  filter(shown) {
    this.shown = shown;
    let count = 0;
    for (const row of this.rows) count += this.#filterRow(row);
    const current = this.cells.find((cell) => cell.button.tabIndex === 0);
    if (!current || !visible(current)) this.#tabTo(this.cells.find(visible) ?? this.cells[0]);
    return count;
  }

  #filterRow(row) {
    let count = 0;
    for (const cell of row.cells) {
      cell.button.hidden = this.shown !== "all" && !wordsOf(cell.result).includes(this.shown);
      count += cell.button.hidden ? 0 : 1;
    }
    row.node.hidden = count === 0;
    return count;
  }

  pick(cell) {
    this.table.querySelector("[aria-pressed]")?.removeAttribute("aria-pressed");
    if (cell) cell.button.setAttribute("aria-pressed", "true");
  }

  // --- pointer and keys ---------------------------------------------------------------

  #clicked(event) {
    const cell = event.target.closest(".cell")?.cell;
    if (!cell) return;
    this.#tabTo(cell);
    this.onPick(cell, event.detail === 0); // 0: by the keyboard or a screen reader
  }

  #key(event) {
    const cell = event.target.cell;
    if (!cell || event.altKey || event.metaKey) return;
    const next = this.#towards(cell, event.key, event.ctrlKey);
    if (!next) return;
    event.preventDefault();
    this.#tabTo(next);
    next.button.focus();
  }

  #towards(cell, key, control) {
    const seen = this.cells.filter(visible);
    if (control && key === "Home") return seen[0];
    if (control && key === "End") return seen.at(-1);
    const here = cell.row.cells.filter(visible);
    if (key === "Home") return here[0];
    if (key === "End") return here.at(-1);
    if (key === "ArrowRight") return seen[seen.indexOf(cell) + 1];
    if (key === "ArrowLeft") return seen[seen.indexOf(cell) - 1];
    if (key === "ArrowDown") return this.#beside(cell, 1);
    if (key === "ArrowUp") return this.#beside(cell, -1);
    return null;
  }

  // The case nearest in place of the next row that has one.
  #beside(cell, step) {
    const rows = this.rows.filter((row) => !row.node.hidden);
    const row = rows[rows.indexOf(cell.row) + step];
    if (!row) return null;
    const x = cell.button.getBoundingClientRect().left;
    const off = (one) => Math.abs(one.button.getBoundingClientRect().left - x);
    return row.cells.filter(visible).reduce((best, one) => (off(one) < off(best) ? one : best));
  }

  #tabTo(cell) {
    for (const one of this.table.querySelectorAll('.cell[tabindex="0"]')) one.tabIndex = -1;
    if (cell) cell.button.tabIndex = 0;
  }
}

// A square that sums up several cases has the words of all.
function wordsOf(result) {
  return result?.words ?? [result?.word];
}

function visible(cell) {
  return !cell.button.hidden;
}

// --- what a square and a row say ------------------------------------------------------

function paint(cell) {
  const { button, result, sample } = cell;
  button.dataset.word = result?.word ?? "waiting";
  button.style.setProperty("--error", level(errorOf(result)));
  button.style.setProperty("--time", level(timeOf(result)));
  const label = `${cell.op.name} ${sample.name ?? shapes(sample)}: ${brief(result)}`;
  button.setAttribute("aria-label", label);
  button.title = label;
}

function level(part) {
  return Math.max(0, Math.min(1, part)).toFixed(3);
}

// 0 to 1: the share of the tolerance that was used up.
function errorOf(result) {
  if (result?.share === undefined) return 0;
  return typeof result.share === "number" ? result.share : 1;
}

// 0 to 1: from 0.1 ms to 10 s, by powers of ten.
function timeOf(result) {
  return result?.ms ? (Math.log10(result.ms) + 1) / 5 : 0;
}

function sumUp(row) {
  const results = row.cells.map((cell) => cell.result).filter(Boolean);
  const judged = results.filter((result) => result.share !== undefined);
  const shares = judged.map((result) => (typeof result.share === "number" ? result.share : Infinity));
  row.worst.textContent = shares.length ? percent(Math.max(...shares)) : "";
  row.time.textContent = judged.length ? milliseconds(judged.reduce((sum, one) => sum + one.ms, 0)) : "";
  row.node.dataset.wrong = results.some((result) => result.word === "wrong");
}

// --- what the squares mean --------------------------------------------------------------

const LEGENDS = {
  result: [["right", "right"], ["wrong", "wrong"], ["refused", "refused"], ["waiting", "not run yet"]],
  error: [["none", "no error"], ["some", "half of the tolerance"], ["full", "the whole tolerance"], ["wrong", "wrong"]],
  time: [["none", "0.1 ms"], ["some", "30 ms"], ["full", "10 s"], ["wrong", "wrong"]],
};

// `results` replaces the meanings where squares are coloured by result.
export function legendNodes(by, results = LEGENDS.result) {
  return (by === "result" ? results : LEGENDS[by]).map(([mark, text]) =>
    make("li", {}, [make("span", { class: "cell", "data-mark": mark, "data-by": by }), text]));
}
