// One channel's spectra below each other, the newest on top: the strength of a frequency
// as a colour, on the frequency axis of the chart.
import { across, decibels, hzTicks, paints, plain, sayOn, sharpen, spanOf, stroke, ticks } from "./axis.js";

const LINES = 240;
const MOST_VALUES = 1 << 23; // of all channels' lines that are kept
const SPAN_DB = 60; // below the strongest, what is weaker is as dark as that
const MARGIN = { left: 56, right: 20, top: 4, bottom: 34 };
// viridis: its steps of lightness are even, for every kind of sight.
const STOPS = [
  [68, 1, 84], [72, 40, 120], [62, 73, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
const COLOURS = Uint32Array.from({ length: 256 }, (_, at) => colour(at / 255));

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
    this.shape = { channels, bins, first, step };
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

  get width() {
    return Math.max(1, Math.floor(this.canvas.clientWidth - MARGIN.left - MARGIN.right));
  }

  renew(paint = true) {
    this.cuts = null;
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

  // The first and the last bin of each pixel.
  cutsOf() {
    const { bins, first, step } = this.shape;
    const { width } = this;
    const span = spanOf(this.view, this.shape);
    const { logHz } = this.view;
    const hzAt = (x) => logHz
      ? span.from * (span.to / span.from) ** (x / width)
      : span.from + ((span.to - span.from) * x) / width;
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
    if (!lines.length) return sayOn(pen, colours, this.words, clientWidth, clientHeight);
    const box = { left: MARGIN.left, top: MARGIN.top, right: MARGIN.left + this.width, bottom: clientHeight - MARGIN.bottom };
    const range = this.rangeOf();
    this.image(range);
    pen.imageSmoothingEnabled = false;
    const tall = box.bottom - box.top;
    const each = Math.max(1, Math.min(8, tall / Math.max(lines.length, 60)));
    const shown = Math.min(lines.length, Math.floor(tall / each));
    pen.drawImage(this.picture, 0, 0, this.width, shown, box.left, box.top, this.width, shown * each);
    this.axes(box, each, shown);
    this.key(box, range);
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

  image({ low, high }) {
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
        pixels[row * width + x] = COLOURS[Math.round(255 * Math.min(1, Math.max(0, (level - low) / (high - low))))];
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
    for (const seconds of ticks(0, ago(shown - 1), Math.max(2, (shown * each) / 40))) {
      const row = lines.findIndex((_, at) => ago(at) >= seconds - 1e-9);
      if (row < 0 || row >= shown) continue;
      const y = Math.round(box.top + (row + 0.5) * each);
      pen.fillText(seconds ? `−${plain(seconds)} s` : "now", box.left - 7, Math.max(y, box.top + 6));
    }
  }

  // What the colours say.
  key(box, { low, high }) {
    const { pen, colours } = this;
    const top = box.bottom + 22;
    for (let at = 0; at < STOPS.length; at++) {
      pen.fillStyle = `rgb(${STOPS[at].join(" ")})`;
      pen.fillRect(box.left + 8 * at, top, 8, 9);
    }
    pen.fillStyle = colours.muted;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(`${low.toFixed(0)} … ${high.toFixed(0)} dB`, box.left + 8 * STOPS.length + 6, top + 5);
  }
}

function sameView(a, b) {
  return a && ["from", "to", "logHz", "shown"].every((key) => a[key] === b[key]);
}

// A colour of the row of STOPS as a pixel of ImageData, on a machine that stores the low byte first.
function colour(share) {
  const at = share * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const [r, g, b] = STOPS[low].map((from, part) => Math.round(from + (at - low) * (STOPS[low + 1][part] - from)));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
