// What channels are made of: a bar for each, cut into the shares of its bands.
import { lookOf, onTop } from "./colours.js";
import { heads } from "./heads.js";
import { make } from "./demo/make.js";
import { Tip } from "./tip.js";
import { choice, table } from "./tools.js";

const WORTH_WORDS = 0.06;

export async function bands(panel, colours) {
  const maps = panel.heads ? await heads(panel.heads, panel.bands, panel.rows, colours) : null;
  return new Bands(panel, maps);
}

class Bands {
  constructor(panel, maps) {
    Object.assign(this, { panel, maps });
    this.box = make("div", { class: "bars stage" });
    this.tip = new Tip(this.box);
    const sorted = [["", "Recording"], ...panel.bands.map((band, at) => [String(at), band.name])];
    const tools = make("div", { class: "tools" }, [choice("Sort by", sorted, "", (value) => this.fill(value))]);
    this.fill("");
    this.element = make("section", { class: "panel picture", "aria-label": "Power in bands" }, [
      make("p", { class: "facts" }, [panel.facts]), ...(maps ? [maps.element] : []), this.key(), tools, this.box, this.numbers(),
    ]);
  }

  key() {
    const items = this.panel.bands.map((band, at) => {
      const swatch = make("span", { class: "swatch block", "aria-hidden": "true" });
      swatch.style.setProperty("--ink", `var(--series-${(at % 8) + 1})`);
      return make("span", { class: "row" }, [swatch, `${band.name} ${band.edges[0]}–${band.edges[1]} Hz`]);
    });
    return make("div", { class: "row note" }, items);
  }

  fill(by) {
    const rows = [...this.panel.rows];
    if (by !== "") rows.sort((a, b) => (b.share[by] ?? -1) - (a.share[by] ?? -1));
    this.box.replaceChildren(...rows.map((row) => this.bar(row)), this.tip.box);
  }

  bar(row) {
    const whole = row.share.reduce((sum, share) => sum + (share ?? 0), 0) || 1;
    const parts = row.share.map((share, at) => {
      const part = (share ?? 0) / whole;
      const own = make("div", {}, [part >= WORTH_WORDS ? `${Math.round(100 * part)}%` : ""]);
      own.style.width = `${100 * part}%`;
      own.style.background = `var(--series-${(at % 8) + 1})`;
      own.style.color = onTop(lookOf(at).ink);
      own.addEventListener("pointermove", (event) => this.point(event, row, at));
      own.addEventListener("pointerleave", () => this.tip.hide());
      return own;
    });
    const name = row.state ? `${row.name} (${row.state})` : row.name;
    return make("div", { class: "bar" }, [make("span", { title: name }, [name]), make("div", { "aria-hidden": "true" }, parts)]);
  }

  point(event, row, at) {
    const place = this.box.getBoundingClientRect();
    const lines = [["share", percent(row.share[at]), true], ["power", powerOf(row, at), false]];
    if (row.peak[at] !== null) lines.push(["peak", `${row.peak[at]} Hz`, false]);
    this.tip.show(event.clientX - place.left, event.clientY - place.top, `${row.name}, ${this.panel.bands[at].name}`, lines);
  }

  numbers() {
    const lines = this.panel.rows.flatMap((row) => this.panel.bands.map((band, at) => [row.name, band.name, percent(row.share[at]), powerOf(row, at), row.peak[at] === null ? "–" : `${row.peak[at]} Hz`]));
    return table("Numbers", ["Channel", "Band", "Share", "Power", "Peak"], lines);
  }

  paint() {
    this.maps?.paint();
  }
}

function percent(share) {
  return share === null ? "none" : `${(100 * share).toFixed(1)} %`;
}

function powerOf(row, at) {
  const power = row.power[at];
  return power === null ? "none" : `${Number(power.toPrecision(4))} ${row.unit}`.trim();
}
