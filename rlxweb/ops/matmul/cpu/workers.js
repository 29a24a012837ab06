// Workers that compute beside Python, in a memory which all of them share.
//
// Python's own memory is its thread's alone. So there is a second one: what is the same
// from job to job lies in it, what a job reads is copied there, and its result back. A
// Worker sleeps in Atomics.wait between jobs; Python's thread, which on a page may not
// sleep, works as well and then looks until the others are done, a part's time. A Worker
// that comes too late finds the job closed and touches nothing of it.
//
// Evaluates to a function of the module's bytes, the number of Workers and the most pages
// of 64 KiB that the memory may have; it throws where a browser has no such thing.
(() => {
  "use strict";

  // Words of 32 bits at the beginning of the memory.
  const [ROUND, TICKETS, DONE, THERE, FAILED, LOADED] = [0, 1, 2, 3, 4, 5];
  const NEXT = 32; // written by all: not in the line of the cache that holds ROUND and DONE
  const MODULES = 64; // pairs: where a module's bytes are, and how many
  const MOST_MODULES = 255;
  const CLOSED = 128; // in TICKETS, below the round: nobody else comes in, and how many did
  const ROUNDS = (1 << 23) - 1;
  const MINE = 4096; // bytes, where the rooms of threads begin
  const ROOM = 512; // of a thread, in bytes
  const JOB = 49152;
  const PAGE = 65536;
  const LATE_MS = 10_000;
  const STALE = -1;
  const OVER = -2;

  // What a Worker does, as text: it knows nothing of what is around it here.
  const serve = ({ memory, code, mine, words }) => {
    const { ROUND, TICKETS, DONE, THERE, FAILED, LOADED, MODULES, CLOSED, JOB, SPIN_MS } = words;
    const told = new Int32Array(memory.buffer);
    const table = new WebAssembly.Table({ element: "anyfunc", initial: words.MOST_MODULES + 1 });
    const env = { memory, __indirect_function_table: table };
    const made = (bytes) => new WebAssembly.Instance(new WebAssembly.Module(bytes), { env }).exports;
    const { share } = made(code);
    let [round, loaded] = [0, 0];
    Atomics.add(told, THERE, 1);
    for (;;) {
      // Jobs follow each other closely, and to be woken takes as long as a small one.
      for (const from = performance.now(); performance.now() - from < SPIN_MS; ) {
        for (let look = 0; look < 200 && Atomics.load(told, ROUND) === round; look++);
        if (Atomics.load(told, ROUND) !== round) break;
      }
      while (Atomics.load(told, ROUND) === round) Atomics.wait(told, ROUND, round);
      round = Atomics.load(told, ROUND);
      for (;;) {
        const ticket = Atomics.load(told, TICKETS);
        if (ticket >> 8 !== round || ticket & CLOSED) break;
        if (Atomics.compareExchange(told, TICKETS, ticket, ticket + 1) !== ticket) continue;
        try {
          if (loaded < Atomics.load(told, LOADED)) memory.grow(0); // else its buffer may be an old one
          for (; loaded < Atomics.load(told, LOADED); loaded++) {
            const [at, size] = told.subarray(MODULES + 2 * loaded, MODULES + 2 * loaded + 2);
            table.set(loaded + 1, made(new Uint8Array(memory.buffer, at, size).slice()).region_job);
          }
          share(JOB, mine);
        } catch {
          Atomics.store(told, FAILED, 1);
        }
        Atomics.add(told, DONE, 1);
        break;
      }
    }
  };
  const SOURCE = `"use strict"; onmessage = ({ data }) => (${serve})(data);`;

  return (given, count, pages, spinMs) => {
    const code = given.slice();
    const memory = new WebAssembly.Memory({ initial: 1, maximum: pages, shared: true });
    const told = new Int32Array(memory.buffer);
    const table = new WebAssembly.Table({ element: "anyfunc", initial: MOST_MODULES + 1 });
    const env = { memory, __indirect_function_table: table };
    const made = (bytes) => new WebAssembly.Instance(new WebAssembly.Module(bytes), { env }).exports;
    const { share } = made(code);
    const words = { ROUND, TICKETS, DONE, THERE, FAILED, LOADED, MODULES, MOST_MODULES, CLOSED, JOB, SPIN_MS: spinMs };
    const from = URL.createObjectURL(new Blob([SOURCE], { type: "text/javascript" }));
    const workers = Array.from({ length: count }, (_, at) => {
      const worker = new Worker(from);
      worker.postMessage({ memory, code, mine: MINE + ROOM * (at + 1), words });
      worker.onerror = (event) => event.preventDefault(); // one that is not there is not waited for
      return worker;
    });
    let [round, isOver] = [0, false];
    let heap = new Uint8Array(0); // Python's memory
    let shared = new Uint8Array(memory.buffer);

    function end() {
      for (const worker of workers) worker.terminate();
      isOver = true;
      return OVER;
    }

    function opened() {
      round = (round + 1) & ROUNDS;
      Atomics.store(told, NEXT, 0);
      Atomics.store(told, DONE, 0);
      Atomics.store(told, TICKETS, round << 8);
      Atomics.store(told, ROUND, round);
      Atomics.notify(told, ROUND);
    }

    // Are all who came in done?
    function closed() {
      const came = Atomics.or(told, TICKETS, CLOSED) & (CLOSED - 1);
      for (let from = 0; Atomics.load(told, DONE) < came; ) {
        for (let look = 0; look < 1000 && Atomics.load(told, DONE) < came; look++);
        from ||= performance.now();
        if (performance.now() - from > LATE_MS) return false;
      }
      return !Atomics.load(told, FAILED);
    }

    return {
      there: () => (isOver ? 0 : Atomics.load(told, THERE)),
      end,

      // Python's memory, by an array in it: a new one whenever it has grown.
      held(array) {
        const view = array.getBuffer("u8");
        heap = new Uint8Array(view.data.buffer);
        view.release();
      },

      // Is the memory of that many pages now?
      grown(wanted) {
        const missing = wanted - memory.buffer.byteLength / PAGE;
        try {
          if (missing > 0) memory.grow(missing);
        } catch {
          return false;
        }
        shared = new Uint8Array(memory.buffer);
        return true;
      },

      put(here, there, size) {
        if (!heap.length) return STALE;
        shared.set(heap.subarray(here, here + size), there);
        return 0;
      },

      // The place in the table of the region whose module lies there; 0 where there is none left.
      loaded(at, size) {
        const number = Atomics.load(told, LOADED);
        if (number >= MOST_MODULES) return 0;
        table.set(number + 1, made(shared.slice(at, at + size)).region_job);
        told.set([at, size], MODULES + 2 * number);
        Atomics.store(told, LOADED, number + 1);
        return number + 1;
      },

      // What `web_workers.py` says in words of 32 bits: how many are the job's; of the
      // result, where it is, where it goes, how long it is; the same of so many operands;
      // the job.
      run(at) {
        if (isOver) return OVER;
        if (!heap.length) return STALE;
        const job = new Uint32Array(heap.buffer, at);
        const [size, made, out, nbytes, operands] = job;
        let next = 5;
        for (let one = 0; one < operands; one++, next += 3) {
          shared.set(heap.subarray(job[next], job[next] + job[next + 2]), job[next + 1]);
        }
        told.set(job.subarray(next, next + size), JOB / 4);
        opened();
        try {
          share(JOB, MINE);
        } catch {
          Atomics.store(told, FAILED, 1);
        }
        if (!closed()) return end();
        heap.set(shared.subarray(made, made + nbytes), out);
        return 0;
      },
    };
  };
})()
