// A line of many points as one of few: of what falls into a pixel its least and its
// most, so that no narrow peak is lost.

// x rising, y (NaN where there is none), both of a row. Calls line(px, py, begins).
export function trace(x, y, toX, toY, from, to, line) {
  let at = Math.max(0, firstAtOrAbove(x, from) - 1);
  const last = Math.min(x.length - 1, firstAtOrAbove(x, to));
  let begins = true;
  while (at <= last) {
    const px = toX(x[at]);
    const pixel = Math.floor(px);
    let [least, most, first, end] = [NaN, NaN, NaN, NaN];
    const start = at;
    for (; at <= last && Math.floor(toX(x[at])) === pixel; at++) {
      const value = y[at];
      if (!Number.isFinite(value)) continue;
      if (Number.isNaN(first)) [first, least, most] = [value, value, value];
      end = value;
      if (value < least) least = value;
      if (value > most) most = value;
    }
    if (Number.isNaN(first)) {
      begins = true;
      continue;
    }
    const points = at - start === 1 ? [first] : [first, least, most, end];
    for (const value of points) {
      line(points.length === 1 ? px : pixel + 0.5, toY(value), begins);
      begins = false;
    }
  }
}

export function firstAtOrAbove(x, value) {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
