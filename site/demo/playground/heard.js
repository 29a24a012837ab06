// What a program says, made fit to be shown.
//
// A program can send more than Python's `print` and `plot` would. Here each message is
// looked at: of what is known the words, numbers and arrays are taken, within bounds, and
// the rest is dropped.

const MOST_CHARACTERS = 400_000;
const MOST_FIGURES = 40;
const MOST_NUMBERS = 4_000_000;
const MOST_SIDE = 16_384; // of a canvas
const MOST_WORDS = 200;
const MOST_LABELS = 64;
const MOST_FRAMES = 16;
const LINE = 5_000;

// One run's: `take` gives {out}, {err}, {value}, {plot, arrays}, {heat, arrays} or null.
export class Heard {
  constructor() {
    this.left = MOST_CHARACTERS;
    this.figures = 0;
    this.dropped = 0; // lines and figures that were not shown
  }

  take(data, arrays) {
    const said = known(data, arrays);
    if (!said || !this.pays(said)) this.dropped += 1;
    else return said;
    return null;
  }

  pays(said) {
    if (said.arrays) return (this.figures += 1) <= MOST_FIGURES;
    this.left -= 1 + (said.out ?? said.err ?? said.value).length;
    return this.left >= 0;
  }
}

function known(data, arrays) {
  if (typeof data !== "object" || data === null) return null;
  for (const kind of ["out", "err", "value"]) {
    if (typeof data[kind] === "string") return { [kind]: data[kind].slice(0, 3 * LINE) };
  }
  if (!Array.isArray(arrays) || !arrays.every((one) => one instanceof Float32Array)) return null;
  if (arrays.reduce((sum, one) => sum + one.length, 0) > MOST_NUMBERS) return null;
  if (isObject(data.plot)) return knownPlot(data.plot, arrays);
  if (isObject(data.heat)) return knownHeat(data.heat, arrays);
  return null;
}

function knownPlot(about, arrays) {
  const lines = count(about.lines);
  const marks = about.marks === true;
  const [x, ...rest] = arrays;
  if (!x?.length || !lines || rest.length !== lines + (marks ? 2 : 0)) return null;
  if (rest.slice(0, lines).some((line) => line.length !== x.length)) return null;
  if (marks && rest.at(-1).length !== rest.at(-2).length) return null;
  const labels = Array.isArray(about.labels) ? about.labels.slice(0, MOST_LABELS).map(words) : [];
  return { plot: { ...axisWords(about), labels, lines, marks, log: words(about.log) }, arrays };
}

function knownHeat(about, arrays) {
  const [rows, columns] = [count(about.rows), count(about.columns)];
  if (!rows || !columns || Math.max(rows, columns) > MOST_SIDE) return null;
  if (arrays.length !== 1 || arrays[0].length !== rows * columns) return null;
  const axes = { x: bounds(about.x, columns), y: bounds(about.y, rows) };
  return { heat: { ...axisWords(about), rows, columns, ...axes }, arrays };
}

// How a run ended: {error: null or {type, message, frames, hint}, dropped}.
export function heardEnd(result) {
  const { error, dropped } = isObject(result) ? result : {};
  return { error: isObject(error) ? knownError(error) : null, dropped: count(dropped) };
}

function knownError({ type, message, frames, hint }) {
  const places = Array.isArray(frames) ? frames.slice(0, MOST_FRAMES) : [];
  return {
    type: words(type) || "Error",
    message: text(message, LINE),
    hint: words(hint),
    frames: places.map((one) => isObject(one)
      ? { line: count(one.line), name: words(one.name), text: text(one.text, LINE) }
      : null),
  };
}

// --- the parts ------------------------------------------------------------------------

function isObject(value) {
  return typeof value === "object" && value !== null;
}

function text(value, most) {
  return typeof value === "string" ? value.slice(0, most) : "";
}

function words(value) {
  return text(value, MOST_WORDS);
}

function axisWords({ title, xlabel, ylabel }) {
  return { title: words(title), xlabel: words(xlabel), ylabel: words(ylabel) };
}

function count(value) {
  return Number.isSafeInteger(value) && value > 0 ? value : 0;
}

function bounds(pair, length) {
  const good = Array.isArray(pair) && pair.length === 2 && pair.every(Number.isFinite);
  return good ? pair : [0, length - 1];
}
