// A synthetic EEG, made chunk by chunk as time goes by: rhythms whose strength the sliders
// set, waxing and waning as real ones do, over noise that falls with frequency.
import { Ring } from "./ring.js";

export const RHYTHMS = [
  { name: "delta", hz: 2, sign: "δ", amplitude: 8, front: 1, back: 0.7 },
  { name: "theta", hz: 6, sign: "θ", amplitude: 8, front: 1, back: 0.4 },
  { name: "alpha", hz: 10, sign: "α", amplitude: 20, front: 0.35, back: 1 },
  { name: "beta", hz: 20, sign: "β", amplitude: 6, front: 1, back: 0.6 },
  { name: "gamma", hz: 40, sign: "γ", amplitude: 3, front: 0.8, back: 1 },
];
export const NOISE = 6;

const FS = 256;
const CHUNK = 32; // samples between two changes of strength and pace
const SITES_8 = ["Fp1", "Fp2", "F3", "F4", "C3", "C4", "O1", "O2"];
const SITES_19 = [
  "Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz",
  "C4", "T8", "P7", "P3", "Pz", "P4", "P8", "O1", "O2",
];

export class Synthetic {
  // amplitudes: microvolts of each rhythm by name, and of "noise"; read as they change.
  constructor(channels, amplitudes) {
    this.title = "Synthetic EEG";
    this.fs = FS;
    this.unit = "µV";
    this.isEeg = true;
    this.amplitudes = amplitudes;
    this.channels = namesOf(channels);
    this.voices = this.channels.map((_, at) => new Voice(channels > 1 ? at / (channels - 1) : 1));
    this.ring = new Ring(channels, 2 * FS);
    this.owed = 0; // samples that time has brought and that are not made yet
  }

  // Time went by: make what came in it.
  advance(seconds) {
    this.owed += seconds * FS;
    const chunks = Math.floor(this.owed / CHUNK);
    this.owed -= chunks * CHUNK;
    for (let i = 0; i < chunks; i++) this.make(CHUNK);
  }

  make(count) {
    this.ring.push(this.voices.map((voice) => voice.sing(count, this.amplitudes)));
  }

  gather(count, rows) {
    if (this.ring.capacity < count) this.ring = new Ring(this.channels.length, count + FS);
    while (this.ring.length < count) this.make(CHUNK); // history nobody waited for
    return { samples: this.ring.latest(count, rows) };
  }

  stop() {}
}

function namesOf(channels) {
  if (channels === 1) return ["Oz"];
  if (channels === 4) return ["F3", "F4", "O1", "O2"];
  if (channels === 8) return SITES_8;
  if (channels === 19) return SITES_19;
  return Array.from({ length: channels }, (_, at) => `ch ${at + 1}`);
}

// One channel; place 0 is the front of the head and 1 the back.
class Voice {
  constructor(place) {
    this.parts = RHYTHMS.map(({ name, hz, front, back }) => ({
      name,
      hz: hz * (1 + 0.02 * (Math.random() - 0.5)),
      weight: front + (back - front) * place,
      re: 1,
      im: 0,
      swell: 0,
      pace: 0,
    }));
    for (const part of this.parts) {
      const phase = 2 * Math.PI * Math.random();
      [part.re, part.im] = [Math.cos(phase), Math.sin(phase)];
    }
    this.pink = [0, 0, 0];
  }

  sing(count, amplitudes) {
    const out = new Float32Array(count);
    this.hiss(out, amplitudes.noise);
    for (const part of this.parts) hum(part, out, amplitudes[part.name]);
    return out;
  }

  // White noise through three poles: about 3 dB less per octave.
  hiss(out, level) {
    let [a, b, c] = this.pink;
    const scale = level * 0.68;
    for (let i = 0; i < out.length; i++) {
      const white = gaussian();
      a = 0.99765 * a + 0.099046 * white;
      b = 0.963 * b + 0.2965164 * white;
      c = 0.57 * c + 1.0526913 * white;
      out[i] = scale * (a + b + c + 0.1848 * white);
    }
    this.pink = [a, b, c];
  }
}

// A rhythm by rotation, which costs four products where a sine costs a call. Strength and
// pace wander slowly around their means.
function hum(part, out, amplitude) {
  part.swell = 0.95 * part.swell + 0.1 * gaussian();
  part.pace = 0.95 * part.pace + 0.05 * gaussian();
  const turn = (2 * Math.PI * (part.hz + 0.3 * part.pace)) / FS;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const height = amplitude * part.weight * Math.max(0.2, 1 + part.swell);
  let { re, im } = part;
  for (let i = 0; i < out.length; i++) {
    [re, im] = [re * cos - im * sin, re * sin + im * cos];
    out[i] += height * im;
  }
  const size = Math.hypot(re, im);
  part.re = re / size;
  part.im = im / size;
}

// Near enough to a normal draw, variance 1.
function gaussian() {
  return 2 * (Math.random() + Math.random() + Math.random() - 1.5);
}
