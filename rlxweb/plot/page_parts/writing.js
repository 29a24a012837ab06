// Words on a canvas, and what colours stand for.
import { plain, ticks } from "./demo/live/axis.js";
import { css } from "./colours.js";

export function shortened(pen, words, room) {
  if (pen.measureText(words).width <= room) return words;
  let count = words.length;
  while (count > 1 && pen.measureText(`${words.slice(0, count)}…`).width > room) count--;
  return `${words.slice(0, count)}…`;
}

// What the colours stand for, to the right of a box.
export function colourBar(pen, ink, box, colours, { limits, colours: own, label }) {
  const [low, high] = Array.isArray(own) ? own : limits;
  const left = box.right + 10;
  const tall = box.bottom - box.top;
  for (let at = 0; at < tall; at++) {
    pen.fillStyle = css(colours[Math.round(255 * (1 - at / tall))]);
    pen.fillRect(left, box.top + at, 10, 1.5);
  }
  pen.font = `11px ${ink.font}`;
  pen.fillStyle = ink.muted;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const level of ticks(low, high, tall / 40)) pen.fillText(plain(level), left + 14, box.bottom - ((level - low) / (high - low)) * tall);
  pen.save();
  pen.translate(box.right + 66, (box.top + box.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(shortened(pen, label, tall), 0, 0);
  pen.restore();
}
