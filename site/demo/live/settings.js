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
