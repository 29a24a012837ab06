// The controls of the page as values, and the controls that depend on the signal.
import { make } from "../shell.js";
import { NOISE, RHYTHMS } from "./synthetic.js";

const MOST = 256; // channels that are listed at once, and that are picked at most

const byId = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

export class Settings {
  constructor() {
    this.amplitudes = {};
    this.channels = [];
    this.picked = [];
    byId("find").addEventListener("input", () => this.list());
  }

  // What the estimate is to be, for the signal's rate.
  estimate(fs) {
    return {
      fs,
      nperseg: Number(byId("nperseg").value),
      k: Number(byId("k").value),
      window: byId("window").value,
      mode: byId("mode").value,
      device: chosen("device"),
    };
  }

  // Samples that so many segments of the estimate take, half overlapping.
  samples() {
    const nperseg = Number(byId("nperseg").value);
    return nperseg + (Number(byId("segments").value) - 1) * (nperseg / 2);
  }

  // What is drawn: a span of frequencies inside the signal's, and which row is marked.
  view(fs, { rows, peaks }) {
    const top = fs / 2;
    const limit = (id, otherwise) => {
      const value = byId(id).valueAsNumber;
      return Number.isFinite(value) ? Math.min(Math.max(0, value), top) : otherwise;
    };
    let [from, to] = [limit("from", 0), limit("to", top)];
    if (!(to > from)) [from, to] = [0, top];
    return { from, to, log: chosen("axis") === "log", shown: this.shown(rows, peaks) };
  }

  // Which of these rows is the marked channel's; without one, the strongest peak's.
  shown(rows, peaks) {
    const wanted = byId("shown").value;
    const row = wanted === "" ? -1 : rows.indexOf(Number(wanted));
    if (row >= 0) return row;
    const heights = peaks.map((found) => found[0]?.power ?? -Infinity);
    return Math.max(0, heights.indexOf(Math.max(...heights)));
  }

  get source() {
    return chosen("source");
  }

  set source(kind) {
    document.querySelector(`input[name="source"][value="${kind}"]`).checked = true;
  }

  get pace() {
    return Number(byId("pace").value);
  }

  // Show the settings of one kind of source, hide the others'.
  showSource(kind) {
    for (const name of ["synthetic", "microphone", "recording"]) byId(`of-${name}`).hidden = name !== kind;
  }

  // Defaults that suit a signal of that rate.
  suit({ fs, bands }) {
    const slow = fs <= 2000;
    byId("nperseg").value = slow ? nearestPower(2 * fs) : 4096;
    byId("segments").value = slow ? 8 : 4;
    byId("from").value = 0;
    byId("to").value = bands || slow ? Math.min(60, fs / 2) : Math.min(8000, fs / 2);
  }

  // Which channels there are; the first so many are picked.
  offer(channels, most) {
    this.channels = channels;
    this.picked = channels.slice(0, Math.min(most, MOST)).map((_, at) => at);
    byId("find").value = "";
    byId("find-field").hidden = channels.length <= MOST;
    this.list();
    this.pickedChanged();
  }

  // A box for each channel whose name has what is looked for, as far as a page can hold.
  list() {
    const part = byId("find").value.trim().toLowerCase();
    const found = this.channels.flatMap((name, at) => (name.toLowerCase().includes(part) ? [at] : []));
    const listed = found.slice(0, MOST);
    byId("picks").replaceChildren(...listed.map((at) => this.pickBox(this.channels[at], at)));
    const more = found.length - listed.length;
    byId("picks-more").textContent = more ? `… and ${more.toLocaleString("en")} more: find them by a part of the name` : "";
  }

  pickBox(name, at) {
    const box = make("input", { type: "checkbox", value: String(at) });
    box.checked = this.picked.includes(at);
    box.addEventListener("change", () => this.readPicks());
    return make("label", { title: name }, [box, make("span", {}, [name])]);
  }

  pickAll(every) {
    for (const box of byId("picks").querySelectorAll("input")) box.checked = every;
    this.readPicks();
  }

  readPicks() {
    const boxes = [...byId("picks").querySelectorAll("input")];
    const listed = new Set(boxes.map((box) => Number(box.value)));
    const checked = boxes.filter((box) => box.checked).map((box) => Number(box.value));
    const others = this.picked.filter((at) => !listed.has(at));
    this.picked = [...checked, ...others].slice(0, MOST).sort((a, b) => a - b);
    for (const box of boxes) box.checked = this.picked.includes(Number(box.value));
    this.pickedChanged();
  }

  pickedChanged() {
    byId("picked-said").textContent = `Channels (${this.picked.length} of ${this.channels.length.toLocaleString("en")})`;
    const select = byId("shown");
    const before = select.value;
    const option = (at) => make("option", { value: String(at) }, [this.channels[at]]);
    select.replaceChildren(make("option", { value: "" }, ["strongest"]), ...this.picked.map(option));
    select.value = before;
    if (select.selectedIndex < 0) select.value = "";
    byId("picks").dispatchEvent(new Event("picked"));
  }

  // A slider for each rhythm and the noise.
  makeRhythms() {
    const noise = { name: "noise", sign: "", amplitude: NOISE, hz: null };
    for (const rhythm of [...RHYTHMS, noise]) byId("rhythms").append(this.slider(rhythm));
  }

  slider({ name, sign, hz, amplitude }) {
    const most = name === "noise" ? 20 : 40;
    const input = make("input", { type: "range", id: `rhythm-${name}`, min: "0", max: String(most), step: "0.5", value: String(amplitude) });
    const said = make("output", { for: input.id });
    const read = () => {
      this.amplitudes[name] = input.valueAsNumber;
      said.textContent = `${input.valueAsNumber} µV`;
      input.setAttribute("aria-valuetext", `${input.valueAsNumber} microvolts`);
    };
    input.addEventListener("input", read);
    read();
    const label = hz ? [`${name} `, make("i", {}, [`${sign} ${hz} Hz`])] : [name];
    return make("label", { class: "rhythm" }, [make("span", {}, label), input, said]);
  }
}

function nearestPower(value) {
  return Math.min(8192, Math.max(64, 2 ** Math.round(Math.log2(value))));
}
