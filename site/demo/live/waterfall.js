// One channel's spectra below each other, the newest on top: the strength of a frequency
// as a colour, on the frequency axis of the chart.
//
//   const waterfall = new Waterfall(canvas);
//   waterfall.push(spectrum, view);   // as Chart.draw has both, and `t`: seconds of the signal
//   waterfall.look(view);             // another view of the lines that are there
//   waterfall.clear(words);           // another signal
//   waterfall.read(element);          // what is under the pointer, or the arrow keys, in words
//   waterfall.readColours();          // light became dark, or back
import { across, decibels, hzTicks, paints, plain, sayOn, sharpen, spanOf, stroke, ticks } from "./axis.js";
import { colourOf, key } from "./colours.js";

const LINES = 240;
const MOST_VALUES = 1 << 23; // of all channels' lines that are kept
const SPAN_DB = 60; // below the strongest, what is weaker is as dark as that
const MARGIN = { left: 56, right: 20, top: 4, bottom: 34 };
const EVERY_S = 0.1; // of the signal: spectra that lie closer are of the same samples
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Waterfall {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.picture = document.createElement("canvas");
    this.clear("");
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  readColours() {
    this.colours = paints();
    this.paint();
  }

  resize() {
    sharpen(this.canvas, this.pen);
    this.renew();
  }

  // Nothing is known any more; words in its place.
  clear(words) {
    this.words = words;
    this.at = null; // where the cross is
    this.lines = []; // the newest first: {levels: dB of all rows, at: seconds, columns}
    this.shape = null;
    this.paint();
  }

  // One more line. `spectrum` as Chart.draw has it, with `t`: its seconds of the signal.
  push(spectrum, view) {
    const { power, channels, bins, first = 0, step, t } = spectrum;
    if (this.shape?.channels !== channels || this.shape.bins !== bins || this.shape.step !== step) {
      this.lines = [];
    }
    this.shape = { channels, bins, first, step, unit: spectrum.unit };
    const late = t - this.lines[0]?.at;
    if (late < 0) this.lines = []; // it was begun anew
    if (late >= 0 && late < EVERY_S) return;
    if (!sameView(this.view, view)) {
      this.view = { ...view };
      this.renew(false);
    }
    const line = { levels: Float32Array.from(power.subarray(0, channels * bins), decibels), at: t };
    line.columns = this.columnsOf(line);
    this.lines.unshift(line);
    this.lines.length = Math.min(this.lines.length, LINES, Math.max(2, Math.floor(MOST_VALUES / (channels * bins))));
    this.paint();
  }

  // Another view of the lines that are there.
  look(view) {
    this.view = { ...view };
    this.renew();
  }

  get box() {
    return { left: MARGIN.left, top: MARGIN.top, right: MARGIN.left + this.width, bottom: this.canvas.clientHeight - MARGIN.bottom };
  }

  get width() {
    return Math.max(1, Math.floor(this.canvas.clientWidth - MARGIN.left - MARGIN.right));
  }

  renew(paint = true) {
    this.cuts = null;
    if (this.lines.length) this.hzAt = this.toHz();
    for (const line of this.lines) line.columns = this.columnsOf(line);
    if (paint) this.paint();
  }

  // The strongest of the bins below each pixel, so that no peak is lost between two.
  columnsOf({ levels }) {
    const { bins } = this.shape;
    this.cuts ??= this.cutsOf();
    const out = new Float32Array(this.width);
    const start = Math.min(this.view.shown, this.shape.channels - 1) * bins;
    for (let x = 0; x < out.length; x++) {
      let most = -Infinity;
      for (let bin = this.cuts[2 * x]; bin <= this.cuts[2 * x + 1]; bin++) most = Math.max(most, levels[start + bin]);
      out[x] = most;
    }
    return out;
  }

  // The frequency at so many pixels from the left.
  toHz() {
    const { width } = this;
    const { from, to } = spanOf(this.view, this.shape);
    return this.view.logHz ? (x) => from * (to / from) ** (x / width) : (x) => from + ((to - from) * x) / width;
  }

  // The first and the last bin of each pixel.
  cutsOf() {
    const { bins, first, step } = this.shape;
    const { width } = this;
    const hzAt = (this.hzAt = this.toHz());
    const cuts = new Int32Array(2 * width);
    const held = (bin) => Math.min(bins - 1, Math.max(0, Math.round(bin)));
    for (let x = 0; x < width; x++) {
      const from = (hzAt(x) - first) / step;
      const to = (hzAt(x + 1) - first) / step;
      // Where a bin is wider than a pixel, the nearest one.
      const [low, high] = [Math.ceil(from), Math.ceil(to) - 1];
      cuts[2 * x] = held(low > high ? (from + to) / 2 : low);
      cuts[2 * x + 1] = held(low > high ? (from + to) / 2 : high);
    }
    return cuts;
  }

  paint() {
    const { pen, canvas, lines, colours } = this;
    const { clientWidth, clientHeight } = canvas;
    if (!clientWidth || !clientHeight || !colours) return;
    pen.clearRect(0, 0, clientWidth, clientHeight);
    if (!lines.length) {
      if (this.said) this.said.textContent = "";
      return sayOn(pen, colours, this.words, clientWidth, clientHeight);
    }
    const { box } = this;
    const range = this.rangeOf();
    this.image(range);
    pen.imageSmoothingEnabled = false;
    const tall = box.bottom - box.top;
    const each = (this.each = Math.max(1, Math.min(8, tall / Math.max(lines.length, 60))));
    const shown = Math.min(lines.length, Math.floor(tall / each));
    pen.drawImage(this.picture, 0, 0, this.width, shown, box.left, box.top, this.width, shown * each);
    this.axes(box, each, shown);
    key(pen, colours, box, range, this.shape.unit, clientWidth);
    this.pointAt();
  }

  rangeOf() {
    let high = -Infinity;
    let low = Infinity;
    for (const { columns } of this.lines) {
      for (const level of columns) {
        if (level > high) high = level;
        if (level < low) low = level;
      }
    }
    if (!Number.isFinite(high)) [low, high] = [0, 1];
    return { high, low: Math.min(high - 1, Math.max(low, high - SPAN_DB)) };
  }

  image(range) {
    const { picture, lines, width } = this;
    picture.width = width;
    picture.height = lines.length;
    const pen = picture.getContext("2d");
    const image = pen.createImageData(width, lines.length);
    const pixels = new Uint32Array(image.data.buffer);
    lines.forEach(({ columns }, row) => {
      for (let x = 0; x < width; x++) {
        const level = columns[x];
        if (Number.isNaN(level)) continue; // no number: nothing is painted
        pixels[row * width + x] = colourOf(level, range);
      }
    });
    pen.putImageData(image, 0, 0);
  }

  axes(box, each, shown) {
    const { pen, colours, view, shape, lines } = this;
    const span = spanOf(view, shape);
    const x = across(box.left, box.right, span, view.logHz);
    pen.font = `12px ${colours.font}`;
    pen.fillStyle = colours.muted;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const hz of hzTicks(span, (box.right - box.left) / 75, view.logHz)) {
      const at = Math.round(x(hz)) + 0.5;
      stroke(pen, at, box.bottom, at, box.bottom + 4);
      pen.fillText(plain(hz), at, box.bottom + 6);
    }
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    pen.fillText("Hz", box.right, box.bottom + 34);
    pen.textBaseline = "middle";
    const ago = (row) => lines[0].at - lines[row].at;
    let above = -Infinity;
    for (const seconds of ticks(0, ago(shown - 1), Math.max(2, (shown * each) / 40))) {
      const row = lines.findIndex((_, at) => ago(at) >= seconds - 1e-9);
      if (row < 0 || row >= shown) continue;
      const y = Math.max(Math.round(box.top + (row + 0.5) * each), box.top + 6);
      if (y - above < 14) continue;
      pen.fillText(seconds ? `−${plain(seconds)} s` : "now", box.left - 7, y);
      above = y;
    }
  }

  // --- reading it out --------------------------------------------------------------

  // Where a pointer or the arrow keys are: what is there is said, and a cross is drawn.
  read(said) {
    this.said = said;
    const { canvas } = this;
    canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.cross(offsetX, offsetY));
    for (const event of ["pointerleave", "blur"]) canvas.addEventListener(event, () => this.cross(null));
    canvas.addEventListener("keydown", (event) => {
      const step = KEYS[event.key];
      if (!step || !this.lines.length) return;
      event.preventDefault();
      const far = event.shiftKey ? 40 : 8;
      const { box } = this;
      const { x, y } = this.at ?? { x: (box.left + box.right) / 2, y: box.top - far };
      const held = (value, low, high) => Math.min(high, Math.max(low, value));
      this.cross(held(x + far * step[0], box.left, box.right - 1), held(y + far * step[1], box.top, box.bottom - 1));
    });
  }

  cross(x, y) {
    const { box } = this;
    const inside = x !== null && x >= box.left && x < box.right && y >= box.top && y < box.bottom;
    if (!inside && !this.at) return;
    this.at = inside ? { x, y } : null;
    this.paint();
  }

  // What is under the cross, in words; "" where nothing is.
  under() {
    const { at, box, lines, shape, view } = this;
    if (!at) return "";
    const row = Math.floor((at.y - box.top) / this.each);
    if (row >= lines.length) return "";
    const hz = this.hzAt(at.x - box.left + 0.5);
    const bin = Math.min(shape.bins - 1, Math.max(0, Math.round((hz - shape.first) / shape.step)));
    const level = lines[row].levels[Math.min(view.shown, shape.channels - 1) * shape.bins + bin];
    const ago = lines[0].at - lines[row].at;
    return `${Number(hz.toPrecision(3))} Hz · ${ago ? `${ago.toFixed(1)} s ago` : "now"} · ${Number.isNaN(level) ? "not a number" : `${level.toFixed(1)} dB`}`;
  }

  pointAt() {
    const { pen, at, box, colours, said } = this;
    if (said) {
      const words = this.under();
      if (said.textContent !== words) said.textContent = words;
    }
    if (!at) return;
    pen.strokeStyle = colours.ground;
    pen.globalAlpha = 0.7;
    pen.lineWidth = 1;
    stroke(pen, Math.round(at.x) + 0.5, box.top, Math.round(at.x) + 0.5, box.bottom);
    stroke(pen, box.left, Math.round(at.y) + 0.5, box.right, Math.round(at.y) + 0.5);
    pen.globalAlpha = 1;
  }
}

function sameView(a, b) {
  return a && ["from", "to", "logHz", "shown"].every((key) => a[key] === b[key]);
}
