// How long the browser's GPU worked on each of several command lists, by its own clock.
//
// Loaded when a run is profiled. Evaluates to a function of one port of bridge.js, the
// numbers of its lists as JSON and a deadline; gives nanoseconds as JSON.
(() => {
  "use strict";

  const RESOLVE = 0x204; // of queries, source of copies
  const READBACK = 0x09;

  // A list of dispatches carries the stamps in its pass; copies have none, so empty
  // passes stand around them.
  function encodeStamped(port, encoder, steps, querySet, at) {
    const before = { querySet, beginningOfPassWriteIndex: at };
    const behind = { querySet, endOfPassWriteIndex: at + 1 };
    if (steps.length && !steps.some((step) => step.call)) {
      port.encode(encoder, steps, { timestampWrites: { ...before, ...behind } });
      return;
    }
    encoder.beginComputePass({ timestampWrites: before }).end();
    port.encode(encoder, steps);
    encoder.beginComputePass({ timestampWrites: behind }).end();
  }

  return async (port, idsJson, deadlineMs) => {
    const lists = JSON.parse(idsJson).map((id) => port.lists.get(id));
    const [count, ns] = [2 * lists.length, []];
    if (!count) return "[]";
    const { device } = port;
    const queries = device.createQuerySet({ type: "timestamp", count });
    const resolved = device.createBuffer({ size: 8 * count, usage: RESOLVE });
    const stage = device.createBuffer({ size: 8 * count, usage: READBACK });
    try {
      port.scoped(`time ${lists.length} lists`, [], () => {
        const encoder = device.createCommandEncoder();
        lists.forEach(({ steps }, at) => encodeStamped(port, encoder, steps, queries, 2 * at));
        encoder.resolveQuerySet(queries, 0, count, resolved, 0);
        encoder.copyBufferToBuffer(resolved, 0, stage, 0, 8 * count);
        device.queue.submit([encoder.finish()]);
      });
      await port.mapped(null, stage, 0, 8 * count, deadlineMs, (data) => {
        const ticks = new BigInt64Array(data.slice().buffer);
        for (let at = 0; at < count; at += 2) ns.push(Math.max(0, Number(ticks[at + 1] - ticks[at])));
      });
      await port.check(null, deadlineMs);
      return JSON.stringify(ns);
    } finally {
      for (const one of [queries, resolved, stage]) one.destroy();
    }
  };
})()
