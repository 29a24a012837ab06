// Colours of rows, and of values.
const SERIES = 8;

// A row's own colour, and whether its line is dashed.
export function lookOf(row) {
  const name = `--series-${(row % SERIES) + 1}`;
  const ink = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return { ink, dashed: Math.floor(row / SERIES) % 2 === 1 };
}

// 256 colours between stops, as a canvas holds its pixels.
export function scaleOf(stops) {
  return Uint32Array.from({ length: 256 }, (_, at) => {
    const place = (at / 255) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    const part = place - low;
    const [red, green, blue] = stops[low].map((one, n) => Math.round(one + part * (stops[low + 1][n] - one)));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

export function css(pixel) {
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

// Black or white, whichever is read better on a colour "#rrggbb".
export function onTop(ink) {
  const light = [1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16) / 255)
    .map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
  const own = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  return 1.05 / (own + 0.05) >= (own + 0.05) / 0.05 ? "#fff" : "#000";
}
