// Axes of frequency and of levels, as the chart and the waterfall have them.

const FLOOR = 1e-30; // what a power of zero counts as on a logarithmic axis

// The frequencies that are in view: on a logarithmic axis from the first bin above zero.
export function spanOf({ from, to, logHz }, { first = 0, step }) {
  if (!logHz) return { from, to };
  const least = first > 0 ? first : first + step;
  const low = Math.max(from, least);
  return low < to ? { from: low, to } : { from: to / 10, to };
}

// Where a frequency lies between two edges in pixels.
export function across(left, right, { from, to }, logHz) {
  if (!logHz) return (hz) => left + ((hz - from) * (right - left)) / (to - from);
  const perLog = (right - left) / Math.log(to / from);
  return (hz) => left + Math.log(Math.max(hz, from / 10) / from) * perLog;
}

// The first and the last bin that a span touches.
export function visible({ from, to }, bins, first, step) {
  const at = (hz) => (hz - first) / step;
  return [Math.max(0, Math.floor(at(from))), Math.min(bins - 1, Math.ceil(at(to)))];
}

export function decibels(power) {
  return 10 * Math.log10(Math.max(power, FLOOR));
}

// Round numbers between two values, about `count` of them.
export function ticks(low, high, count) {
  const raw = (high - low) / Math.max(2, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= raw);
  const out = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at++) out.push(at * step);
  return out;
}

// The same of frequencies: 1, 2, 5 of each decade, or its beginning, on a logarithmic axis.
export function hzTicks({ from, to }, count, logHz) {
  const decades = logHz ? Math.log10(to / from) : 0;
  if (decades < 1) return ticks(from, to, count);
  const parts = 3 * decades <= 2 * count ? [1, 2, 5] : [1];
  const out = [];
  for (let power = Math.floor(Math.log10(from)); 10 ** power <= to; power++) {
    for (const part of parts) {
      const hz = Number((part * 10 ** power).toPrecision(6));
      if (hz >= from && hz <= to * (1 + 1e-9)) out.push(hz);
    }
  }
  return out;
}

export function plain(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(0);
  return String(Number(value.toPrecision(6)));
}

export function stroke(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

// What a canvas is painted with: the page's colours of now, and its letters.
export function paints() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    ground: value("--surface"), text: value("--text"), muted: value("--muted"),
    line: value("--line"), accent: value("--accent"), raised: value("--raised"),
    font: getComputedStyle(document.body).fontFamily,
  };
}

// As many pixels as the screen has for it.
export function sharpen(canvas, pen) {
  const ratio = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
}

// Words in the middle, where there is nothing to draw.
export function sayOn(pen, { muted, font }, words, width, height) {
  pen.fillStyle = muted;
  pen.font = `15px ${font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const lines = wrapped(words, Math.floor((width - 40) / 8));
  lines.forEach((line, at) => pen.fillText(line, width / 2, height / 2 + 22 * (at - (lines.length - 1) / 2)));
}

function wrapped(words, most) {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += `${lines.at(-1) ? " " : ""}${word}`;
  }
  return lines;
}
