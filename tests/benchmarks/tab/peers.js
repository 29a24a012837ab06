// The work of the browser benchmark on jax-js, on the numbers that Python drew.
import { init, defaultDevice, numpy as np, jit, lax, nn, valueAndGrad } from "./jax/index.js";

const K = 16;
const [HEADS, DIM] = [12, 64];

// The same as rlxweb_numpy_workloads.py: Hann window, two segments overlapping by half, mean power, top k.
function welchOf(rows, n) {
  const window = Float32Array.from({ length: n }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (n - 1)));
  const hann = np.array(window, { shape: [1, n] });
  return jit((frames) => {
    const spectrum = np.fft.rfft(frames.mul(hann.ref));
    const power = np.square(spectrum.real).add(np.square(spectrum.imag));
    return lax.topK(power.reshape([rows, 2, n / 2 + 1]).mean(1), K);
  });
}

function framesOf(x, rows, n) {
  const length = n + n / 2;
  const frames = new Float32Array(rows * 2 * n);
  for (let row = 0; row < rows; row++) {
    for (const at of [0, 1]) {
      const from = row * length + at * (n / 2);
      frames.set(x.subarray(from, from + n), (row * 2 + at) * n);
    }
  }
  return frames;
}

const parts = (result) => (Array.isArray(result) ? result : result.data ? [result] : Object.values(result));

async function read(result) {
  const found = [];
  for (const part of parts(result)) found.push(await part.data());
  return found;
}

async function settle(result) {
  for (const part of parts(result)) {
    await part.blockUntilReady();
    part.dispose();
  }
}

// What jax-js computes of arrays of `shape`, and how it takes what Python drew.
function kindOf(kind, n, arrays) {
  const as = (shape, compiled, prepare = (x) => x) => ({ shape, compiled: jit(compiled), prepare });
  if (kind === "matmul") return as([n, n], (a, b) => np.matmul(a, b));
  if (kind === "softmax") return as([n, n], (x) => nn.softmax(x));
  if (kind === "attention") return as([1, n, HEADS, DIM], (q, k, v) => nn.dotProductAttention(q, k, v));
  const rows = arrays[0].length / (n + n / 2);
  return { shape: [rows * 2, n], compiled: welchOf(rows, n), prepare: (x) => framesOf(x, rows, n) };
}

// A step of the perceptron of rlxweb_numpy_workloads.py: a batch goes in, the loss comes out.
function trainingPeers(n, arrays) {
  const [batch, classes, rate] = [64, 10, 0.01];
  const shapes = [[n, n], [n, classes], [batch, n], [batch, classes]];
  const at = (i) => np.array(arrays[i], { shape: shapes[i] });
  const loss = (w, v, x, y) => {
    const z = np.matmul(np.maximum(np.matmul(x, w), 0), v);
    return nn.logSoftmax(z).mul(y).sum().mul(-1 / batch);
  };
  const step = jit((w, v, x, y) => {
    const [value, [dw, dv]] = valueAndGrad(loss, { argnums: [0, 1] })(w.ref, v.ref, x, y);
    return [value, w.sub(dw.mul(rate)), v.sub(dv.mul(rate))];
  });
  let [w, v] = [at(0), at(1)];
  return {
    "jax-js in+out": async () => {
      let value;
      [value, w, v] = step(w, v, at(2), at(3));
      return (await value.data())[0];
    },
  };
}

// name → function to time; `arrays` are Float32Arrays.
export async function jaxPeers(kind, n, arrays) {
  const devices = await init("webgpu");
  if (!devices.includes("webgpu")) throw new Error(`jax-js has ${devices}, not webgpu`);
  defaultDevice("webgpu");
  if (kind === "training") return trainingPeers(n, arrays);
  const { shape, compiled, prepare } = kindOf(kind, n, arrays);
  const kept = arrays.map((x) => np.array(prepare(x), { shape }));
  return {
    "jax-js in+out": async () => read(compiled(...arrays.map((x) => np.array(prepare(x), { shape })))),
    "jax-js resident": async () => settle(compiled(...kept.map((x) => x.ref))),
  };
}
