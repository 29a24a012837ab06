// The course of a training on a canvas: losses above, on a logarithmic axis, and how much
// of the held-out part is right below.
import { axis, spanOf } from "../playground/scale.js";

const LEFT = 46;
const RIGHT = 10;
const FOOT = 24;
const GAP = 22;
const UPPER = 0.64; // of the height
const MEAN = 25; // steps
const MOST_POINTS = 2000;

export class Curve {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.waiting = false;
    this.clear(400);
    this.readColours();
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  clear(steps) {
    this.losses = [];
    this.judged = []; // {step, loss, right}
    this.steps = steps;
    this.redraw();
  }

  // The steps that the axis has room for.
  upTo(steps) {
    this.steps = steps;
    this.redraw();
  }

  push(losses) {
    for (const loss of losses) this.losses.push(loss);
    this.redraw();
  }

  judge(step, loss, right) {
    this.judged = [...this.judged.filter((one) => one.step < step), { step, loss, right }];
    this.redraw();
  }

  // Back to an earlier step.
  cut(step) {
    this.losses.length = Math.min(this.losses.length, step);
    this.judged = this.judged.filter((one) => one.step <= step);
    this.redraw();
  }

  // The mean loss of the steps that end with one.
  mean(step = this.losses.length) {
    const some = this.losses.slice(Math.max(0, step - MEAN), step);
    return some.reduce((sum, x) => sum + x, 0) / some.length;
  }

  // What the picture shows, in words.
  words() {
    const { losses, judged } = this;
    if (!losses.length) return "No training step yet";
    const last = judged.at(-1);
    const held = last
      ? ` For held-out speakers the loss is ${inShort(last.loss)} at step ${last.step}, and ${inPercent(last.right)} are correct (best: ${inPercent(Math.max(...judged.map((one) => one.right)))}).`
      : "";
    return `Loss from ${inShort(losses[0])} at step 1 to ${inShort(this.mean())} at step ${losses.length}.${held}`;
  }

  readColours() {
    const style = getComputedStyle(this.canvas);
    const of = (name) => style.getPropertyValue(name).trim();
    this.colours = {
      line: of("--line"), muted: of("--muted"), text: of("--text"),
      loss: of("--series-1"), held: of("--series-2"), right: of("--series-3"),
    };
    this.font = `12px ${of("--sans")}`;
    this.redraw();
  }

  // Once a frame at most, however often it is asked for.
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { canvas, pen } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    const dense = Math.min(3, devicePixelRatio || 1);
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.font = this.font;
    const split = Math.round((height - FOOT - GAP) * UPPER);
    const across = axis({ low: 0, high: Math.max(this.steps, this.losses.length), log: false }, LEFT, width - RIGHT);
    const upper = { left: LEFT, right: width - RIGHT, top: 8, bottom: split };
    const lower = { ...upper, top: split + GAP, bottom: height - FOOT };
    this.paintLosses(upper, across);
    this.paintRight(lower, across);
  }

  paintLosses(box, across) {
    const { pen, colours, losses, judged } = this;
    const held = judged.map((one) => one.loss).filter(Number.isFinite);
    const span = losses.length ? spanOf([losses, held], true) : { low: 0.05, high: 3, log: true };
    const up = axis({ ...span, high: Math.min(span.high, 1e12) }, box.bottom, box.top);
    this.grid(box, across, up, false);
    const every = Math.ceil(losses.length / MOST_POINTS) || 1;
    const shown = losses.map((loss, k) => [k + 1, loss]).filter((_, k) => k % every === 0);
    this.clipped(box, () => {
      pen.globalAlpha = 0.45;
      this.stroke(shown, across, up, colours.loss, 1);
      pen.globalAlpha = 1;
      this.stroke(shown.map(([step]) => [step, this.mean(step)]), across, up, colours.loss, 2.25);
      this.stroke(judged.map(({ step, loss }) => [step, loss]), across, up, colours.held, 2.25, true);
    });
    this.title("loss", box.right, box.top + 4, "top");
  }

  paintRight(box, across) {
    const { judged, colours } = this;
    const up = axis({ low: 0, high: 100, log: false }, box.bottom, box.top);
    this.grid(box, across, up, true);
    this.clipped(box, () => {
      this.stroke(judged.map(({ step, right }) => [step, 100 * right]), across, up, colours.right, 2.25, true);
    });
    this.title("% right", box.right, box.bottom - 5, "bottom"); // where a good curve is not
  }

  clipped(box, draw) {
    const { pen } = this;
    pen.save();
    pen.beginPath();
    pen.rect(box.left - 4, box.top - 4, box.right - box.left + 8, box.bottom - box.top + 8);
    pen.clip();
    draw();
    pen.restore();
  }

  stroke(points, across, up, colour, width, dotted = false) {
    const { pen } = this;
    const seen = points.filter(([, value]) => Number.isFinite(value));
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.beginPath();
    for (const [step, value] of seen) pen.lineTo(across.at(step), up.at(value));
    pen.stroke();
    if (!dotted || seen.length > 60) return;
    for (const [step, value] of seen) {
      pen.beginPath();
      pen.arc(across.at(step), up.at(value), 3, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  grid(box, across, up, named) {
    const { pen, colours } = this;
    pen.lineWidth = 1;
    pen.strokeStyle = colours.line;
    pen.fillStyle = colours.muted;
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const { at, text } of across.ticks(Math.max(2, (box.right - box.left) / 90))) {
      this.rule(at, box.bottom, at, box.top);
      const edge = Math.min(at, box.right - pen.measureText(text).width / 2 + RIGHT - 1);
      if (named) pen.fillText(text, edge, box.bottom + 7);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const { at, text } of up.ticks(Math.max(2, (box.bottom - box.top) / 36))) {
      this.rule(box.left, at, box.right, at);
      pen.fillText(narrow(text), box.left - 7, at);
    }
  }

  // What an axis tells, within its box.
  title(words, right, y, baseline) {
    const { pen, colours } = this;
    pen.textAlign = "right";
    pen.textBaseline = baseline;
    pen.fillStyle = colours.text;
    pen.fillText(words, right - 5, y);
  }

  rule(x0, y0, x1, y1) {
    const { pen } = this;
    pen.beginPath();
    pen.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
    pen.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    pen.stroke();
  }
}

// A tick's text that fits beside the axis: 1e5 for 100,000.
function narrow(text) {
  return text.length <= 6 ? text : Number(text.replaceAll(",", "")).toExponential().replace("e+", "e");
}

export const inPercent = (share) => `${(100 * share).toFixed(1)} %`;

export function inShort(value) {
  if (!Number.isFinite(value)) return "not a number";
  return value >= 1e4 ? value.toExponential(1) : value.toPrecision(3);
}
