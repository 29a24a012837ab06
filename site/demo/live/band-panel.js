// The panel of bands: what the channels are made of, asked of Python now and then.
import { bandBars, bandTable, percent, short, signOf } from "./bands.js";

const EVERY_MS = 300; // bars that change with every frame cannot be read

const byId = (id) => document.getElementById(id);

export class BandPanel {
  constructor() {
    this.asked = -Infinity;
    this.awake = false; // the first picture waits for no bands
    this.clear();
  }

  clear() {
    this.bands = null; // of the newest answer: [{name, sign, from, to}], or null
    this.values = null;
    this.asked = -Infinity;
    byId("bands").replaceChildren();
    byId("band-values").replaceChildren();
    byId("band-channel").textContent = "\u00a0";
  }

  // The set that the next frame is to be asked for; "" between times.
  due(set) {
    byId("bands-panel").classList.toggle("off", !set);
    if (!set || !this.awake) return "";
    const now = performance.now();
    if (now - this.asked < EVERY_MS) return "";
    this.asked = now;
    return set;
  }

  // An answer: {bands} or {why} there are none; power, shares and peaks (C, K) each.
  take({ bands, why }, [power, shares, peaks], { rows, names, unit }) {
    byId("bands-why").hidden = !why;
    byId("bands-there").hidden = Boolean(why);
    byId("bands-why").textContent = why ? `These bands cannot be computed: ${why}.` : "";
    this.values = why ? null : { power, shares, peaks, rows, names, unit };
    this.bands = why ? null : bands.map((band) => ({ ...band, sign: signOf(band.name) }));
    this.fresh = true;
  }

  // The newest answer, with row `shown` of `rows` in numbers; bars are shares, or power
  // beside the strongest channel's. One of other channels is asked for anew.
  show({ rows }, shown, axis) {
    if (!this.values) return;
    if (String(rows) !== String(this.values.rows)) return this.clear();
    const state = `${shown} ${axis}`;
    if (!this.fresh && state === this.state) return;
    Object.assign(this, { fresh: false, state });
    const { bands } = this;
    const { power, shares, peaks, names, unit } = this.values;
    const many = bands.length;
    const square = unit ? `${unit}²` : "";
    const rowOf = (all, row) => all.subarray(row * many, (row + 1) * many);
    const sum = (row) => rowOf(power, row).reduce((total, value) => total + value, 0);
    const most = Math.max(...names.map((_, row) => sum(row) || 0));
    const lengths = names.map((_, row) => Array.from(
      axis === "share" ? rowOf(shares, row) : rowOf(power, row),
      (value) => (Number.isFinite(value) ? value / (axis === "share" ? 1 : most || 1) : 0)));
    const words = (row, at) => {
      const peak = peaks[row * many + at];
      const where = Number.isFinite(peak) ? `, peak at ${peak.toFixed(peak < 100 ? 1 : 0)} Hz` : "";
      return `${percent(shares[row * many + at])}, ${short(power[row * many + at])} ${square}${where}`;
    };
    bandBars(bands, names, lengths, words, shown);
    bandTable(bands, bands.map((_, at) => ({
      power: power[shown * many + at], share: shares[shown * many + at], peak: peaks[shown * many + at],
    })));
    setText("band-channel", names[shown]);
    setText("band-unit", square ? `Power, ${square}` : "Power");
  }
}

function setText(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}
