// Line plots and heat maps on a canvas, in the colours of the page.
//
//   const figure = lineFigure(about, arrays);   // or heatFigure; a <figure> element
//   figure.redraw();                            // after the theme or the width changed
import { make } from "../shell.js";
import { axis, spanOf, tidy } from "./scale.js";

const LEFT = 58;
const BOTTOM = 44;
const TOP = 12;
const RIGHT = 14;
const MOST_COLOURS = 8;

export function lineFigure(about, arrays) {
  const [x, ...rest] = arrays;
  const lines = rest.slice(0, about.lines);
  const marks = about.marks ? rest.slice(about.lines) : null;
  const spans = {
    x: spanOf(marks ? [x, marks[0]] : [x], about.log.includes("x")),
    y: spanOf(marks ? [...lines, marks[1]] : lines, about.log.includes("y")),
  };
  const words = `${about.title || "Plot"}: ${lines.length} ${lines.length === 1 ? "line" : "lines"} of ${x.length} points, `
    + `${about.xlabel || "x"} ${tidy(spans.x.low)} to ${tidy(spans.x.high)}, ${about.ylabel || "y"} ${tidy(spans.y.low)} to ${tidy(spans.y.high)}`;
  return figure(about, words, legend(about.labels), (pen, box) => {
    const across = axis(spans.x, box.left, box.right);
    const up = axis(spans.y, box.bottom, box.top);
    grid(pen, box, across, up, about);
    pen.save();
    pen.beginPath();
    pen.rect(box.left - 2, box.top - 2, box.right - box.left + 4, box.bottom - box.top + 4);
    pen.clip();
    lines.forEach((line, k) => stroke(pen, x, line, across, up, colour(pen, k)));
    pen.restore();
    if (marks) dots(pen, marks, across, up);
  });
}

export function heatFigure(about, [values]) {
  const { rows, columns } = about;
  const span = spanOf([values], false, 0);
  const picture = painted(values, rows, columns, span);
  const words = `${about.title || "Heat map"}: ${rows} rows of ${columns} columns, values ${tidy(span.low)} to ${tidy(span.high)}`;
  const scale = make("div", { class: "heat-scale" }, [
    tidy(span.low), make("span", { class: "heat-bar" }), tidy(span.high),
  ]);
  return figure(about, words, scale, (pen, box) => {
    pen.imageSmoothingEnabled = false;
    pen.drawImage(picture, box.left, box.top, box.right - box.left, box.bottom - box.top);
    const across = axis({ low: about.x[0], high: about.x[1], log: false }, box.left, box.right);
    const up = axis({ low: about.y[0], high: about.y[1], log: false }, box.bottom, box.top);
    grid(pen, box, across, up, about, false);
  });
}

// --- the frame of both ----------------------------------------------------------------

function figure(about, words, below, draw) {
  const canvas = make("canvas", { role: "img", "aria-label": words });
  const node = make("figure", { class: "figure" }, [
    ...(about.title ? [make("figcaption", {}, [about.title])] : []),
    canvas,
    ...(below ? [below] : []),
  ]);
  node.redraw = () => {
    const width = Math.max(220, node.clientWidth || 480);
    const height = Math.round(Math.min(340, Math.max(200, width * 0.55)));
    const dense = Math.min(3, devicePixelRatio || 1);
    canvas.width = width * dense;
    canvas.height = height * dense;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.font = `12px ${style(pen, "--sans")}`;
    const left = about.ylabel ? LEFT + 14 : LEFT;
    const bottom = about.xlabel ? BOTTOM : BOTTOM - 16;
    draw(pen, { left, right: width - RIGHT, top: TOP, bottom: height - bottom, width, height });
  };
  return node;
}

function style(pen, name) {
  return getComputedStyle(pen.canvas).getPropertyValue(name).trim();
}

function colour(pen, k) {
  return style(pen, `--series-${(k % MOST_COLOURS) + 1}`);
}

function grid(pen, box, across, up, about, lines = true) {
  pen.lineWidth = 1;
  pen.strokeStyle = style(pen, lines ? "--line" : "--edge");
  pen.fillStyle = style(pen, "--muted");
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const { at, text } of across.ticks(Math.max(2, (box.right - box.left) / 80))) {
    rule(pen, at, box.bottom, at, lines ? box.top : box.bottom + 4);
    pen.fillText(text, at, box.bottom + 7);
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const { at, text } of up.ticks(Math.max(2, (box.bottom - box.top) / 45))) {
    rule(pen, box.left, at, lines ? box.right : box.left - 4, at);
    pen.fillText(text, box.left - 7, at);
  }
  names(pen, box, about);
}

function rule(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
  pen.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  pen.stroke();
}

function names(pen, box, { xlabel, ylabel }) {
  pen.fillStyle = style(pen, "--text");
  pen.textAlign = "center";
  if (xlabel) {
    pen.textBaseline = "bottom";
    pen.fillText(xlabel, (box.left + box.right) / 2, box.height - 3);
  }
  if (ylabel) {
    pen.save();
    pen.translate(4, (box.top + box.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "top";
    pen.fillText(ylabel, 0, 0);
    pen.restore();
  }
}

function legend(labels) {
  if (!labels.length) return null;
  const items = labels.map((label, k) => {
    const item = make("li", {}, [label]);
    item.style.setProperty("--swatch", `var(--series-${(k % MOST_COLOURS) + 1})`);
    return item;
  });
  return make("ul", { class: "figure-legend" }, items);
}

// --- lines, dots, pixels --------------------------------------------------------------

function stroke(pen, xs, ys, across, up, ink) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1.75;
  pen.lineJoin = "round";
  pen.beginPath();
  let down = false;
  for (let i = 0; i < xs.length; i += 1) {
    const x = across.at(xs[i]);
    const y = up.at(ys[i]);
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      down = false;
    } else if (down) {
      pen.lineTo(x, y);
    } else {
      pen.moveTo(x, y);
      down = true;
    }
  }
  pen.stroke();
  if (xs.length <= 40) dots(pen, [xs, ys], across, up, ink, 2.5);
}

function dots(pen, [xs, ys], across, up, ink = style(pen, "--series-2"), size = 4.5) {
  pen.fillStyle = ink;
  for (let i = 0; i < xs.length; i += 1) {
    const x = across.at(xs[i]);
    const y = up.at(ys[i]);
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    pen.fill();
  }
}

// Five colours from dark to light, evenly readable; the bar in the style sheet has them too.
const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function painted(values, rows, columns, { low, high }) {
  const canvas = make("canvas", { width: columns, height: rows });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns, rows);
  const range = high - low || 1;
  for (let r = 0; r < rows; r += 1) {
    for (let c = 0; c < columns; c += 1) {
      const to = 4 * ((rows - 1 - r) * columns + c); // the first row is at the bottom
      const part = (values[r * columns + c] - low) / range;
      if (!Number.isFinite(part)) continue; // stays transparent
      const place = Math.max(0, Math.min(1, part)) * (COLOURS.length - 1);
      const k = Math.min(COLOURS.length - 2, Math.floor(place));
      for (let rgb = 0; rgb < 3; rgb += 1) {
        image.data[to + rgb] = COLOURS[k][rgb] + (place - k) * (COLOURS[k + 1][rgb] - COLOURS[k][rgb]);
      }
      image.data[to + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}
