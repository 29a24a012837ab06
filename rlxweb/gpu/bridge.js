// The browser's half of the GPU port: handles in, WebGPU calls out.
//
// Owns the JavaScript objects behind the handles, replays whole command lists in one
// crossing, and turns error scopes and the loss of the device into errors whose name
// browser_port.py knows. Knows buffers and commands, no tensors. Evaluates to a function that
// makes one port; works in a Worker and in a page.
(() => {
  "use strict";

  const USAGE = { storage: 0x8c, uniform: 0x48, readback: 0x09 };
  const TYPES = { r: "read-only-storage", w: "storage", u: "uniform" };
  const FILTERS = ["validation", "out-of-memory", "internal"];
  const [MAP_READ, COMPUTE] = [1, 4];
  const SLICE = 32 << 20; // a read of any size goes through stages of at most this
  const SMALLEST = 64 << 10;
  const SPARE = 4; // stages kept for the next read
  const TICK_MS = 250;

  function refuse(kind, message) {
    const error = new Error(message);
    error.name = kind;
    return error;
  }

  const sleep = (ms) => {
    let timer;
    const promise = new Promise((done) => (timer = setTimeout(done, ms, sleep)));
    return { promise, cancel: () => clearTimeout(timer) };
  };

  class Port {
    constructor() {
      this.adapter = null;
      this.device = null;
      this.lost = "";
      this.closing = false;
      this.buffers = new Map();
      this.pipelines = new Map();
      this.lists = new Map();
      this.groups = new Map(); // key of ranges → bind group
      this.layouts = new Map(); // "rrw" → bind group layout
      this.users = new Map(); // buffer → keys of the groups it is in
      this.stages = []; // spare staging buffers, smallest first
      this.pending = new Set(); // promises of open error scopes
      this.faults = []; // what they caught: {kind, message, handles}
      this.mapping = new Map(); // readback buffer → its running map
    }

    // --- opening ------------------------------------------------------------------

    // The adapter's facts as JSON. Throws adapter-missing with the reason.
    async find() {
      const gpu = globalThis.navigator?.gpu;
      if (!gpu) {
        const why = globalThis.isSecureContext === false
          ? "this page is not a secure context (https or localhost), so there is no WebGPU"
          : "this browser has no WebGPU (navigator.gpu)";
        throw refuse("adapter-missing", why);
      }
      const adapter = await gpu.requestAdapter();
      if (!adapter) {
        throw refuse("adapter-missing", "the browser offers no adapter: its GPU is blocked or absent");
      }
      this.adapter = adapter;
      const info = adapter.info ?? {};
      return JSON.stringify({
        vendor: info.vendor ?? "",
        architecture: info.architecture ?? "",
        device: info.device ?? "",
        description: info.description ?? "",
        fallback: Boolean(info.isFallbackAdapter ?? adapter.isFallbackAdapter),
        agent: globalThis.navigator.userAgent ?? "",
        features: [...adapter.features],
        limits: plain(adapter.limits),
      });
    }

    // The granted limits as JSON.
    async open(featuresJson, limitsJson, deadlineMs) {
      const making = this.adapter.requestDevice({
        requiredFeatures: JSON.parse(featuresJson),
        requiredLimits: JSON.parse(limitsJson),
      });
      const device = this.device = await this.within(making, deadlineMs).catch((error) => {
        throw error.name === "late" ? error : refuse("adapter-missing", error.message);
      });
      device.lost.then((info) => {
        if (!this.closing) this.lost ||= info.message || info.reason || "no reason given";
      });
      // What no scope caught, such as a write the browser refuses.
      device.onuncapturederror = (event) => {
        event.preventDefault();
        this.note(event.error, "", null);
      };
      return JSON.stringify(plain(device.limits));
    }

    // --- buffers ------------------------------------------------------------------

    buffer(handle, size, usage) {
      const made = this.scoped(`buffer of ${size} bytes (${usage})`, [handle], () =>
        this.device.createBuffer({ size, usage: USAGE[usage] }));
      this.buffers.set(handle, made);
    }

    // `proxy` is a Python buffer: its bytes are borrowed, the queue copies them.
    write(handle, offset, proxy) {
      borrow(proxy, (data) => this.device.queue.writeBuffer(this.buffers.get(handle), offset, data));
    }

    free(handle) {
      this.pipelines.delete(handle);
      for (const key of this.users.get(handle) ?? []) this.groups.delete(key);
      this.users.delete(handle);
      for (const [id, list] of this.lists) if (list.handles.has(handle)) this.lists.delete(id);
      this.faults = this.faults.filter((fault) => !fault.handles?.has(handle));
      this.mapping.get(handle)?.abandon();
      this.buffers.get(handle)?.destroy();
      this.buffers.delete(handle);
    }

    // --- pipelines ----------------------------------------------------------------

    async pipeline(handle, source, layout, constantsJson, deadlineMs) {
      for (const filter of FILTERS) this.device.pushErrorScope(filter);
      const module = this.device.createShaderModule({ code: source });
      const making = this.device.createComputePipelineAsync({
        layout: this.pipelineLayout(layout),
        compute: { module, entryPoint: "main", constants: JSON.parse(constantsJson) },
      });
      making.catch(() => {}); // looked at below
      const scopes = FILTERS.map(() => this.device.popErrorScope().catch(() => null)).reverse();
      const made = await this.within(making, deadlineMs).catch(async (error) => {
        if (error.name === "late") throw error;
        this.checkLost();
        const info = await module.getCompilationInfo().catch(() => ({ messages: [] }));
        const said = info.messages
          .filter((m) => m.type === "error")
          .map((m) => `line ${m.lineNum}:${m.linePos}: ${m.message}`);
        throw refuse("shader", said.join("\n") || error.message);
      });
      const [, memory, internal] = await Promise.all(scopes);
      if (memory ?? internal) throw refuse(memory ? "out-of-memory" : "internal", (memory ?? internal).message);
      this.pipelines.set(handle, { made, layout });
    }

    pipelineLayout(layout) {
      const bindGroupLayouts = parts(layout).map((part) => this.groupLayout(part));
      return this.device.createPipelineLayout({ bindGroupLayouts });
    }

    groupLayout(part) {
      let made = this.layouts.get(part);
      if (!made) {
        const buffer = (letter) => ({ type: TYPES[letter] });
        made = this.device.createBindGroupLayout({
          entries: [...part].map((letter, binding) => ({ binding, visibility: COMPUTE, buffer: buffer(letter) })),
        });
        this.layouts.set(part, made);
      }
      return made;
    }

    // --- command lists ------------------------------------------------------------

    // Make a list ready: ["d", pipeline, [handle, offset, bytes]…, [x, y, z]],
    // ["c", source, from, target, to, bytes] or ["z", handle, offset, bytes].
    ready(id, json) {
      const handles = new Set();
      const list = { steps: [], handles };
      this.scoped("bind a command list", handles, () => {
        for (const [kind, ...rest] of JSON.parse(json)) list.steps.push(this[kind](handles, ...rest));
      });
      this.lists.set(id, list);
    }

    d(handles, pipeline, ranges, grid) {
      const { made, layout } = this.pipelines.get(pipeline);
      handles.add(pipeline);
      for (const range of ranges) handles.add(range[0]);
      let at = 0;
      const groups = parts(layout).map((part) => {
        const spans = ranges.slice(at, (at += part.length));
        return this.group(part, spans);
      });
      return { made, groups, grid };
    }

    c(handles, source, from, target, to, bytes) {
      handles.add(source).add(target);
      return { call: "copyBufferToBuffer", args: [this.buffers.get(source), from, this.buffers.get(target), to, bytes] };
    }

    z(handles, handle, offset, bytes) {
      handles.add(handle);
      return { call: "clearBuffer", args: [this.buffers.get(handle), offset, bytes] };
    }

    group(part, spans) {
      const key = `${part} ${spans.join(" ")}`;
      let made = this.groups.get(key);
      if (!made) {
        made = this.device.createBindGroup({
          layout: this.groupLayout(part),
          entries: spans.map(([handle, offset, size], binding) => ({
            binding, resource: { buffer: this.buffers.get(handle), offset, size },
          })),
        });
        this.groups.set(key, made);
        for (const [handle] of spans) {
          if (!this.users.has(handle)) this.users.set(handle, new Set());
          this.users.get(handle).add(key);
        }
      }
      return made;
    }

    forget(id) { this.lists.delete(id); }

    submit(...ids) {
      const lists = ids.map((id) => this.lists.get(id));
      const steps = lists.flatMap((list) => list.steps);
      const handles = new Set(lists.flatMap((list) => [...list.handles]));
      // A read that nobody waits for any more must not keep its buffer mapped.
      for (const [handle, map] of this.mapping) if (handles.has(handle)) map.abandon();
      this.scoped(`submit ${steps.length} commands`, handles, () => {
        const encoder = this.device.createCommandEncoder();
        this.encode(encoder, steps);
        this.device.queue.submit([encoder.finish()]);
      });
    }

    // Neighbouring dispatches share a pass.
    encode(encoder, steps, descriptor = {}) {
      let [pass, last] = [null, null];
      for (const step of steps) {
        if (step.call) {
          pass?.end();
          pass = last = null;
          encoder[step.call](...step.args);
          continue;
        }
        pass ??= encoder.beginComputePass(descriptor);
        if (step.made !== last) pass.setPipeline((last = step.made));
        step.groups.forEach((group, index) => pass.setBindGroup(index, group));
        pass.dispatchWorkgroups(...step.grid);
      }
      pass?.end();
    }

    // --- reading ------------------------------------------------------------------

    // Wait for everything submitted and copy `bytes` into the Python buffer `proxy`.
    async read(handle, offset, bytes, usage, proxy, deadlineMs) {
      if (bytes === 0) {
        await this.within(this.device.queue.onSubmittedWorkDone(), deadlineMs);
      } else if (usage === "readback") {
        const low = offset - (offset % 8);
        const high = Math.ceil((offset + bytes) / 4) * 4;
        const native = this.buffers.get(handle);
        await this.mapped(handle, native, low, high - low, deadlineMs, (data) =>
          fill(proxy, 0, data.subarray(offset - low, offset - low + bytes)));
      } else {
        await this.fromStorage(handle, offset, bytes, proxy, deadlineMs);
      }
      await this.check(handle, deadlineMs);
    }

    async fromStorage(handle, offset, bytes, proxy, deadlineMs) {
      const [native, stop] = [this.buffers.get(handle), offset + bytes];
      for (let low = offset - (offset % 4); low < stop; low += SLICE) {
        const first = Math.max(low, offset);
        const last = Math.min(low + SLICE, stop);
        const size = Math.ceil((last - low) / 4) * 4;
        const stage = this.stage(size, handle);
        this.scoped(`copy ${size} bytes for reading`, [handle], () => {
          const encoder = this.device.createCommandEncoder();
          encoder.copyBufferToBuffer(native, low, stage, 0, size);
          this.device.queue.submit([encoder.finish()]);
        });
        await this.mapped(null, stage, 0, size, deadlineMs, (data) =>
          fill(proxy, first - offset, data.subarray(first - low, last - low)));
        if (this.stages.length < SPARE) this.stages.push(stage);
        else stage.destroy();
      }
    }

    stage(size, handle) {
      const at = this.stages.findIndex((stage) => stage.size >= size);
      if (at >= 0) return this.stages.splice(at, 1)[0];
      let room = SMALLEST;
      while (room < size) room *= 2;
      return this.scoped(`staging of ${room} bytes`, [handle], () =>
        this.device.createBuffer({ size: room, usage: USAGE.readback }));
    }

    async mapped(handle, native, low, size, deadlineMs, take) {
      let abandoned = false;
      const abandon = () => {
        abandoned = true;
        native.unmap();
      };
      if (handle !== null) this.mapping.set(handle, { abandon });
      try {
        await this.within(native.mapAsync(MAP_READ, low, size), deadlineMs);
        if (abandoned) throw refuse("abandoned", "the buffer was used again before it was read");
        take(new Uint8Array(native.getMappedRange(low, size)));
        native.unmap();
      } catch (error) {
        if (error.name === "late" || error.name === "abandoned") throw error;
        await this.check(handle, deadlineMs);
        if (abandoned) throw refuse("abandoned", error.message);
        throw refuse("lost", (this.lost ||= error.message)); // `device.lost` may tell later
      } finally {
        if (handle !== null && this.mapping.get(handle)?.abandon === abandon) this.mapping.delete(handle);
      }
    }

    // --- errors -------------------------------------------------------------------

    scoped(doing, handles, work) {
      for (const filter of FILTERS) this.device.pushErrorScope(filter);
      try {
        return work();
      } finally {
        const concerned = handles instanceof Set ? handles : new Set(handles);
        for (const _ of FILTERS) {
          const caught = this.device.popErrorScope().then(
            (error) => error && this.note(error, doing, concerned),
            () => {}, // the device is gone, which `lost` tells
          ).finally(() => this.pending.delete(caught));
          this.pending.add(caught);
        }
      }
    }

    note(error, doing, handles) {
      const kind = error instanceof GPUOutOfMemoryError ? "out-of-memory"
        : error instanceof GPUValidationError ? "validation" : "internal";
      this.faults.push({ kind, message: `${doing}: ${error.message}`, handles });
      if (this.faults.length > 64) this.faults.shift();
    }

    // Throws what is known against a buffer, once every scope has answered.
    async check(handle, deadlineMs) {
      this.checkLost();
      if (this.pending.size) await this.within(Promise.all([...this.pending]), deadlineMs);
      this.checkLost();
      const at = this.faults.findIndex((f) => !f.handles || handle === null || f.handles.has(handle));
      if (at >= 0) {
        const [fault] = this.faults.splice(at, 1);
        throw refuse(fault.kind, fault.message);
      }
    }

    checkLost() {
      if (this.lost) throw refuse("lost", this.lost);
    }

    // The promise's value, unless the deadline passes while this page is awake: time
    // asleep or frozen counts one tick, however long it was.
    async within(promise, deadlineMs) {
      for (let left = deadlineMs; ; left -= TICK_MS) {
        const tick = sleep(Math.min(TICK_MS, Math.max(left, 0)));
        const won = await Promise.race([promise, tick.promise]).finally(tick.cancel);
        if (won !== sleep) return won;
        if (left <= TICK_MS) {
          this.lost ||= `it did not answer within ${deadlineMs / 1000} s`;
          promise.catch?.(() => {});
          throw refuse("late", this.lost);
        }
      }
    }

    // Objects held, for the leak test.
    held() {
      return this.buffers.size + this.pipelines.size + this.groups.size + this.lists.size +
        this.users.size + this.stages.length + this.mapping.size + this.faults.length;
    }

    // The browser's own way to lose a device, for tests and for the demos.
    lose() {
      this.device.destroy();
    }

    close() {
      this.closing = true;
      this.device?.destroy();
      for (const table of [this.buffers, this.pipelines, this.lists, this.groups, this.layouts, this.users, this.mapping]) table.clear();
      this.stages = [];
      this.faults = [];
      this.adapter = this.device = null;
    }
  }

  // Storage bindings are group 0, a trailing uniform group 1.
  function parts(layout) {
    return layout.endsWith("u") ? [layout.slice(0, -1), "u"] : [layout];
  }

  function plain(limits) {
    return Object.fromEntries(Object.keys(Object.getPrototypeOf(limits)).map((name) => [name, limits[name]]));
  }

  function fill(proxy, at, data) {
    borrow(proxy, (view) => view.set(data, at));
  }

  // The bytes of a Python buffer, for as long as `use` runs.
  function borrow(proxy, use) {
    const view = proxy.getBuffer("u8");
    try {
      use(view.data);
    } finally {
      view.release();
    }
  }

  return () => new Port();
})()
