// The spectrum on a canvas: lines or an envelope, marked peaks with their frequencies.
import { across, decibels, hzTicks, paints, plain, sayOn, sharpen, spanOf, stroke, ticks, visible } from "./axis.js";

const LINES = 16; // more channels than this are drawn as the span they fill
const LABEL_STEP = 15;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.range = null; // of the vertical axis, follows the signal slowly
    this.last = null;
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  readColours() {
    this.colours = paints();
    this.redraw();
  }

  resize() {
    sharpen(this.canvas, this.pen);
    this.redraw();
  }

  redraw() {
    if (this.last) this.paint(this.last);
  }

  // A sentence in place of a spectrum.
  empty(words) {
    this.last = { words };
    this.range = null;
    this.redraw();
  }

  // spectrum  {power, channels, bins, first, step, unit, bands, names, peaks}: `first` is the
  //           frequency of bin 0, 0 where it is left out; bands [{name, sign, from, to}] or
  //           null; peaks [[{hz, power}]] of each row
  // view      {from, to, log, logHz, shown}: Hz, axes, and which row is marked
  draw(spectrum, view) {
    this.last = { spectrum, view };
    this.follow(spectrum, view);
    this.paint(this.last);
  }

  // Another view of what is drawn already.
  look(view) {
    if (!this.last?.spectrum) return;
    this.range = null;
    this.draw(this.last.spectrum, view);
  }

  // The vertical range: grows at once, shrinks slowly, so that the picture stands still.
  follow({ power, channels, bins, first: hz = 0, step }, { from, to, log }) {
    const first = Math.max(log && hz === 0 ? 1 : 0, Math.ceil((from - hz) / step));
    const last = Math.min(bins - 1, Math.floor((to - hz) / step));
    let low = Infinity;
    let high = -Infinity;
    for (let c = 0; c < channels; c++) {
      for (let b = first; b <= last; b++) {
        const value = power[c * bins + b];
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (!(high > 0)) [low, high] = [0, 1];
    const wanted = log
      ? { low: decibels(Math.max(low, high * 1e-9)) - 1, high: decibels(high) + 4 }
      : { low: 0, high: 1.18 * high };
    const before = this.range?.log === log ? this.range : null;
    const ease = (old, now, outward) => (before && !outward(now, old) ? old + 0.04 * (now - old) : now);
    this.range = {
      log,
      low: ease(before?.low, wanted.low, (now, old) => now < old),
      high: ease(before?.high, wanted.high, (now, old) => now > old),
    };
  }

  paint({ spectrum, view, words }) {
    const { pen, colours, canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    pen.clearRect(0, 0, width, height);
    if (!spectrum) return sayOn(pen, colours, words, width, height);
    const box = { left: 56, top: spectrum.bands ? 24 : 8, right: width - 20, bottom: height - 36 };
    const scale = scaleOf(box, view, this.range, spectrum);
    if (spectrum.bands) this.bands(box, scale, spectrum.bands);
    this.axes(box, scale, spectrum, view);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    if (spectrum.channels > LINES) this.envelope(scale, spectrum, view);
    else this.others(scale, spectrum, view);
    this.under(scale, spectrum, view.shown, colours.accent, box.bottom);
    this.line(scale, spectrum, view.shown, colours.accent, 2);
    pen.restore();
    this.marks(box, scale, spectrum, view);
  }

  bands(box, scale, bands) {
    const { pen, colours } = this;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.font = `13px ${colours.font}`;
    const places = bands.map(({ name, sign, from, to }) => ({
      name, sign, left: scale.x(Math.max(from, scale.from)), right: scale.x(Math.min(to, scale.to)),
    }));
    // All by their signs where one has no room for its name.
    const fits = ({ name, left, right }) => right - left < 2 || pen.measureText(name).width + 8 < right - left;
    const short = places.every(({ sign }) => sign) && !places.every(fits);
    places.forEach((place, at) => {
      const { name, sign, left, right } = place;
      if (right - left < 2) return;
      if (at % 2 === 0) {
        pen.fillStyle = colours.raised;
        pen.fillRect(left, box.top, right - left, box.bottom - box.top);
      }
      pen.fillStyle = colours.muted;
      if (short ? right - left > 12 : fits(place)) pen.fillText(short ? sign : name, (left + right) / 2, box.top - 4);
    });
  }

  axes(box, scale, { unit }, view) {
    const { pen, colours, range } = this;
    pen.font = `12px ${colours.font}`;
    pen.lineWidth = 1;
    pen.strokeStyle = colours.line;
    pen.fillStyle = colours.muted;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const hz of hzTicks(scale, (box.right - box.left) / 75, view.logHz)) {
      const x = Math.round(scale.x(hz)) + 0.5;
      stroke(pen, x, box.top, x, box.bottom);
      pen.fillText(plain(hz), x, box.bottom + 6);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(range.low, range.high, (box.bottom - box.top) / 48)) {
      const y = Math.round(range.log ? scale.yOfDecibels(value) : scale.y(value)) + 0.5;
      stroke(pen, box.left, y, box.right, y);
      pen.fillText(plain(value), box.left - 7, y);
    }
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    pen.fillText("Hz", box.right, box.bottom + 34);
    pen.textAlign = "left";
    const square = `${unit ? `${unit}²` : "power"}/Hz`;
    pen.fillText(range.log ? `dB re 1 ${unit ? square : ""}`.trim() : square, 4, box.bottom + 34);
  }

  // One channel is looked at; the rest are there to compare it with.
  others(scale, spectrum, { shown }) {
    const { pen, colours } = this;
    pen.globalAlpha = 0.55;
    for (let row = 0; row < spectrum.channels; row++) {
      if (row !== shown) this.line(scale, spectrum, row, colours.muted, 1);
    }
    pen.globalAlpha = 1;
  }

  line(scale, spectrum, row, colour, width) {
    const { pen } = this;
    this.trace(scale, spectrum, row);
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.stroke();
  }

  under(scale, spectrum, row, colour, bottom) {
    const { pen } = this;
    const [first, last] = this.trace(scale, spectrum, row);
    pen.lineTo(last, bottom);
    pen.lineTo(first, bottom);
    pen.globalAlpha = 0.14;
    pen.fillStyle = colour;
    pen.fill();
    pen.globalAlpha = 1;
  }

  // The path of one row; where it begins and ends.
  trace(scale, { power, bins }, row) {
    const { pen } = this;
    const [first, last] = scale.visible;
    pen.beginPath();
    for (let b = first; b <= last; b++) pen.lineTo(scale.xOf(b), scale.y(power[row * bins + b]));
    return [scale.xOf(first), scale.xOf(last)];
  }

  // The span between the weakest and the strongest channel at each frequency.
  envelope(scale, { power, channels, bins }) {
    const { pen, colours } = this;
    const [first, last] = scale.visible;
    const edge = (pick) => (b) => {
      let value = power[b];
      for (let c = 1; c < channels; c++) value = pick(value, power[c * bins + b]);
      return value;
    };
    const [most, least] = [edge(Math.max), edge(Math.min)];
    pen.beginPath();
    for (let b = first; b <= last; b++) pen.lineTo(scale.xOf(b), scale.y(most(b)));
    for (let b = last; b >= first; b--) pen.lineTo(scale.xOf(b), scale.y(least(b)));
    pen.closePath();
    pen.globalAlpha = 0.18;
    pen.fillStyle = colours.muted;
    pen.fill();
    pen.globalAlpha = 1;
  }

  marks(box, scale, { peaks, step }, { shown }) {
    const { pen, colours } = this;
    const taken = [];
    pen.font = `600 12px ${colours.font}`;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    for (const { hz, power } of peaks[shown] ?? []) {
      if (hz < scale.from || hz > scale.to) continue;
      const [x, y] = [scale.x(hz), scale.y(power)];
      pen.beginPath();
      pen.arc(x, y, 4, 0, 2 * Math.PI);
      pen.fillStyle = colours.accent;
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = colours.ground;
      pen.stroke();
      this.label(box, taken, x, y, inHz(hz, step));
    }
  }

  // From a label that had to go elsewhere to its peak.
  lead(fromX, fromY, toX, toY) {
    const { pen, colours } = this;
    pen.strokeStyle = colours.muted;
    pen.lineWidth = 1;
    stroke(pen, fromX, fromY, toX, toY);
  }

  // Above its peak where there is room, higher where another label is in the way.
  label(box, taken, x, y, words) {
    const { pen, colours } = this;
    const half = pen.measureText(words).width / 2 + 3;
    const centre = Math.min(Math.max(x, box.left + half), box.right - half);
    for (let lift = 0; lift < 5; lift++) {
      const bottom = Math.max(y - 8 - lift * LABEL_STEP, box.top + LABEL_STEP);
      const spot = { left: centre - half, right: centre + half, top: bottom - LABEL_STEP, bottom };
      if (taken.some((other) => overlap(spot, other))) continue;
      taken.push(spot);
      if (lift > 0) this.lead(centre, bottom, x, y - 5);
      pen.lineWidth = 3;
      pen.strokeStyle = colours.ground;
      pen.lineJoin = "round";
      pen.strokeText(words, centre, bottom);
      pen.fillStyle = colours.text;
      pen.fillText(words, centre, bottom);
      return;
    }
  }
}

// "10.04 Hz", to about a tenth of a bin.
export function inHz(hz, step) {
  const digits = Math.min(3, Math.max(0, Math.ceil(-Math.log10(step)) + 1));
  return `${hz.toFixed(step >= 5 ? 0 : Math.max(1, digits))} Hz`;
}

function scaleOf(box, view, range, { bins, first = 0, step }) {
  const span = spanOf(view, { first, step });
  const x = across(box.left, box.right, span, view.logHz);
  const perUnit = (box.bottom - box.top) / (range.high - range.low);
  const yOf = (value) => box.bottom - (value - range.low) * perUnit;
  return {
    ...span,
    x,
    xOf: (bin) => x(first + bin * step),
    y: range.log ? (value) => Math.min(box.bottom + 50, yOf(decibels(value))) : yOf,
    yOfDecibels: yOf,
    visible: visible(span, bins, first, step),
  };
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}
