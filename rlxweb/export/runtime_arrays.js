// --- arrays ---

// What numbers of 64 bits are on a GPU, which has none.
const NARROW = { i64: Int32Array, u64: Uint32Array };

// An input as its buffer holds it, in whole words: a bool takes one.
function checked(name, { dtype, shape, between }, x) {
  const wanted = `${shape.map(said).join(" × ") || "1"} = ${said(sizeOf(shape))} values, the last axis fastest`;
  // By its tag: an array of another frame is no instance of ours.
  const kind = x?.[Symbol.toStringTag] ?? x?.constructor?.name ?? `${x}`;
  if (kind !== ARRAYS[dtype].name && kind !== NARROW[dtype]?.name) {
    throw new RlxError("dtype", `${name} is ${kind}; it must be a ${ARRAYS[dtype].name} (${dtype}) of ${wanted}`);
  }
  if (x.length !== sizeOf(shape)) {
    throw new RlxError("shape", `${name} has ${said(x.length)} values; it must have ${wanted}`);
  }
  if (dtype === "bool") return Uint32Array.from(x, Boolean);
  if (between) return narrowed(name, dtype, between, x);
  return x.byteLength % 4 ? Uint16Array.from({ length: x.length + 1 }, (_, i) => x[i]) : x;
}

// Of these bounds the plan was made sure that all it computes fits 32 bits.
function narrowed(name, dtype, [low, high], x) {
  const wrong = x.findIndex((value) => value < low || value > high);
  if (wrong >= 0) {
    throw new RlxError("range", `${name} is ${said(x[wrong])} at index ${said(wrong)}; GPUs do not support ${dtype}, and this plan accepts only ${said(low)} to ${said(high)}`);
  }
  return NARROW[dtype].from(x, Number);
}

// A part of some bytes as an array of its own.
function arrayOf(dtype, bytes, from, nbytes) {
  const { buffer } = bytes.slice(from, from + nbytes);
  if (NARROW[dtype]) return ARRAYS[dtype].from(new NARROW[dtype](buffer), BigInt);
  return dtype === "bool" ? Uint8Array.from(new Uint32Array(buffer), Boolean) : new ARRAYS[dtype](buffer);
}

// How many were compared, and the worst.
function compare(found, file, { from, nbytes, dtype, rtol, atol, repeats }) {
  const wanted = arrayOf(dtype, file, from, nbytes);
  const value = dtype === "f16" ? halfOf : Number;
  let worst = { n: 0, share: -1 };
  for (let index = 0; index < (repeats ? found.length : wanted.length); index += 1) {
    const [got, want] = [value(found[index]), value(wanted[index % wanted.length])];
    if (!Number.isFinite(want)) continue;
    const share = got === want ? 0 : Math.abs(got - want) / (atol + rtol * Math.abs(want));
    const n = worst.n + 1;
    worst = share <= worst.share ? { ...worst, n } : { n, share: Number.isNaN(share) ? Infinity : share, index, got, want };
  }
  return worst;
}

// Of an f16's bits.
function halfOf(bits) {
  const [e, rest] = [bits >> 10 & 31, bits & 1023];
  const size = e > 30 ? (rest ? NaN : Infinity) : e ? (1024 + rest) * 2 ** (e - 25) : rest * 2 ** -24;
  return bits >> 15 ? -size : size;
}

function sizeOf(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

// --- Welch's method ---

function outputsOf({ output, rows, bins, k }) {
  const of = (dtype, ...shape) => ({ dtype, shape });
  const peaks = { hz: of("f64", rows, k), power: of("f32", rows, k), bins: of("i32", rows, k), count: of("i32", rows) };
  const [hz, power] = [of("f64", bins), of("f32", rows, bins)];
  return output === "peaks" ? peaks : output === "power" ? { hz, power } : { ...peaks, freqs: hz, spectrum: power };
}

// Rows as Python makes them ready: those whose squares would overflow or vanish are divided by
// a power of two, which changes no digit. A row's own power is the answer times 2^by; `energy`
// is the mean square of the samples that are read.
function readyRows({ rows, samples, used, least, most, shift }, given) {
  const [energy, by] = [new Float64Array(rows), new Int32Array(rows)];
  let x = given;
  for (let row = 0; row < rows; row += 1) {
    const own = given.subarray(row * samples, (row + 1) * samples);
    let [sum, largest] = measured(own, used, row);
    let up = 0;
    if (largest > 0 && !(sum >= least && sum <= most)) {
      up = Math.ceil(Math.log2(largest));
      if (x === given) x = given.slice();
      const scaled = own.map((value) => value * 2 ** -up);
      x.set(scaled, row * samples);
      [sum] = measured(scaled, used, row);
    }
    energy[row] = sum / used;
    by[row] = 2 * up + shift;
  }
  return { x, energy, by };
}

function measured(own, used, row) {
  let [sum, largest] = [0, 0];
  for (let i = 0; i < own.length; i += 1) {
    const size = Math.abs(own[i]);
    if (!(size < Infinity)) {
      throw new RlxError("not-finite", `row ${row} of x is ${own[i]} at sample ${said(i)} of ${said(own.length)}; repair the data, or omit the row`);
    }
    if (i < used) {
      sum += size * size;
      largest = Math.max(largest, size);
    }
  }
  return [sum, largest];
}

// Results of raw outputs: pairs of bin and power, whole spectra.
function peaksOf(welch, floor, { energy, by }, raw) {
  const { output, rows, bins: width, k, fs, nfft } = welch;
  const [pairs, spectrum] = [raw[welch.peaks], raw[welch.power]];
  const found = {
    hz: new Float64Array(rows * k).fill(NaN), power: new Float32Array(rows * k).fill(NaN),
    bins: new Int32Array(rows * k).fill(-1), count: new Int32Array(rows),
  };
  for (let row = 0; row < rows; row += 1) {
    const own = pairs?.subarray(row * 2 * k, (row + 1) * 2 * k);
    const heights = own?.filter((_, i) => i % 2);
    const parts = [spectrum?.subarray(row * width, (row + 1) * width), heights].filter(Boolean);
    restore(parts, energy[row], by[row], row, welch.floor_highest);
    // Those first that are more than rounding may leave; places behind them stay empty.
    for (let j = 0; j < k; j += 1) {
      const bin = own[2 * j];
      if (!(heights[j] > times(energy[row], by[row]) * floor[bin])) continue;
      const to = row * k + found.count[row];
      [found.bins[to], found.hz[to], found.power[to]] = [bin, bin * fs / nfft, heights[j]];
      found.count[row] += 1;
    }
  }
  if (output === "peaks") return found;
  const freqs = Float64Array.from({ length: width }, (_, bin) => bin * fs / nfft);
  return output === "power" ? { hz: freqs, power: spectrum } : { ...found, freqs, spectrum };
}

// A row's own power from that of the row as it was divided. The strongest has to be a float32.
function restore(parts, energy, by, row, highest) {
  if (!by) return;
  const most = parts[0].reduce((a, b) => Math.max(a, b), 0);
  const own = times(most, by);
  if ((own > F32_MOST && own < Infinity) || (most > energy * highest && own < F32_LEAST)) {
    throw new RlxError("range", `the power of row ${row} is about 1e${Math.round(Math.log10(own))}; float32 ranges from 1e-38 to 3e38; scale the samples`);
  }
  for (const part of parts) part.forEach((value, i) => { part[i] = times(value, by); });
}

// value · 2^e, where 2^e itself may be no number.
function times(value, e) {
  const half = e >> 1;
  return value * 2 ** half * 2 ** (e - half);
}

// JavaScript's own errors: too little memory, or of a plan that is not whole.
function ours(error, what) {
  const { name, message } = error ?? {};
  if (!/^(Range|Type)Error$/.test(name)) return error;
  const [problem, code, hint] = /alloc|memory/i.test(message) ? ["ran out of memory", ...SCOPES[1].slice(1)] : ["is not a complete plan", "plan", AGAIN];
  return new RlxError(code, `${what} ${problem}: ${message}; ${hint}`, error);
}

function said(n) {
  return n.toLocaleString("en-US");
}

// What it fails with is looked at later.
function quiet(promise) {
  promise.catch(() => {});
  return promise;
}
