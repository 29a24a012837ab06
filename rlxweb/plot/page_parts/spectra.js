// Spectra as lines or as colours, with their peaks.
import { hzTicks, paints, plain, sayOn, sharpen, stroke, ticks } from "./demo/live/axis.js";
import { lookOf, scaleOf } from "./colours.js";
import { make } from "./demo/make.js";
import { Tip } from "./tip.js";
import { choice, legend, table, zoomButtons } from "./tools.js";
import { firstAtOrAbove, trace } from "./trace.js";
import { colourBar, shortened } from "./writing.js";
import { unpacked } from "./unpack.js";
import { steer, View } from "./zoom.js";

const FEW = 10; // rows that are told apart as lines
const NAMED = 6; // peaks that have words
const NONE = -32768;

export async function spectra(panel, colours, log) {
  const packed = await unpacked(panel.levels, Int16Array);
  return new Spectra(panel, packed, scaleOf(colours), log);
}

class Spectra {
  constructor(panel, packed, colours, log) {
    Object.assign(this, { panel, colours, log });
    this.rows = panel.rows.map((row, at) => ({ ...row, ...pointsOf(panel, packed, row, at) }));
    this.shown = new Set(this.rows.flatMap((row, at) => (row.state ? [] : [at])));
    this.way = panel.lines === "panels" ? "offset" : panel.lines ?? (this.rows.length > FEW ? "heatmap" : "overlaid");
    this.near = null; // the row that is meant
    this.top = panel.first + (panel.bins - 1) * panel.step;
    this.view = new View(...this.home());
    this.element = this.parts();
    this.view.listeners.push(() => this.paint());
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  // The ends of the axes, and which are logarithmic.
  home() {
    const { first, step, limits } = this.panel;
    const half = this.way === "heatmap" ? step / 2 : 0;
    const low = this.log ? Math.max(first, step) * (half ? 0.75 : 1) : first - half;
    const high = Math.max(this.top + half, low + step / 2);
    const rows = this.order();
    this.apart = this.way === "offset" ? apartOf(this.rows, rows, limits) : 0;
    const y = this.way === "heatmap" ? [-rows.length, 0] : [limits[0], limits[1] + this.apart * Math.max(0, rows.length - 1)];
    return [{ x: [low, high], y }, { x: this.log, y: false }];
  }

  // Rows that are drawn, the first on top.
  order() {
    return [...this.shown].sort((a, b) => a - b);
  }

  parts() {
    const { panel } = this;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart" });
    this.canvas.setAttribute("aria-label", `Spectra of ${this.rows.length} channels, ${panel.label} over frequency. Keys: plus, minus, arrows, 0. The table below lists the ${panel.noun}s.`);
    this.pen = this.canvas.getContext("2d");
    const stage = make("div", { class: "stage" }, [this.canvas]);
    this.tip = new Tip(stage);
    steer(this.canvas, this.view, () => this.box());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    const renew = () => this.view.renew(...this.home());
    const tools = make("div", { class: "tools" }, [
      choice("Frequency", [["linear", "Linear"], ["log", "Log"]], this.log ? "log" : "linear", (value) => {
        this.log = value === "log";
        renew();
      }),
      choice("Lines", [["overlaid", "Overlaid"], ["offset", "Offset"], ["heatmap", "Heatmap"]], this.way, (value) => {
        this.way = value;
        renew();
      }),
      zoomButtons(this.view),
    ]);
    const over = (row) => {
      this.near = row;
      this.paint();
    };
    const picks = legend(this.rows, this.shown, () => (this.way === "overlaid" ? this.paint() : renew()), { over });
    return make("section", { class: "panel picture", "aria-label": panel.facts || "Spectra" }, [
      make("p", { class: "facts" }, [panel.facts]), tools, stage, ...picks, ...this.peaksTable(),
    ]);
  }

  peaksTable() {
    const { noun, digits } = this.panel;
    const lines = this.rows.flatMap(({ name, peaks }) => peaks.map(([hz, level], at) => [name, String(at + 1), `${hz.toFixed(digits)} Hz`, this.said(level)]));
    const title = noun === "bin" ? "Strongest bins" : "Peaks";
    return lines.length ? [table(title, ["Channel", "Rank", "Frequency", this.panel.label], lines)] : [];
  }

  said(level) {
    if (!Number.isFinite(level)) return "none";
    return this.panel.unit < 0.01 ? level.toFixed(3) : `${level.toFixed(1)} dB`;
  }

  box() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const left = this.way === "heatmap" ? Math.min(120, width / 4) : 52;
    return { left, top: 10, right: width - (this.way === "heatmap" ? 74 : 14), bottom: height - 40 };
  }

  resize() {
    sharpen(this.canvas, this.pen);
    this.paint();
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.ink = paints();
    this.pen.clearRect(0, 0, width, height);
    if (this.rows.every((row) => row.state)) return sayOn(this.pen, this.ink, "No channel has a finite level.", width, height);
    const box = this.box();
    this.x = (hz) => box.left + this.view.share("x", hz) * (box.right - box.left);
    this.y = (level) => box.bottom - this.view.share("y", level) * (box.bottom - box.top);
    if (this.way === "heatmap") this.heatmap(box);
    this.axes(box);
    if (this.way !== "heatmap") this.lines(box);
  }

  axes(box) {
    const { pen, ink, panel } = this;
    pen.font = `12px ${ink.font}`;
    pen.lineWidth = 1;
    pen.strokeStyle = ink.line;
    pen.fillStyle = ink.muted;
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const [from, to] = this.view.span("x");
    const isMap = this.way === "heatmap";
    for (const hz of hzTicks({ from, to }, (box.right - box.left) / 75, this.log)) {
      const at = Math.round(this.x(hz)) + 0.5;
      if (!isMap) stroke(pen, at, box.top, at, box.bottom);
      else stroke(pen, at, box.bottom, at, box.bottom + 4);
      pen.fillText(plain(hz), at, box.bottom + 6);
    }
    pen.fillText(`frequency (Hz, ${this.log ? "logarithmic" : "linear"})`, (box.left + box.right) / 2, box.bottom + 23);
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    if (isMap) return this.names(box);
    for (const level of ticks(...this.view.span("y"), (box.bottom - box.top) / 48)) {
      const at = Math.round(this.y(level)) + 0.5;
      stroke(pen, box.left, at, box.right, at);
      if (!this.apart) pen.fillText(plain(level), box.left - 6, at);
    }
    pen.save();
    pen.translate(10, (box.top + box.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(this.apart ? `${panel.label}, ${plain(this.apart)} dB apart` : panel.label, 0, 0);
    pen.restore();
  }

  names(box) {
    const rows = this.order();
    const tall = Math.abs(this.y(-1) - this.y(0));
    const every = Math.max(1, Math.ceil(13 / tall));
    rows.forEach((row, at) => {
      const y = this.y(-at - 0.5);
      if (at % every || y < box.top || y > box.bottom) return;
      this.pen.fillText(shortened(this.pen, this.rows[row].name, box.left - 8), box.left - 6, y);
    });
  }

  clip(box) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(box.left, box.top - 4, box.right - box.left, box.bottom - box.top + 4);
    this.pen.clip();
  }

  lines(box) {
    const rows = this.order();
    const labels = [];
    this.clip(box);
    rows.forEach((row, at) => {
      if (row !== this.near) this.line(row, this.lift(at), rows.length > FEW ? 0.9 : 1.4, this.near === null ? 1 : 0.45);
    });
    if (this.near !== null && this.shown.has(this.near)) this.line(this.near, this.lift(rows.indexOf(this.near)), 2.4, 1);
    for (const [at, row] of rows.entries()) labels.push(...this.marks(row, this.lift(at), rows.length));
    this.pen.restore();
    this.words(labels, box);
    if (this.apart) this.ends(rows, box);
  }

  lift(at) {
    return this.apart * (this.shown.size - 1 - at);
  }

  line(row, lift, width, alpha) {
    const { pen } = this;
    const { x, y } = this.rows[row];
    const look = lookOf(row);
    const [from, to] = this.view.span("x");
    pen.beginPath();
    trace(x, y, this.x, (level) => this.y(level + lift), from, to, (px, py, begins) => (begins ? pen.moveTo(px, py) : pen.lineTo(px, py)));
    pen.strokeStyle = look.ink;
    pen.setLineDash(look.dashed ? [5, 3] : []);
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.globalAlpha = alpha;
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  // Dots at the peaks; what could be written there.
  marks(row, lift, count) {
    if (count > FEW && row !== this.near) return [];
    const { pen, ink } = this;
    const { peaks, name } = this.rows[row];
    const found = [];
    const [from, to] = this.view.span("x");
    for (const [hz, level] of peaks) {
      if (hz < from || hz > to) continue;
      const [px, py] = [this.x(hz), this.y(level + lift)];
      pen.beginPath();
      pen.arc(px, py, row === this.near ? 4.5 : 3.5, 0, 2 * Math.PI);
      pen.fillStyle = lookOf(row).ink;
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = ink.ground;
      pen.stroke();
      if (this.near === null || this.near === row) found.push({ px, py, level, hz, name });
    }
    return found;
  }

  // The strongest first, none upon another; each frequency once.
  words(labels, box) {
    const { pen, ink, panel } = this;
    const taken = [];
    pen.font = `600 12px ${ink.font}`;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    for (const { px, py, hz, level } of labels.sort((a, b) => b.level - a.level)) {
      if (taken.length === NAMED) break;
      if (py < box.top || py > box.bottom || !Number.isFinite(level)) continue;
      if (taken.some((other) => Math.abs(other.hz - hz) <= panel.step && !this.apart)) continue;
      const words = `${hz.toFixed(panel.digits)} Hz`;
      const half = pen.measureText(words).width / 2 + 3;
      const centre = Math.min(Math.max(px, box.left + half), box.right - half);
      const spot = { hz, left: centre - half, top: Math.max(py - 22, 0), right: centre + half, bottom: py - 6 };
      if (taken.some((other) => overlap(spot, other))) continue;
      taken.push(spot);
      pen.lineWidth = 3;
      pen.strokeStyle = ink.ground;
      pen.lineJoin = "round";
      pen.strokeText(words, centre, py - 6);
      pen.fillStyle = ink.text;
      pen.fillText(words, centre, py - 6);
    }
  }

  // Names at the ends of lines that stand apart.
  ends(rows, box) {
    const { pen, ink } = this;
    pen.font = `600 12px ${ink.font}`;
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    const last = this.view.span("x")[1];
    rows.forEach((row, at) => {
      const { x, y, name } = this.rows[row];
      const level = y[Math.min(x.length - 1, firstAtOrAbove(x, last))];
      const py = this.y(level + this.lift(at)) - 4;
      if (!(py > box.top && py < box.bottom + 4)) return;
      pen.lineWidth = 3;
      pen.strokeStyle = ink.ground;
      pen.strokeText(shortened(pen, name, 160), box.right - 4, py);
      pen.fillStyle = lookOf(row).ink;
      pen.fillText(shortened(pen, name, 160), box.right - 4, py);
    });
  }

  heatmap(box) {
    const { pen, panel, colours } = this;
    const rows = this.order();
    if (!rows.length) return;
    const width = Math.max(1, Math.round(box.right - box.left));
    const image = new ImageData(width, rows.length);
    const pixels = new Uint32Array(image.data.buffer);
    const [low, high] = panel.colours;
    const edges = Array.from({ length: width + 1 }, (_, at) => this.view.value("x", at / width));
    rows.forEach((row, line) => {
      const { levels } = this.rows[row];
      for (let at = 0; at < width; at++) {
        const most = mostBetween(levels, (edges[at] - panel.first) / panel.step, (edges[at + 1] - panel.first) / panel.step);
        if (Number.isNaN(most)) continue;
        const share = (most - low) / Math.max(high - low, 1e-9);
        pixels[line * width + at] = colours[Math.round(255 * Math.min(1, Math.max(0, share)))];
      }
    });
    this.clip({ ...box, top: box.top + 4 });
    const from = document.createElement("canvas");
    [from.width, from.height] = [width, rows.length];
    from.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    const [top, bottom] = [this.y(0), this.y(-rows.length)];
    pen.drawImage(from, box.left, top, width, bottom - top);
    rows.forEach((row, at) => this.dot(row, this.y(-at - 0.5)));
    pen.restore();
    colourBar(pen, this.ink, box, colours, panel);
  }

  // The strongest of a row of the heatmap.
  dot(row, y) {
    const best = this.rows[row].peaks[0];
    if (!best) return;
    this.pen.beginPath();
    this.pen.arc(this.x(best[0]), y, 2.6, 0, 2 * Math.PI);
    this.pen.fillStyle = "#fff";
    this.pen.strokeStyle = "#000";
    this.pen.lineWidth = 1;
    this.pen.fill();
    this.pen.stroke();
  }

  point(event) {
    const box = this.box();
    const { offsetX: px, offsetY: py } = event;
    if (event.buttons || px < box.left || px > box.right || py < box.top || py > box.bottom) return this.leave();
    const hz = this.view.value("x", (px - box.left) / (box.right - box.left));
    const { first, step, bins, digits } = this.panel;
    const bin = Math.min(bins - 1, Math.max(0, Math.round((hz - first) / step)));
    const rows = this.order();
    if (!rows.length) return this.leave();
    const at = this.way === "heatmap"
      ? Math.min(rows.length - 1, Math.max(0, Math.floor(-this.view.value("y", (box.bottom - py) / (box.bottom - box.top)))))
      : nearest(rows.map((row, n) => Math.abs(this.y(this.rows[row].levels[bin] + this.lift(n)) - py)));
    const own = rows[at];
    if (this.near !== own) {
      this.near = own;
      if (this.way !== "heatmap") this.paint();
    }
    const told = rows.length <= FEW ? rows : [own];
    const peak = this.rows[own].peaks.find(([where]) => Math.abs(where - (first + bin * step)) <= step);
    const lines = told.map((row) => [this.rows[row].name, this.said(this.rows[row].levels[bin]), row === own]);
    if (peak) lines.push([`${this.panel.noun} at ${peak[0].toFixed(digits)} Hz`, this.said(peak[1]), false]);
    this.tip.show(px, py, `${(first + bin * step).toFixed(digits)} Hz`, lines);
  }

  leave() {
    this.tip.hide();
    if (this.near === null) return;
    this.near = null;
    this.paint();
  }
}

// Levels of a row, and its line with the tops of peaks as points of it.
function pointsOf({ first, step, bins, unit }, packed, { peaks }, at) {
  const levels = Float32Array.from(packed.subarray(at * bins, (at + 1) * bins), (one) => (one === NONE ? NaN : one * unit));
  const between = peaks.filter(([hz]) => Math.abs((hz - first) / step - Math.round((hz - first) / step)) > 1e-6).sort((a, b) => a[0] - b[0]);
  const [x, y] = [new Float64Array(bins + between.length), new Float32Array(bins + between.length)];
  let [bin, next] = [0, 0];
  for (let n = 0; n < x.length; n++) {
    const hz = first + bin * step;
    const isPeak = next < between.length && (bin >= bins || between[next][0] < hz);
    [x[n], y[n]] = isPeak ? between[next++] : [hz, levels[bin++]];
  }
  return { levels, x, y };
}

// dB between lines, so that none covers the next.
function apartOf(rows, order, [low, high]) {
  let most = (high - low) / 10;
  for (let at = 1; at < order.length; at++) {
    const [above, below] = [rows[order[at - 1]].levels, rows[order[at]].levels];
    for (let bin = 1; bin < below.length; bin++) {
      const gap = Math.max(below[bin], low) - Math.max(above[bin], low);
      if (gap > most) most = gap;
    }
  }
  const step = most > 2 ? 5 : most > 0.2 ? 0.5 : 0.05;
  return step * Math.ceil((most + 0.4 * step) / step);
}

// The most of the bins whose middles lie between two places, or the nearest bin.
function mostBetween(levels, from, to) {
  let [low, high] = [Math.ceil(from), Math.ceil(to) - 1];
  if (high < low) low = high = Math.round((from + to) / 2);
  [low, high] = [Math.max(0, low), Math.min(levels.length - 1, high)];
  let most = NaN;
  for (let bin = low; bin <= high; bin++) if (!(levels[bin] <= most)) most = Number.isNaN(levels[bin]) ? most : levels[bin];
  return most;
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

function nearest(distances) {
  return distances.reduce((best, one, at) => (one < (distances[best] ?? Infinity) || Number.isNaN(distances[best]) ? at : best), 0);
}
