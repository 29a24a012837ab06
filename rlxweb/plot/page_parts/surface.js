// Power over time and frequency: a picture for each channel, all moved together.
import { hzTicks, paints, plain, sharpen, stroke, ticks } from "./demo/live/axis.js";
import { scaleOf } from "./colours.js";
import { make } from "./demo/make.js";
import { Tip } from "./tip.js";
import { choice, legend, zoomButtons } from "./tools.js";
import { firstAtOrAbove } from "./trace.js";
import { unpacked } from "./unpack.js";
import { colourBar } from "./writing.js";
import { steer, View } from "./zoom.js";

export async function surface(panel, stops, log) {
  const cells = await unpacked(panel.cells, Uint8Array);
  return new Surfaces(panel, cells, scaleOf(stops), log);
}

class Surfaces {
  constructor(panel, cells, colours, log) {
    Object.assign(this, { panel, colours, log });
    const size = (panel.f.length - 1) * (panel.t.length - 1);
    this.shown = new Set(panel.rows.keys());
    this.view = new View(...this.home());
    this.pictures = panel.rows.map((row, at) => new Surface(this, row.name, cells.subarray(at * size, (at + 1) * size)));
    this.view.listeners.push(() => this.pictures.forEach((one) => one.paint()));
    this.element = this.parts();
  }

  home() {
    const { f, t } = this.panel;
    const low = this.log && f[0] <= 0 ? f[1] : f[0];
    return [{ x: [t[0], t.at(-1)], y: [low, f.at(-1)] }, { x: false, y: this.log }];
  }

  parts() {
    const { panel, view } = this;
    const tools = make("div", { class: "tools" }, [
      choice("Frequency", [["linear", "Linear"], ["log", "Log"]], this.log ? "log" : "linear", (value) => {
        this.log = value === "log";
        view.renew(...this.home());
      }),
      zoomButtons(view),
    ]);
    const show = () => this.pictures.forEach((one, at) => {
      one.element.hidden = !this.shown.has(at);
    });
    const merged = panel.merged > 1 ? ` · each column shows the ${panel.scale === "cycle" ? "first" : "strongest"} of ${panel.merged} neighbouring columns` : "";
    const picks = panel.rows.length > 1 ? legend(panel.rows, this.shown, show, { inks: false }) : [];
    return make("section", { class: "panel picture", "aria-label": "Spectrograms" }, [
      make("p", { class: "facts" }, [`${panel.facts}${merged}`]), tools, ...picks, ...this.pictures.map((one) => one.element),
    ]);
  }

  paint() {
    this.pictures.forEach((one) => one.paint());
  }
}

class Surface {
  constructor(all, name, cells) {
    Object.assign(this, { all, name, cells });
    const { panel, view } = all;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart" });
    this.canvas.setAttribute("aria-label", `Spectrogram of ${name}, ${panel.label} over time and frequency. Keys: plus, minus, arrows, 0.`);
    this.pen = this.canvas.getContext("2d");
    const stage = make("div", { class: `stage${panel.rows.length > 1 ? " small" : ""}` }, [this.canvas]);
    this.tip = new Tip(stage);
    this.element = make("div", {}, [make("h2", { class: "panel-name" }, [name]), stage]);
    steer(this.canvas, view, () => this.box());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.tip.hide());
    this.image = this.drawn();
    new ResizeObserver(() => {
      sharpen(this.canvas, this.pen);
      this.paint();
    }).observe(this.canvas);
  }

  // All cells, a pixel each, the highest frequency on top.
  drawn() {
    const { panel, colours } = this.all;
    const [wide, tall] = [panel.t.length - 1, panel.f.length - 1];
    const image = new ImageData(wide, tall);
    const pixels = new Uint32Array(image.data.buffer);
    for (let f = 0; f < tall; f++) {
      for (let t = 0; t < wide; t++) {
        const share = this.cells[f * wide + t];
        if (share) pixels[(tall - 1 - f) * wide + t] = colours[Math.round(((share - 1) / 254) * 255)];
      }
    }
    const own = document.createElement("canvas");
    [own.width, own.height] = [wide, tall];
    own.getContext("2d").putImageData(image, 0, 0);
    return own;
  }

  box() {
    const { clientWidth, clientHeight } = this.canvas;
    return { left: 52, top: 6, right: clientWidth - 74, bottom: clientHeight - 36 };
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const { pen } = this;
    const { panel, view, colours, log } = this.all;
    const ink = paints();
    const box = this.box();
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = ink.line;
    pen.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    this.colour(box);
    this.axes(box, ink, view, log);
    colourBar(pen, ink, box, colours, { limits: panel.limits, label: panel.label });
  }

  // Frequency by frequency, so that any axis will do; cells thinner than a pixel at once.
  colour(box) {
    const { pen, image } = this;
    const { panel: { f, t }, view, log } = this.all;
    const x = (s) => box.left + view.share("x", s) * (box.right - box.left);
    const y = (hz) => box.bottom - view.share("y", hz) * (box.bottom - box.top);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const [left, right] = [x(t[0]), x(t.at(-1))];
    const even = f.length > 2 && Math.abs(f.at(-1) - f.at(-2) - (f[1] - f[0])) < 1e-6 * f.at(-1);
    if (even && !log) {
      pen.drawImage(image, left, y(f.at(-1)), right - left, y(f[0]) - y(f.at(-1)));
    } else {
      const tall = f.length - 1;
      for (let at = log && f[0] <= 0 ? 1 : 0; at < tall; at++) {
        const [top, bottom] = [y(f[at + 1]), y(f[at])];
        if (bottom < box.top || top > box.bottom) continue;
        pen.drawImage(image, 0, tall - 1 - at, image.width, 1, left, top, right - left, bottom - top + 0.5);
      }
    }
    pen.restore();
  }

  axes(box, ink, view, log) {
    const { pen } = this;
    pen.font = `11px ${ink.font}`;
    pen.strokeStyle = ink.muted;
    pen.fillStyle = ink.muted;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const s of ticks(...view.span("x"), (box.right - box.left) / 90)) {
      const at = box.left + view.share("x", s) * (box.right - box.left);
      stroke(pen, at, box.bottom, at, box.bottom + 4);
      pen.fillText(plain(s), at, box.bottom + 6);
    }
    const since = this.all.panel.since;
    pen.fillText(`time${since ? ` ${since}` : ""} (s)`, (box.left + box.right) / 2, box.bottom + 20);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const [from, to] = view.span("y");
    for (const hz of hzTicks({ from, to }, (box.bottom - box.top) / 32, log)) {
      const at = box.bottom - view.share("y", hz) * (box.bottom - box.top);
      stroke(pen, box.left - 4, at, box.left, at);
      pen.fillText(plain(hz), box.left - 6, at);
    }
    pen.save();
    pen.translate(9, (box.top + box.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(`Hz, ${log ? "log" : "linear"}`, 0, 0);
    pen.restore();
  }

  point(event) {
    const box = this.box();
    const { offsetX: px, offsetY: py } = event;
    if (event.buttons || px < box.left || px > box.right || py < box.top || py > box.bottom) return this.tip.hide();
    const { panel, view } = this.all;
    const { f, t, limits } = panel;
    const s = view.value("x", (px - box.left) / (box.right - box.left));
    const hz = view.value("y", (box.bottom - py) / (box.bottom - box.top));
    const column = Math.min(t.length - 2, Math.max(0, firstAtOrAbove(t, s) - 1));
    const row = Math.min(f.length - 2, Math.max(0, firstAtOrAbove(f, hz) - 1));
    const share = this.cells[row * (t.length - 1) + column];
    const level = limits[0] + ((share - 1) / 254) * (limits[1] - limits[0]);
    const edge = share === 255 ? "≥ " : share === 1 ? "≤ " : "";
    const said = share ? `${edge}${level.toFixed(1)}${panel.label.startsWith("power") ? " dB" : ""}` : "none";
    const middle = (edges, at) => (edges[at] + edges[at + 1]) / 2;
    this.tip.show(px, py, `${plain(Number(middle(t, column).toFixed(3)))} s, ${plain(Number(middle(f, row).toFixed(3)))} Hz`, [[this.name, said, true]]);
  }
}
