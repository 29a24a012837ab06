// Boxes by which channels are picked, and which of them is marked.
import { make } from "../make.js";

const CLEARLY = 2; // times as strong as the marked one, where the strongest is marked
const MOST = 256; // channels that are listed at once, and that are picked at most

const byId = (id) => document.getElementById(id);

export class Picks {
  constructor() {
    this.channels = [];
    this.picked = [];
    this.units = [];
    this.marked = -1; // the channel that was the strongest
    byId("find").addEventListener("input", () => this.list());
    byId("all").addEventListener("click", () => this.pickAll(true));
    byId("none").addEventListener("click", () => this.pickAll(false));
  }

  // Which channels there are, in which units; the first so many are picked.
  offer(channels, most, units = []) {
    this.channels = channels;
    this.units = units;
    this.marked = -1;
    this.picked = channels.slice(0, Math.min(most, MOST)).map((_, at) => at);
    byId("find").value = "";
    byId("find-field").hidden = channels.length <= MOST;
    this.list();
    this.changed();
  }

  // Which of these rows is the marked channel's; without one, the strongest peak's.
  shown(rows, peaks) {
    const wanted = byId("shown").value;
    const row = wanted === "" ? -1 : rows.indexOf(Number(wanted));
    if (row >= 0) return row;
    const heights = peaks.map((found) => found[0]?.power ?? -Infinity);
    const best = Math.max(0, heights.indexOf(Math.max(...heights)));
    // Of two that are about as strong, the one that is marked already.
    const before = rows.indexOf(this.marked);
    const at = heights[before] > heights[best] / CLEARLY ? before : best;
    this.marked = rows[at];
    return at;
  }

  // A box for each channel whose name has what is looked for, as far as a page can hold.
  list() {
    const part = byId("find").value.trim().toLowerCase();
    const found = this.channels.flatMap((name, at) => (name.toLowerCase().includes(part) ? [at] : []));
    const listed = found.slice(0, MOST);
    byId("picks").replaceChildren(...listed.map((at) => this.box(this.channels[at], at)));
    const more = found.length - listed.length;
    byId("picks-more").textContent = more ? `… and ${more.toLocaleString("en")} more: enter part of a name to find them` : "";
  }

  box(name, at) {
    const box = make("input", { type: "checkbox", value: String(at) });
    box.checked = this.picked.includes(at);
    box.addEventListener("change", () => this.read());
    const unit = this.units[at] ?? "";
    // Beside each name where they differ; one for all is told once.
    const beside = unit && new Set(this.units).size > 1 ? [make("i", {}, [unit])] : [];
    return make("label", { title: unit ? `${name}, ${unit}` : name }, [box, make("span", {}, [name]), ...beside]);
  }

  pickAll(every) {
    for (const box of byId("picks").querySelectorAll("input")) box.checked = every;
    this.read();
  }

  read() {
    const boxes = [...byId("picks").querySelectorAll("input")];
    const listed = new Set(boxes.map((box) => Number(box.value)));
    const checked = boxes.filter((box) => box.checked).map((box) => Number(box.value));
    const others = this.picked.filter((at) => !listed.has(at));
    this.picked = [...checked, ...others].slice(0, MOST).sort((a, b) => a - b);
    for (const box of boxes) box.checked = this.picked.includes(Number(box.value));
    this.changed();
  }

  changed() {
    byId("picked-said").textContent = `Channels (${this.picked.length} of ${this.channels.length.toLocaleString("en")})`;
    const select = byId("shown");
    const before = select.value;
    const option = (at) => make("option", { value: String(at) }, [this.channels[at]]);
    select.replaceChildren(make("option", { value: "" }, ["strongest"]), ...this.picked.map(option));
    select.value = before;
    if (select.selectedIndex < 0) select.value = "";
    byId("picks").dispatchEvent(new Event("picked"));
  }
}
