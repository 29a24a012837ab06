// What the channels are made of: a bar of bands for each, and one channel's in numbers.
import { make } from "../make.js";
import { plain } from "./axis.js";

const ROWS = 64;
const SERIES = 8; // colours of shared.css
const SIGNS = { delta: "δ", theta: "θ", alpha: "α", beta: "β", gamma: "γ" };

const byId = (id) => document.getElementById(id);

// The letter that stands for a band where its name has no room.
export function signOf(name) {
  return SIGNS[name] ?? "";
}

export function bandLegend(bands) {
  byId("bands-panel").hidden = bands.length === 0;
  byId("bands-legend").replaceChildren(...bands.map((band, at) => make("span", {}, [swatch(at), `${band.name} ${edges(band)} Hz`])));
}

// A bar for each channel. `lengths` has a row of numbers from 0 to 1 for each, `words` what
// is said of them, band by band: shares where it is left out. `shown` is the row that is marked.
export function bandBars(bands, names, lengths, words = sharesIn(lengths), shown = -1) {
  const body = byId("bands");
  const count = Math.min(ROWS, names.length);
  if (body.dataset.many !== String(bands.length)) body.replaceChildren();
  body.dataset.many = String(bands.length);
  while (body.rows.length > count) body.deleteRow(-1);
  while (body.rows.length < count) body.append(emptyRow(bands));
  for (let row = 0; row < count; row++) {
    const node = body.rows[row];
    node.toggleAttribute("data-shown", row === shown);
    const [name, cell] = node.cells;
    if (name.textContent !== names[row]) {
      name.textContent = names[row];
      name.title = names[row];
    }
    const bar = cell.firstChild;
    const said = bands.map((band, at) => `${band.name} ${words(row, at)}`);
    bar.setAttribute("aria-label", said.join("; "));
    bands.forEach((_, at) => {
      const part = bar.children[at];
      part.style.width = `${(100 * lengths[row][at] || 0).toFixed(1)}%`;
      part.title = said[at];
    });
  }
}

// One channel in numbers: [{power, share, peak}] for the bands, NaN where there is none.
export function bandTable(bands, values) {
  const body = byId("band-values");
  while (body.rows.length > bands.length) body.deleteRow(-1);
  while (body.rows.length < bands.length) body.append(emptyValues());
  bands.forEach((band, at) => {
    const row = body.rows[at];
    const { power, share, peak } = values[at];
    const cells = [band.name, edges(band), short(power), percent(share), Number.isFinite(peak) ? peak.toFixed(peak < 100 ? 2 : 0) : "–"];
    row.cells[0].firstChild.dataset.series = series(at);
    cells.forEach((text, column) => {
      const node = column ? row.cells[column] : row.cells[0].lastChild;
      if (node.textContent !== text) node.textContent = text;
    });
  });
}

export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %` : "–";
}

export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function sharesIn(lengths) {
  return (row, at) => `${Math.round(100 * lengths[row][at])} %`;
}

function emptyRow(bands) {
  const parts = bands.map((_, at) => make("i", { "data-series": series(at) }));
  return make("tr", {}, [make("th", { scope: "row" }), make("td", {}, [make("div", { class: "share", role: "img" }, parts)])]);
}

function emptyValues() {
  const numbers = Array.from({ length: 4 }, () => make("td", { class: "number" }));
  return make("tr", {}, [make("th", { scope: "row" }, [swatch(0), make("span")]), ...numbers]);
}

function swatch(at) {
  return make("i", { class: "swatch", "data-series": series(at) });
}

function series(at) {
  return String((at % SERIES) + 1);
}

function edges({ from, to }) {
  return `${plain(Number(from.toPrecision(4)))}–${plain(Number(to.toPrecision(4)))}`;
}
