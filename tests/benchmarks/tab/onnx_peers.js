// A network on onnxruntime-web, whose modules lie in ./ort: one copy per way to run it,
// for the number of threads is fixed as a copy starts.
const WAYS = {
  "onnxruntime-web, webgpu": ["ort.webgpu.min.mjs", "webgpu", 1],
  "onnxruntime-web, webgpu by JSEP": ["ort.min.mjs", "webgpu", 1],
  "onnxruntime-web, wasm": ["ort.wasm.min.mjs", "wasm", 1],
  "onnxruntime-web, wasm, 2 threads": ["ort.wasm.min.mjs", "wasm", 2],
};
const ARRAYS = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array };

const tensor = (ort, { dtype, dims, base64 }) =>
  new ort.Tensor(dtype, new ARRAYS[dtype](Uint8Array.fromBase64(base64).buffer), dims);

// `tiny` is a network of one op: the runtime starts with it, before the clock does.
async function runtime(file, provider, threads, tiny) {
  const ort = await import(`./ort/${file}?threads=${threads}`);
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  const options = { executionProviders: [provider], logSeverityLevel: 3 };
  const session = await ort.InferenceSession.create(tiny, options);
  await session.run({ x: new ort.Tensor("float32", new Float32Array(4), [4]) });
  await session.release();
  return { ort, options };
}

function told(result) {
  const answers = {};
  for (const [name, one] of Object.entries(result)) {
    const { buffer, byteOffset, byteLength } = one.data;
    const base64 = new Uint8Array(buffer, byteOffset, byteLength).toBase64();
    answers[name] = { dtype: one.type, dims: [...one.dims], base64 };
  }
  return answers;
}

// name → begin(); what a runtime took to start is added to `up`.
export async function onnxPeers({ inputs, tiny }, model, up) {
  const peers = {};
  for (const [name, [file, provider, threads]] of Object.entries(WAYS)) {
    const from = performance.now();
    let ready;
    try {
      if (threads > 1 && !crossOriginIsolated) throw new Error("the page is not isolated: threads share no memory");
      ready = await runtime(file, provider, threads, Uint8Array.fromBase64(tiny));
      up[name] = performance.now() - from;
    } catch (error) {
      ready = { error };
    }
    peers[name] = async () => {
      if (ready.error) throw ready.error;
      const { ort, options } = ready;
      const session = await ort.InferenceSession.create(model, options);
      const feeds = {};
      for (const one of inputs) {
        if (session.inputNames.includes(one.name)) feeds[one.name] = tensor(ort, one);
      }
      return { run: () => session.run(feeds), told, close: () => session.release() };
    };
  }
  return peers;
}
