// The table of peaks: a row for each, those of the marked channel first.
import { make } from "../make.js";
import { inHz } from "./chart.js";

const ROWS = 64; // more is not read by anyone

const byId = (id) => document.getElementById(id);

export function setText(id, text) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text;
}

export function peakTable({ names, peaks, step, unit }, shown) {
  setText("power-unit", `Power, ${unit ? `${unit}²/Hz` : "1/Hz"}`);
  const all = peaks.flatMap((found, row) =>
    found.map(({ hz, power }, rank) => ({ row, cells: [names[row], rank + 1, inHz(hz, step), short(power)] })));
  // The marked channel comes first, so that it is there however many there are.
  const ordered = [...all.filter(({ row }) => row === shown), ...all.filter(({ row }) => row !== shown)];
  const rows = ordered.slice(0, ROWS);
  const body = byId("peaks");
  while (body.rows.length > rows.length) body.deleteRow(-1);
  while (body.rows.length < rows.length) body.append(emptyRow());
  rows.forEach(({ row, cells }, at) => {
    const node = body.rows[at];
    node.toggleAttribute("data-shown", row === shown);
    cells.forEach((cell, column) => {
      const text = String(cell);
      if (node.cells[column].textContent !== text) node.cells[column].textContent = text;
    });
  });
  setText("peaks-more", all.length > rows.length ? `… and ${all.length - rows.length} more peaks of other channels` : "");
}

function emptyRow() {
  const number = () => make("td", { class: "number" });
  return make("tr", {}, [make("th", { scope: "row" }), number(), number(), number()]);
}

// Three digits that count, without an exponent where that stays readable.
function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
