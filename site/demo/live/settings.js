// The controls of the page as values, and the controls that depend on the signal.
import { make } from "../shell.js";
import { Picks } from "./picks.js";
import { NOISE, RHYTHMS } from "./synthetic.js";

const byId = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

export class Settings extends Picks {
  constructor() {
    super();
    this.amplitudes = {};
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
      ...this.span(fs),
    };
  }

  // Samples that so many segments of the estimate take, half overlapping.
  samples() {
    const nperseg = Number(byId("nperseg").value);
    return nperseg + (Number(byId("segments").value) - 1) * (nperseg / 2);
  }

  // Frequencies in which peaks are searched and that are drawn, inside the signal's.
  span(fs) {
    const top = fs / 2;
    const limit = (id, otherwise) => {
      const value = byId(id).valueAsNumber;
      return Number.isFinite(value) ? Math.min(Math.max(0, value), top) : otherwise;
    };
    let [from, to] = [limit("from", 0), limit("to", top)];
    if (!(to > from)) [from, to] = [0, top];
    return { fmin: from, fmax: to };
  }

  // What is drawn, on which axes, and which row is marked.
  view(fs, { rows, peaks }) {
    const { fmin: from, fmax: to } = this.span(fs);
    return { from, to, log: chosen("axis") === "log", logHz: chosen("hz") === "log", shown: this.shown(rows, peaks) };
  }

  get bandSet() {
    return byId("band-set").value;
  }

  get bandAxis() {
    return chosen("band-axis");
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

  // Defaults that suit a signal of that rate and length: what drifts, and the offset of a
  // sound, are below the frequencies in which peaks are searched.
  suit({ fs, isEeg, longest = Infinity }) {
    const slow = isEeg || fs <= 2000;
    let nperseg = slow ? nearestPower(2 * fs) : 4096;
    let segments = slow && nperseg < 4096 ? 8 : 4;
    const needs = () => nperseg + (segments - 1) * (nperseg / 2);
    while (needs() > longest && segments > 2) segments /= 2;
    while (needs() > longest && nperseg > 64) nperseg /= 2;
    if (needs() > longest) segments = 1;
    byId("nperseg").value = nperseg;
    byId("segments").value = segments;
    const [from, to] = isEeg ? [1, 60] : slow ? [0, 60] : [20, 8000];
    byId("to").value = Math.min(to, fs / 2);
    byId("from").value = from < fs / 4 ? from : 0;
    byId("band-set").value = isEeg ? "eeg" : fs >= 8000 ? "octaves" : fs <= 10 ? "hrv" : "";
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
