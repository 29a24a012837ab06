// A piano roll on a canvas: a bar for each note, the stronger the louder. Wheel, drag and
// keys change what is in view.
import { paints, plain, sharpen, stroke, ticks } from "../live/axis.js";

const BLACK = [1, 3, 6, 8, 10];
const NAMES = ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"];
const LEAST_KEYS = 24;
const LEAST_S = 0.5;

export const noteName = (key) => `${NAMES[key % 12]}${Math.floor(key / 12) - 1}`;

export class Roll {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.notes = null;
    this.head = null; // s, where it is played
    this.view = [0, 1];
    new ResizeObserver(() => {
      sharpen(canvas, this.pen);
      this.paint();
    }).observe(canvas);
    this.steer();
  }

  // {start, end, pitch, amplitude, seconds}; `anew` shows all of it.
  show(notes, anew) {
    this.notes = notes;
    if (anew) this.view = [0, Math.max(notes.seconds, LEAST_S)];
    this.paint();
  }

  at(seconds) {
    this.head = seconds;
    const [from, to] = this.view;
    if (seconds !== null && (seconds < from || seconds > to)) this.move(seconds - from);
    this.paint();
  }

  move(by) {
    const [from, to] = this.view;
    const last = Math.max(this.notes?.seconds ?? 1, to - from);
    const begin = Math.min(Math.max(0, from + by), last - (to - from));
    this.view = [begin, begin + to - from];
    this.paint();
  }

  zoom(factor, share = 0.5) {
    const [from, to] = this.view;
    const all = Math.max(this.notes?.seconds ?? 1, LEAST_S);
    const wide = Math.min(all, Math.max(LEAST_S, (to - from) * factor));
    const middle = from + share * (to - from);
    this.view = [middle - share * wide, middle + (1 - share) * wide];
    this.move(0);
  }

  steer() {
    const { canvas } = this;
    const acts = {
      "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1.4),
      ArrowLeft: () => this.move(-0.2 * (this.view[1] - this.view[0])),
      ArrowRight: () => this.move(0.2 * (this.view[1] - this.view[0])),
      0: () => this.zoom(Infinity), Home: () => this.move(-Infinity), End: () => this.move(Infinity),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
      acts[event.key]();
      event.preventDefault();
    });
    canvas.addEventListener("wheel", (event) => {
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move((event.deltaX / 800) * (this.view[1] - this.view[0]));
      else this.zoom(Math.exp(event.deltaY / 300), this.share(event));
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      const { left, right } = this.box();
      this.move((-event.movementX / (right - left)) * (this.view[1] - this.view[0]));
    });
  }

  share(event) {
    const { left, right } = this.box();
    return Math.min(1, Math.max(0, (event.offsetX - left) / (right - left)));
  }

  box() {
    const { clientWidth, clientHeight } = this.canvas;
    return { left: 40, top: 4, right: clientWidth - 8, bottom: clientHeight - 34 };
  }

  keys() {
    const { pitch } = this.notes;
    let [low, high] = [60, 60];
    if (pitch.length) [low, high] = [Math.min(...new Set(pitch)), Math.max(...new Set(pitch))];
    const more = Math.max(0, LEAST_KEYS - (high - low));
    return [Math.max(0, low - 1 - (more >> 1)), Math.min(127, high + 1 + ((more + 1) >> 1))];
  }

  paint() {
    const { pen, canvas: { clientWidth: width, clientHeight: height } } = this;
    if (!width || !height) return;
    pen.clearRect(0, 0, width, height);
    if (!this.notes) return;
    const ink = paints();
    const box = this.box();
    const [from, to] = this.view;
    const [low, high] = this.keys();
    const x = (s) => box.left + ((s - from) / (to - from)) * (box.right - box.left);
    const y = (key) => box.bottom - ((key - low + 0.5) / (high - low + 1)) * (box.bottom - box.top);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    this.rows(ink, box, y, low, high);
    this.bars(x, y);
    if (this.head !== null) {
      pen.strokeStyle = ink.text;
      stroke(pen, x(this.head), box.top, x(this.head), box.bottom);
    }
    pen.restore();
    this.axes(ink, box, x, y, low, high);
  }

  rows(ink, box, y, low, high) {
    const { pen } = this;
    pen.lineWidth = 1;
    pen.fillStyle = ink.raised;
    pen.strokeStyle = ink.line;
    for (let key = low; key <= high; key++) {
      if (BLACK.includes(key % 12)) pen.fillRect(box.left, y(key + 0.5), box.right - box.left, y(key - 0.5) - y(key + 0.5));
      if (key % 12 === 0) stroke(pen, box.left, y(key - 0.5), box.right, y(key - 0.5));
    }
  }

  bars(x, y) {
    const { pen, notes: { start, end, pitch, amplitude }, view: [from, to] } = this;
    const tall = Math.max(2, 0.84 * (y(0) - y(1)));
    pen.fillStyle = getComputedStyle(this.canvas).getPropertyValue("--series-1");
    for (let n = 0; n < pitch.length; n++) {
      if (end[n] < from || start[n] > to) continue;
      pen.globalAlpha = 0.35 + 0.65 * Math.min(1, amplitude[n]);
      pen.fillRect(x(start[n]), y(pitch[n]) - tall / 2, Math.max(1.5, x(end[n]) - x(start[n]) - 1), tall);
    }
    pen.globalAlpha = 1;
  }

  axes(ink, box, x, y, low, high) {
    const { pen } = this;
    pen.font = `11px ${ink.font}`;
    pen.fillStyle = ink.muted;
    pen.strokeStyle = ink.muted;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const s of ticks(...this.view, (box.right - box.left) / 80)) {
      stroke(pen, x(s), box.bottom, x(s), box.bottom + 4);
      pen.fillText(plain(s), x(s), box.bottom + 6);
    }
    pen.fillText("time (s)", (box.left + box.right) / 2, box.bottom + 19);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let key = low; key <= high; key++) if (key % 12 === 0) pen.fillText(noteName(key), box.left - 6, y(key));
  }
}
