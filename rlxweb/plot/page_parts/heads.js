// Maps of the head: the share of a band at each electrode, smoothed between them.
import { paints } from "./demo/live/axis.js";
import { scaleOf } from "./colours.js";
import { make } from "./demo/make.js";
import { Tip } from "./tip.js";
import { unpacked } from "./unpack.js";

const SIZE = 152;
const NOSE = 12;

export async function heads(found, bands, rows, stops) {
  const cells = await unpacked(found.cells, Uint8Array);
  const colours = scaleOf(stops);
  const size = found.side * found.side;
  const maps = bands.map((band, at) => new Head(found, band, at, rows, cells.subarray(at * size, (at + 1) * size), colours));
  return { element: make("div", { class: "heads" }, maps.map((one) => one.element)), paint: () => maps.forEach((one) => one.paint()) };
}

class Head {
  constructor(found, band, at, rows, cells, colours) {
    Object.assign(this, { found, band, at, rows });
    this.image = drawn(found.side, cells, colours);
    this.canvas = make("canvas", { role: "img" });
    this.pen = this.canvas.getContext("2d");
    const [low, high] = found.ends[at].map((share) => `${(100 * share).toFixed(1)} %`);
    this.canvas.setAttribute("aria-label", `${band.name}: ${low} to ${high} of the power, by electrode`);
    const stage = make("div", { class: "stage head" }, [make("div", {}, [band.name]), this.canvas, make("div", { class: "ends" }, [make("span", {}, [low]), make("span", {}, [high])])]);
    this.tip = new Tip(stage);
    this.element = stage;
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.tip.hide());
    this.paint();
  }

  // Where a place on the head lies on the canvas.
  place([x, y]) {
    const half = SIZE / 2 - 2;
    return [SIZE / 2 + (x / this.found.reach) * half, SIZE / 2 + NOSE - (y / this.found.reach) * half];
  }

  paint() {
    const { pen, canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [SIZE * ratio, (SIZE + NOSE) * ratio];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ink = paints();
    const half = SIZE / 2 - 2;
    const [x, y] = this.place([0, 0]);
    pen.save();
    pen.beginPath();
    pen.arc(x, y, half, 0, 2 * Math.PI);
    pen.clip();
    pen.imageSmoothingEnabled = true;
    pen.drawImage(this.image, x - half, y - half, 2 * half, 2 * half);
    pen.restore();
    pen.strokeStyle = ink.muted;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, half, 0, 2 * Math.PI);
    pen.moveTo(x - 7, y - half + 1);
    pen.lineTo(x, y - half - 8);
    pen.lineTo(x + 7, y - half + 1);
    pen.stroke();
    for (const at of this.found.at) {
      pen.beginPath();
      pen.arc(...this.place(at), 1.8, 0, 2 * Math.PI);
      pen.fillStyle = "#000";
      pen.strokeStyle = "#fff";
      pen.lineWidth = 0.8;
      pen.fill();
      pen.stroke();
    }
  }

  point({ offsetX, offsetY }) {
    const far = this.found.at.map((at) => {
      const [x, y] = this.place(at);
      return Math.hypot(x - offsetX, y - offsetY);
    });
    const at = far.indexOf(Math.min(...far));
    if (far[at] > 14) return this.tip.hide();
    const row = this.rows[this.found.rows[at]];
    this.tip.show(offsetX, offsetY + 20, row.name, [[this.band.name, `${(100 * row.share[this.at]).toFixed(1)} %`, false]]);
  }
}

function drawn(side, cells, colours) {
  const image = new ImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  cells.forEach((share, at) => {
    if (share) pixels[at] = colours[Math.round(((share - 1) / 254) * 255)];
  });
  const own = document.createElement("canvas");
  [own.width, own.height] = [side, side];
  own.getContext("2d").putImageData(image, 0, 0);
  return own;
}
