// Axes: the span of the data, where a value lies on the canvas, and round ticks.

// The finite values of some arrays, with a little air (`room`, in parts) around them.
export function spanOf(arrays, log, room = 0.04) {
  let low = Infinity;
  let high = -Infinity;
  for (const array of arrays) {
    for (const value of array) {
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return log ? { low: 1, high: 10, log } : { low: 0, high: 1, log };
  if (log) {
    const air = (high / low) ** room;
    return { low: low / Math.max(air, 1.05), high: high * Math.max(air, 1.05), log };
  }
  const air = low === high && room ? Math.abs(low) * 0.1 || 1 : (high - low) * room;
  return { low: low - air, high: high + air, log };
}

// {at(value) → pixel, ticks(about how many) → [{at, text}]}
export function axis({ low, high, log }, from, to) {
  const flat = log ? Math.log10 : (value) => value;
  const start = flat(low);
  const range = flat(high) - start || 1;
  const at = (value) => from + ((flat(value) - start) / range) * (to - from);
  const values = log ? powers(low, high) : (most) => round(low, high, most);
  return {
    at,
    ticks: (most) => values(most).map((value) => ({ at: at(value), text: tidy(value) })),
  };
}

function round(low, high, most) {
  const [small, large] = low <= high ? [low, high] : [high, low];
  const rough = (large - small) / most;
  const unit = 10 ** Math.floor(Math.log10(rough || 1));
  const step = unit * ([1, 2, 5, 10].find((k) => k * unit >= rough) ?? 10);
  const first = Math.ceil(small / step - 1e-9);
  const last = Math.floor(large / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => (first + k) * step);
}

// Powers of ten; between few of them also 2 and 5.
function powers(low, high) {
  const decades = Math.log10(high / low);
  const parts = decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 2, 3, 5, 7];
  return (most) => {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const part of parts) all.push(part * 10 ** power);
    }
    const inside = all.filter((value) => value >= low && value <= high);
    const every = Math.ceil(inside.length / Math.max(2, most + 2));
    return inside.filter((_, k) => k % every === 0);
  };
}

// A tick's or a bound's text: 0.25, 1,000, 3e-7.
export function tidy(value) {
  const near = Number(value.toPrecision(6));
  const size = Math.abs(near);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return Number(near.toPrecision(3)).toExponential().replace("e+", "e");
  return Number(near.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}
