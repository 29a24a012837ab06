// Notes over time: a bar for each, its colour how loud it is.
import { paints, plain, sharpen, stroke, ticks } from "./demo/live/axis.js";
import { css, scaleOf } from "./colours.js";
import { make } from "./demo/make.js";
import { Tip } from "./tip.js";
import { table, zoomButtons } from "./tools.js";
import { unpacked } from "./unpack.js";
import { colourBar } from "./writing.js";
import { steer, View } from "./zoom.js";

const BLACK = [1, 3, 6, 8, 10];
const NAMES = ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"];
const MOST_LINES = 500; // of the table

export async function roll(panel, stops) {
  const [times, notes] = await Promise.all([unpacked(panel.times, Float32Array), unpacked(panel.notes, Uint8Array)]);
  return new Roll(panel, times, notes, scaleOf(stops));
}

export function noteName(key) {
  return `${NAMES[key % 12]}${Math.floor(key / 12) - 1}`;
}

class Roll {
  constructor(panel, times, notes, colours) {
    Object.assign(this, { panel, times, notes, colours });
    const [low, high] = panel.keys;
    this.view = new View({ x: [0, panel.seconds], y: [low - 0.6, high + 0.6] });
    this.view.listeners.push(() => this.paint());
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart" });
    this.canvas.setAttribute("aria-label", `${panel.count} notes over time, from ${noteName(low)} to ${noteName(high)}. Keys: plus, minus, arrows, 0.`);
    this.pen = this.canvas.getContext("2d");
    const stage = make("div", { class: "stage" }, [this.canvas]);
    this.tip = new Tip(stage);
    steer(this.canvas, this.view, () => this.box());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.tip.hide());
    this.element = make("section", { class: "panel picture", "aria-label": "Notes" }, [
      make("p", { class: "facts" }, [panel.facts]), make("div", { class: "tools" }, [zoomButtons(this.view)]), stage, this.listed(),
    ]);
    new ResizeObserver(() => {
      sharpen(this.canvas, this.pen);
      this.paint();
    }).observe(this.canvas);
  }

  note(at) {
    return { start: this.times[2 * at], end: this.times[2 * at + 1], key: this.notes[2 * at], loud: this.notes[2 * at + 1] };
  }

  listed() {
    const count = Math.min(MOST_LINES, this.panel.count);
    const lines = Array.from({ length: count }, (_, at) => {
      const { start, end, key, loud } = this.note(at);
      return [noteName(key), start.toFixed(2), (end - start).toFixed(2), (loud / 255).toFixed(2)];
    });
    const title = count < this.panel.count ? `The first ${count} notes` : "Notes";
    return table(title, ["note", "starts (s)", "lasts (s)", "amplitude"], lines);
  }

  box() {
    const { clientWidth, clientHeight } = this.canvas;
    return { left: 44, top: 6, right: clientWidth - 74, bottom: clientHeight - 36 };
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const { pen, view, colours } = this;
    const ink = paints();
    const box = this.box();
    const x = (s) => box.left + view.share("x", s) * (box.right - box.left);
    const y = (key) => box.bottom - view.share("y", key) * (box.bottom - box.top);
    pen.clearRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    const [low, high] = this.panel.keys;
    pen.fillStyle = ink.raised;
    for (let key = low; key <= high; key++) {
      if (BLACK.includes(key % 12)) pen.fillRect(box.left, y(key + 0.5), box.right - box.left, y(key - 0.5) - y(key + 0.5));
    }
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    for (let key = low; key <= high; key++) if (key % 12 === 0) stroke(pen, box.left, y(key - 0.5), box.right, y(key - 0.5));
    const [from, to] = view.span("x");
    for (let at = 0; at < this.panel.count; at++) {
      const { start, end, key, loud } = this.note(at);
      if (end < from || start > to) continue;
      pen.fillStyle = css(colours[loud]);
      pen.fillRect(x(start), y(key + 0.42), Math.max(1.5, x(end) - x(start)), Math.max(1.5, y(key - 0.42) - y(key + 0.42)));
    }
    pen.restore();
    this.axes(box, ink, x, y);
    colourBar(pen, ink, box, colours, { limits: [0, 1], label: "amplitude" });
  }

  axes(box, ink, x, y) {
    const { pen, view } = this;
    pen.font = `11px ${ink.font}`;
    pen.strokeStyle = ink.muted;
    pen.fillStyle = ink.muted;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const s of ticks(...view.span("x"), (box.right - box.left) / 90)) {
      stroke(pen, x(s), box.bottom, x(s), box.bottom + 4);
      pen.fillText(plain(s), x(s), box.bottom + 6);
    }
    pen.fillText("time (s)", (box.left + box.right) / 2, box.bottom + 20);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const [low, high] = view.span("y");
    const every = (high - low) * 14 < box.bottom - box.top ? 1 : 12;
    for (let key = Math.ceil(low); key <= high; key++) {
      if (key % every === 0) pen.fillText(noteName(key), box.left - 6, y(key));
    }
  }

  point(event) {
    const box = this.box();
    const { offsetX: px, offsetY: py } = event;
    const s = this.view.value("x", (px - box.left) / (box.right - box.left));
    const key = Math.round(this.view.value("y", (box.bottom - py) / (box.bottom - box.top)));
    for (let at = 0; at < this.panel.count && !event.buttons; at++) {
      const one = this.note(at);
      if (one.key !== key || s < one.start || s > one.end) continue;
      const rows = [["starts", `${one.start.toFixed(2)} s`], ["lasts", `${(one.end - one.start).toFixed(2)} s`], ["amplitude", (one.loud / 255).toFixed(2)]];
      this.tip.show(px, py, noteName(key), rows.map((row) => [...row, false]));
      return;
    }
    this.tip.hide();
  }
}
