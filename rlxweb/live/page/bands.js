// What the channels are made of: a bar of shares for each.
import { make } from "./demo/make.js";

const ROWS = 64;
const SERIES = 8;

const byId = (id) => document.getElementById(id);

export function bandLegend(bands) {
  byId("bands-panel").hidden = bands.length === 0;
  byId("bands-legend").replaceChildren(...bands.map(({ name, from, to }, at) =>
    make("span", {}, [make("i", { "data-series": series(at) }), `${name} ${plain(from)}–${plain(to)} Hz`])));
}

// `shares` has a row of numbers from 0 to 1 for each channel.
export function bandBars(bands, names, shares) {
  const body = byId("bands");
  const count = Math.min(ROWS, names.length);
  while (body.rows.length > count) body.deleteRow(-1);
  while (body.rows.length < count) body.append(emptyRow(bands));
  for (let row = 0; row < count; row++) {
    const [name, cell] = body.rows[row].cells;
    if (name.textContent !== names[row]) {
      name.textContent = names[row];
      name.title = names[row];
    }
    const bar = cell.firstChild;
    const words = bands.map((band, at) => `${band.name} ${Math.round(100 * shares[row][at])} %`).join(", ");
    bar.setAttribute("aria-label", words);
    bar.title = words;
    shares[row].forEach((share, at) => {
      bar.children[at].style.width = `${(100 * share).toFixed(1)}%`;
    });
  }
}

function emptyRow(bands) {
  const parts = bands.map((_, at) => make("i", { "data-series": series(at) }));
  return make("tr", {}, [make("th", { scope: "row" }), make("td", {}, [make("div", { class: "share", role: "img" }, parts)])]);
}

function series(at) {
  return String((at % SERIES) + 1);
}

function plain(hz) {
  return String(Number(hz.toPrecision(4)));
}
