// The map from levels to colours, of the waterfall and the overview: viridis, as
// rlxweb.plot has it. Its steps of lightness are even, for every kind of sight.

const STOPS = [
  [68, 1, 84], [72, 40, 120], [62, 73, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
const COLOURS = Uint32Array.from({ length: 256 }, (_, at) => colour(at / 255));
const WIDE = 80; // of the key, in pixels

// A level between two as a pixel of ImageData.
export function colourOf(level, { low, high }) {
  return COLOURS[Math.round(255 * Math.min(1, Math.max(0, (level - low) / (high - low))))];
}

// What the colours say, below a box.
export function key(pen, { muted, font }, box, { low, high }, unit, width) {
  const top = box.bottom + 22;
  for (let at = 0; at < STOPS.length; at++) {
    pen.fillStyle = `rgb(${STOPS[at].join(" ")})`;
    pen.fillRect(box.left + (WIDE / STOPS.length) * at, top, WIDE / STOPS.length, 9);
  }
  pen.font = `12px ${font}`;
  pen.fillStyle = muted;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const words = `${low.toFixed(0)} … ${high.toFixed(0)} dB`;
  const whole = unit ? `${words} re 1 ${unit}²/Hz` : words;
  const room = width - box.left - WIDE - 50;
  pen.fillText(pen.measureText(whole).width < room ? whole : words, box.left + WIDE + 6, top + 5);
}

// For a machine that stores the low byte first, as all that run browsers do.
function colour(share) {
  const at = share * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const [r, g, b] = STOPS[low].map((from, part) => Math.round(from + (at - low) * (STOPS[low + 1][part] - from)));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
