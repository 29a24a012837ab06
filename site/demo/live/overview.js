// The whole of a recording at a glance: its spectrogram with time across, what was noted
// and where nothing was recorded; a click goes there.
import { across, decibels, hzTicks, paints, plain, sayOn, sharpen, spanOf, stroke } from "./axis.js";
import { colourOf, key } from "./colours.js";
import { clockOf } from "./recording.js";

const MARGIN = { left: 56, right: 20, top: 16, bottom: 34 };
const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];

export class Overview {
  // jump(seconds)  the visitor pointed at a moment;  said: an element that reads out values
  constructor(canvas, said, { jump }) {
    this.canvas = canvas;
    this.said = said;
    this.pen = canvas.getContext("2d");
    this.picture = document.createElement("canvas");
    this.clear();
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("click", (event) => {
      const seconds = this.secondsAt(event.offsetX);
      if (seconds !== null) jump(seconds);
    });
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.tell(""));
  }

  readColours() {
    this.colours = paints();
    this.paint();
  }

  resize() {
    sharpen(this.canvas, this.pen);
    this.paint();
  }

  clear() {
    Object.assign(this, { seconds: 0, notes: [], gaps: [], facts: null, levels: null, filled: 0, window: null, framed: null, view: null, unit: "", channel: "" });
    this.stale = true;
    this.tell("");
    this.paint();
  }

  // Another channel or another recording: {seconds, notes, gaps, unit, channel}.
  begin(about) {
    this.clear();
    Object.assign(this, about);
    this.paint();
  }

  noted(notes) {
    this.notes = notes;
    this.paint();
  }

  // Columns from the first on: facts as Python has them, power (N, bins).
  add(facts, power) {
    const { columns, bins } = facts;
    if (!this.levels) {
      this.levels = new Float32Array(columns * bins).fill(NaN);
      this.filled = 0;
    }
    this.facts = facts;
    this.levels.set(Float32Array.from(power, (value) => (Number.isNaN(value) ? NaN : decibels(value))), this.filled * bins);
    this.filled = facts.next;
    this.stale = true;
    this.paint();
  }

  // The stretch that the spectrum beside is of, in seconds.
  show(from, to, view) {
    const before = this.framed; // as it was painted last
    const moved = !before || Math.abs(this.across(from) - this.across(before.from)) >= 0.5 || before.to - before.from !== to - from;
    const same = this.view && ["from", "to", "logHz"].every((name) => this.view[name] === view[name]);
    this.window = { from, to };
    if (!same) this.stale = true;
    this.view = view;
    if (moved || !same) this.paint();
  }

  get box() {
    const { clientWidth, clientHeight } = this.canvas;
    return { left: MARGIN.left, right: clientWidth - MARGIN.right, top: MARGIN.top, bottom: clientHeight - MARGIN.bottom };
  }

  across(seconds) {
    const { left, right } = this.box;
    return left + ((right - left) * seconds) / (this.seconds || 1);
  }

  secondsAt(x) {
    const { left, right } = this.box;
    if (!this.seconds || x < left - 4 || x > right + 4) return null;
    return Math.min(this.seconds, Math.max(0, ((x - left) / (right - left)) * this.seconds));
  }

  paint() {
    const { pen, canvas, colours, facts, view } = this;
    const { clientWidth, clientHeight } = canvas;
    if (!clientWidth || !clientHeight || !colours) return;
    pen.clearRect(0, 0, clientWidth, clientHeight);
    if (!this.seconds) return;
    const { box } = this;
    if (facts && view) {
      if (this.stale) this.image();
      pen.imageSmoothingEnabled = false;
      const { begin_s: begin, column_s: each, columns } = facts;
      const [from, to] = [this.across(Math.max(0, begin - each / 2)), this.across(Math.min(this.seconds, begin + (columns - 0.5) * each))];
      pen.drawImage(this.picture, from, box.top, to - from, box.bottom - box.top);
      this.hertz(box);
      key(pen, colours, box, this.range, this.unit, clientWidth);
    } else {
      sayOn(pen, colours, "Reading the recording …", clientWidth, clientHeight);
    }
    this.times(box);
    this.marks(box);
  }

  // A row of pixels for each of the picture's own, a column for each column.
  image() {
    const { facts, levels, view, picture } = this;
    const { columns, bins, step } = facts;
    const tall = Math.max(1, Math.round(this.box.bottom - this.box.top));
    const span = spanOf(view, { step });
    this.range = rangeOf(levels, bins, Math.max(1, Math.floor(span.from / step)), Math.min(bins - 1, Math.ceil(span.to / step)));
    picture.width = columns;
    picture.height = tall;
    const pen = picture.getContext("2d");
    const image = pen.createImageData(columns, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const hzAt = (y) => (view.logHz ? span.from * (span.to / span.from) ** y : span.from + (span.to - span.from) * y);
    for (let y = 0; y < tall; y++) {
      const low = Math.min(bins - 1, Math.round(hzAt(1 - (y + 1) / tall) / step));
      const high = Math.max(low, Math.min(bins - 1, Math.round(hzAt(1 - y / tall) / step) - 1));
      for (let column = 0; column < columns; column++) {
        let most = levels[column * bins + low];
        for (let bin = low + 1; bin <= high; bin++) most = Math.max(most, levels[column * bins + bin]);
        if (!Number.isNaN(most)) pixels[y * columns + column] = colourOf(most, this.range);
      }
    }
    pen.putImageData(image, 0, 0);
    this.stale = false;
  }

  hertz(box) {
    const { pen, colours, view, facts } = this;
    const span = spanOf(view, facts);
    const y = across(box.bottom, box.top, span, view.logHz);
    pen.font = `12px ${colours.font}`;
    pen.fillStyle = colours.muted;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const hz of hzTicks(span, (box.bottom - box.top) / 30, view.logHz)) {
      stroke(pen, box.left - 4, Math.round(y(hz)) + 0.5, box.left, Math.round(y(hz)) + 0.5);
      pen.fillText(plain(hz), box.left - 7, y(hz));
    }
    pen.textBaseline = "bottom";
    pen.fillText("Hz", box.left - 7, box.top - 4);
  }

  times(box) {
    const { pen, colours, seconds } = this;
    const most = Math.max(2, (box.right - box.left) / 70);
    const step = TIMES.find((one) => seconds / one <= most) ?? 86400 * Math.ceil(seconds / 86400 / most);
    pen.font = `12px ${colours.font}`;
    pen.fillStyle = colours.muted;
    pen.strokeStyle = colours.line;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let at = 0; at * step <= seconds; at++) {
      const x = Math.round(this.across(at * step)) + 0.5;
      stroke(pen, x, box.bottom, x, box.bottom + 4);
      pen.fillText(clockOf(at * step, step < 1), x, box.bottom + 6);
    }
  }

  // What was noted, as marks on top; nothing recorded, hatched; what is looked at, framed.
  marks(box) {
    const { pen, colours } = this;
    pen.fillStyle = colours.raised;
    for (const [from, to] of this.gaps) {
      const [left, right] = [this.across(from), this.across(to)];
      pen.fillRect(left, box.top, Math.max(1, right - left), box.bottom - box.top);
    }
    pen.fillStyle = colours.text;
    pen.strokeStyle = colours.text;
    pen.lineWidth = 1;
    let last = -Infinity;
    for (const { onset, duration } of this.notes) {
      const x = Math.round(this.across(onset));
      if (duration) pen.fillRect(x, box.top - 8, Math.max(1, this.across(onset + duration) - x), 3);
      if (x === last) continue; // as close as pixels are
      last = x;
      pen.beginPath();
      pen.moveTo(x - 4, box.top - 10);
      pen.lineTo(x + 4, box.top - 10);
      pen.lineTo(x, box.top - 2);
      pen.fill();
    }
    this.framed = this.window;
    if (!this.window) return;
    const left = this.across(this.window.from);
    const right = Math.max(left + 2, this.across(this.window.to));
    for (const [width, colour] of [[4, colours.ground], [2, colours.accent]]) {
      pen.lineWidth = width;
      pen.strokeStyle = colour;
      pen.strokeRect(left, box.top, right - left, box.bottom - box.top);
    }
  }

  point({ offsetX, offsetY }) {
    const seconds = this.secondsAt(offsetX);
    if (seconds === null) return this.tell("");
    const near = this.notes.find(({ onset, duration }) =>
      Math.abs(this.across(onset) - offsetX) <= 5 || (duration && onset <= seconds && seconds <= onset + duration));
    const words = [clockOf(seconds, true)];
    const { box, facts, view } = this;
    if (facts && view && offsetY >= box.top && offsetY <= box.bottom) {
      const span = spanOf(view, facts);
      const share = (box.bottom - offsetY) / (box.bottom - box.top);
      const hz = view.logHz ? span.from * (span.to / span.from) ** share : span.from + (span.to - span.from) * share;
      const column = Math.min(facts.columns - 1, Math.max(0, Math.round((seconds - facts.begin_s) / facts.column_s)));
      const level = this.levels[column * facts.bins + Math.min(facts.bins - 1, Math.round(hz / facts.step))];
      words.push(`${hz.toPrecision(3)} Hz`, Number.isNaN(level) ? "nothing recorded" : `${level.toFixed(1)} dB`);
    }
    if (near) words.push(near.shown);
    this.tell(words.join(" · "));
  }

  tell(words) {
    if (this.said.textContent !== words) this.said.textContent = words;
  }
}

// Decibels from the faint to the strong among the bins in view.
function rangeOf(levels, bins, first, last) {
  const some = [];
  const every = Math.max(1, Math.floor(levels.length / 20000));
  for (let at = 0; at < levels.length; at += every) {
    const bin = at % bins;
    if (bin >= first && bin <= last && Number.isFinite(levels[at])) some.push(levels[at]);
  }
  some.sort((a, b) => a - b);
  if (!some.length) return { low: 0, high: 1 };
  const high = some[Math.floor(0.998 * (some.length - 1))];
  return { high, low: Math.min(high - 1, Math.max(some[Math.floor(0.02 * some.length)], high - 60)) };
}
