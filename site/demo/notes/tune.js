// A sound whose notes are known, for who has none at hand: plucked strings.
const FS = 22050;
const BEAT = 0.3; // s
// [beat, lasts beats, keys of MIDI …]
const TUNE = [
  [0, 2, 57, 64], [2, 1, 69], [3, 1, 72], [4, 2, 55, 76], [6, 1, 74], [7, 1, 71],
  [8, 2, 53, 69], [10, 1, 72], [11, 1, 76], [12, 4, 52, 64, 68, 71],
];

export function tune() {
  const beats = Math.max(...TUNE.map(([at, long]) => at + long));
  const samples = new Float32Array(Math.ceil((beats * BEAT + 0.6) * FS));
  for (const [at, long, ...keys] of TUNE) for (const key of keys) pluck(samples, 0.1 + at * BEAT, long * BEAT, key);
  const most = samples.reduce((sum, x) => Math.max(sum, Math.abs(x)), 0);
  return { samples: samples.map((x) => (0.8 * x) / most), fs: FS };
}

function pluck(samples, from, seconds, key) {
  const hz = 440 * 2 ** ((key - 69) / 12);
  const first = Math.round(from * FS);
  const count = Math.round(seconds * FS);
  for (let n = 0; n < count; n++) {
    const t = n / FS;
    const loud = Math.min(1, 200 * t, 60 * (seconds - t)) * Math.exp(-2.5 * t);
    let x = 0;
    for (let part = 1; part <= 6; part++) x += (Math.sin(2 * Math.PI * hz * part * t) * Math.exp(-part * t)) / part;
    samples[first + n] += loud * x;
  }
}
