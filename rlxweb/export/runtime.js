// Runs one exported rlxweb plan on WebGPU, without Python: the same shaders, buffers and
// commands as Python has in a tab, fixed at export.
//
//   import { load } from "./welch.js";
//   const run = await load();
//   const { hz } = await run({ x });

const SCHEMA = "rlxweb.web/1";
const HERE = import.meta.url;
const USAGE = { storage: 0x8c, uniform: 0x48, readback: 0x09 };
const ACCESS = { r: "read-only-storage", w: "storage", u: "uniform" };
const [MAP_READ, COMPUTE] = [1, 4];
const AGAIN = "export it again with the newest rlxweb";
// What an error scope catches, the code of our error for it, and what to do.
const SCOPES = [
  ["validation", "plan", AGAIN],
  ["out-of-memory", "out-of-memory", "close other tabs, or export a smaller batch"],
  ["internal", "device", "run it again"],
];
const ARRAYS = {
  f32: Float32Array, i32: Int32Array, u32: Uint32Array, f64: Float64Array, f16: Uint16Array, bool: Uint8Array,
  i64: BigInt64Array, u64: BigUint64Array,
};
const PIECE = 8 << 20; // bytes one write takes to the device
const PATIENCE_MS = 1000; // a loss is told a little after what it broke
const [F32_LEAST, F32_MOST] = [2 ** -126, (2 - 2 ** -23) * 2 ** 127];

// What went wrong: `code` is for programs, the message for people.
export class RlxError extends Error {
  constructor(code, message, cause) {
    super(message, { cause });
    this.name = "RlxError";
    this.code = code;
  }
}

// The plan at `url` as a function; the .d.ts tells all of it.
export async function load(url = new URL("plan.json", HERE), { device = null, signal = null } = {}) {
  signal?.throwIfAborted();
  const stop = new AbortController();
  const abort = () => stop.abort(signal.reason);
  signal?.addEventListener("abort", abort);
  const stopped = quiet(new Promise((_, failed) => {
    stop.signal.addEventListener("abort", () => failed(stop.signal.reason));
  }));
  const runner = new Runner(device);
  try {
    const at = new URL(url, globalThis.location?.href);
    await Promise.race([runner.load(at, stop.signal), stopped]);
    return runner.asFunction();
  } catch (error) {
    stop.abort(error); // what is being fetched
    runner.close();
    throw ours(error, url);
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

class Runner {
  began = performance.now();
  times = {}; // ms from the call of `load` to the end of each of its parts
  buffers = [];
  closed = false;
  gone = ""; // why it is lost
  stray = ""; // a device's error that no scope caught
  waiting = 0;
  turn = null;

  constructor(device) {
    this.device = device;
    this.isOwn = !device;
  }

  // --- loading ---

  // The GPU is looked for while the plan is on its way, and opened while the shaders are.
  async load(at, signal) {
    const finding = this.device ? null : quiet(findAdapter().finally(() => this.passed("adapter")));
    const main = this.plan = await readPlan(at, signal);
    // GPUs that are software have kernels of their own.
    const other = main.software && quiet(readPlan(new URL(main.software, at), signal));
    const adapter = await finding;
    this.adapter = factsOf(adapter ?? this.device);
    if (other && this.adapter.software) this.plan = { ...await other, vectors: main.vectors };
    const { plan } = this;
    this.passed("plan");
    const file = (path, nbytes) => fetched(new URL(path, at), signal, nbytes);
    const shaders = plan.shaders.map((path) => plan.texts[path] ?? quiet(file(path).then(asText)));
    const weights = plan.weights.nbytes ? quiet(file(plan.weights.file, plan.weights.nbytes)) : new Uint8Array();
    await this.open(adapter);
    this.passed("device");
    const total = said(plan.buffers.reduce((sum, { nbytes }) => sum + nbytes, 0));
    const { right } = this.scoped(`create buffers of ${total} bytes`, () => {
      this.buffers = plan.buffers.map(({ nbytes, usage }) =>
        this.device.createBuffer({ size: nbytes, usage: USAGE[usage] }));
    });
    const made = Promise.all(plan.pipelines.map(async (one) =>
      this.pipeline(plan.shaders[one.shader], await shaders[one.shader], one)));
    const filled = Promise.resolve(weights).then((bytes) => this.fill(bytes));
    const [pipelines] = await Promise.all([made, filled, right]);
    this.passed("pipelines");
    await this.scoped("bind its buffers", () => { this.commands = this.bound(pipelines); }).right;
    this.checkAlive();
    this.vectors = plan.vectors && new URL(plan.vectors.file, at);
    this.passed("ready");
  }

  passed(name) {
    this.times[name] = performance.now() - this.began;
  }

  async open(adapter) {
    const { name, limits, features } = this.plan;
    const offered = adapter ?? this.device;
    if (!adapter && !offered.queue) throw new RlxError("device", "the given device is not a GPUDevice; pass a GPUDevice or null");
    checkFits(offered, limits, features, `${name} needs more than ${adapter ? "this browser's GPU" : "the given device"} has`);
    if (adapter) {
      this.device = await adapter.requestDevice({ requiredLimits: limits, requiredFeatures: features }).catch((error) => {
        throw new RlxError("no-adapter", `the browser did not open its GPU: ${error.message}; reload the page`, error);
      });
      this.device.addEventListener("uncapturederror", (event) => {
        event.preventDefault();
        this.stray ||= event.error.message;
      });
    }
    if (this.closed) this.close(); // meanwhile
    this.lost = this.device.lost.then(({ reason, message }) => {
      this.gone ||= message || reason || "the browser gave no reason";
      return this.closed ? new Promise(() => {}) : this.loss();
    });
  }

  async pipeline(file, code, { layout, constants }) {
    const { device } = this;
    const { value: { module, bindGroupLayouts, making }, right } = this.scoped(`compile ${file}`, () => {
      const module = device.createShaderModule({ label: file, code });
      const bindGroupLayouts = groupsOf(layout).map((letters) => device.createBindGroupLayout({
        entries: [...letters].map((letter, binding) => ({ binding, visibility: COMPUTE, buffer: { type: ACCESS[letter] } })),
      }));
      const making = device.createComputePipelineAsync({
        label: file,
        layout: device.createPipelineLayout({ bindGroupLayouts }),
        compute: { module, entryPoint: "main", constants },
      });
      return { module, bindGroupLayouts, making: quiet(making) };
    });
    const made = await making.catch(async (error) => {
      this.checkAlive();
      const { messages } = await module.getCompilationInfo().catch(() => ({ messages: [] }));
      const lines = messages.filter(({ type }) => type === "error")
        .map(({ lineNum, linePos, message }) => `line ${lineNum}:${linePos}: ${message}`);
      throw new RlxError("shader", `this browser could not compile ${file}: ${lines.join("; ") || error.message}; ${AGAIN}`, error);
    });
    await right;
    return { made, layout, bindGroupLayouts };
  }

  fill(bytes) {
    const { weights, welch } = this.plan;
    if (welch?.floor) this.floor = arrayOf("f64", bytes, ...welch.floor);
    return this.scoped(`write ${said(bytes.length)} bytes of weights`, () => {
      for (const [buffer, offset, from, nbytes] of weights.writes) {
        this.write(buffer, offset, bytes.subarray(from, from + nbytes));
      }
    }).right;
  }

  // The commands with the browser's objects in place of numbers.
  bound(pipelines) {
    const { device, buffers, plan } = this;
    return plan.commands.map(([kind, ...rest]) => {
      if (kind !== "d") {
        const [first, from, second, ...more] = rest;
        return kind === "c" ? { verb: "copyBufferToBuffer", rest: [buffers[first], from, buffers[second], ...more] }
          : { verb: "clearBuffer", rest: [buffers[first], from, second] };
      }
      const [pipeline, ranges, grid] = rest;
      const { made, layout, bindGroupLayouts } = pipelines[pipeline];
      const left = [...ranges];
      const bindings = groupsOf(layout).map((letters, index) => device.createBindGroup({
        layout: bindGroupLayouts[index],
        entries: left.splice(0, letters.length).map(([buffer, offset, size], binding) =>
          ({ binding, resource: { buffer: buffers[buffer], offset, size } })),
      }));
      return { made, bindings, grid };
    });
  }

  // --- running ---

  // Calls take turns: one begins when the last has its results, or its error.
  async run(given) {
    this.checkAlive();
    const work = this.prepared(given, this.waiting > 0);
    this.waiting += 1;
    const mine = this.waiting > 1 ? this.turn.then(() => this.once(work)) : this.once(work);
    this.turn = mine.catch(() => {});
    try {
      return await mine;
    } finally {
      this.waiting -= 1;
    }
  }

  // Checked inputs as buffers hold them, and what makes results of raw outputs. What waits is
  // copied: the caller may change it meanwhile.
  prepared(given, waits) {
    const { inputs, welch, name: plan } = this.plan;
    for (const name of Object.keys(given ?? {})) {
      if (!Object.hasOwn(inputs, name)) throw new RlxError("input", `${plan} has no input ${name}; its inputs: ${Object.keys(inputs).join(", ") || "none"}`);
    }
    let rows = null;
    const writes = Object.entries(inputs).map(([name, input]) => {
      let stored = checked(name, input, given?.[name]);
      if (name === welch?.input) {
        rows = readyRows(welch, stored);
        stored = rows.x;
      }
      const bytes = new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
      return [input.buffer, input.offset, waits || bytes.buffer.resizable ? bytes.slice() : bytes];
    });
    return { writes, finish: (raw) => (rows ? peaksOf(welch, this.floor, rows, raw) : raw) };
  }

  async once({ writes, finish }) {
    this.checkAlive();
    const { buffer, nbytes } = this.plan.readback;
    const results = this.buffers[buffer];
    const { value: mapping, right } = this.scoped("run", () => {
      for (const one of writes) this.write(...one);
      this.submit();
      return quiet(results.mapAsync(MAP_READ, 0, nbytes));
    });
    try {
      await right;
      await mapping.catch((error) => this.explain(error));
      const { stray } = this;
      this.stray = "";
      if (stray) throw new RlxError("device", `the GPU reported an error outside this run: ${stray}; run it again`);
      return finish(this.taken(results.getMappedRange(0, nbytes)));
    } finally {
      results.unmap();
    }
  }

  submit() {
    const encoder = this.device.createCommandEncoder();
    let [pass, last] = [null, null];
    for (const { verb, rest, made, bindings, grid } of this.commands) {
      if (verb) {
        pass?.end();
        pass = last = null;
        encoder[verb](...rest);
        continue;
      }
      pass ??= encoder.beginComputePass();
      if (made !== last) pass.setPipeline((last = made));
      bindings.forEach((group, index) => pass.setBindGroup(index, group));
      pass.dispatchWorkgroups(...grid);
    }
    pass?.end();
    this.device.queue.submit([encoder.finish()]);
  }

  write(buffer, offset, bytes) {
    for (let at = 0; at < bytes.length; at += PIECE) {
      this.device.queue.writeBuffer(this.buffers[buffer], offset + at, bytes.subarray(at, at + PIECE));
    }
  }

  // The outputs by name, in arrays of their own.
  taken(mapped) {
    const { name: plan, outputs, readback: { fault } } = this.plan;
    if (fault !== null && new Uint32Array(mapped, fault, 1)[0]) {
      throw new RlxError("index", `an index of ${plan} is out of range; check that each is at least 0 and less than the number of rows of its table`);
    }
    const all = new Uint8Array(mapped);
    return Object.fromEntries(Object.entries(outputs).map(([name, { dtype, offset, nbytes }]) =>
      [name, arrayOf(dtype, all, offset, nbytes)]));
  }

  // --- what goes wrong ---

  // What `work` gives, and a promise that fails with whatever WebGPU finds wrong with it.
  scoped(doing, work) {
    const refused = (code, hint, error) =>
      new RlxError(code, `${this.plan.name} could not ${doing}: ${error.message}; ${hint}`, error);
    for (const [filter] of SCOPES) this.device.pushErrorScope(filter);
    let [value, thrown] = [null, null];
    try {
      value = work();
    } catch (error) {
      thrown = refused("plan", AGAIN, error);
    }
    const right = quiet(Promise.all(SCOPES.toReversed().map(async ([, code, hint]) => {
      const error = await this.device.popErrorScope().catch(() => null); // a lost device knows none
      if (error) throw refused(code, hint, error);
    })));
    if (thrown) throw thrown;
    return { value, right };
  }

  // Why results cannot be read.
  async explain(error) {
    const later = new Promise((done) => setTimeout(done, PATIENCE_MS));
    if (!this.closed) await Promise.race([this.device.lost, later]);
    this.checkAlive();
    throw new RlxError("device", `the browser did not return the results: ${error.message}; run it again`, error);
  }

  checkAlive() {
    if (this.closed) throw new RlxError("closed", `${this.plan?.name ?? "the plan"} was closed; load it again`);
    if (this.gone) throw this.loss();
  }

  loss() {
    return new RlxError("device-lost", `the GPU was lost: ${this.gone}; load ${this.plan.name} again`);
  }

  asFunction() {
    const { plan, adapter, lost, times } = this;
    const told = (work) => work.catch((error) => { throw ours(error, plan.name); });
    return Object.assign((inputs) => told(this.run(inputs)), {
      plan, adapter, lost, times,
      inputs: plan.inputs,
      outputs: plan.welch ? outputsOf(plan.welch) : plan.outputs,
      check: (options) => told(this.check(options)),
      close: () => this.close(),
    });
  }

  // Runs the test vectors. A `share` is an error over what is tolerated there: 1 is right.
  async check({ signal = null } = {}) {
    const { vectors, inputs, name } = this.plan;
    if (!vectors) throw new RlxError("plan", `${name} was exported without test vectors`);
    const began = performance.now();
    const file = await fetched(this.vectors, signal, vectors.nbytes);
    let [worst, compared] = [null, 0];
    for (const [index, one] of vectors.cases.entries()) {
      const found = await this.run(Object.fromEntries(Object.entries(inputs).map(([key, { dtype, shape }]) => {
        const some = arrayOf(dtype, file, ...one.inputs[key]);
        return [key, ARRAYS[dtype].from({ length: sizeOf(shape) }, (_, i) => some[i % some.length])];
      })));
      for (const [output, wanted] of Object.entries(one.outputs)) {
        const { n, ...most } = compare(found[output], file, wanted);
        compared += n;
        if (n && !(most.share <= worst?.share)) worst = { case: index, output, ...most };
      }
    }
    return { ok: worst?.share <= 1, worst, compared, cases: vectors.cases.length, ms: performance.now() - began };
  }

  close() {
    this.closed = true;
    for (const buffer of this.buffers.splice(0)) buffer.destroy();
    if (this.isOwn) this.device?.destroy();
    this.commands = [];
  }
}

