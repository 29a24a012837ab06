// A page's side of Python in a Worker: start it, call it, hear of its progress.
//
//   const rlx = await start({ python: ["live.py"], onProgress });
//   const { result, buffers } = await rlx.call("spectrum", { k: 5 }, [samples.buffer]);
//
// Buffers given to `call` are handed over: the page's own view of them is empty after.
// `await rlx.mount(file)` gives a path by which Python opens a File, `rlx.unmount(path)`
// lets it go. What Python hands over while it runs, by `post(data, arrays)`, goes to `onPost`.
// `sealed` is for code of strangers: see sealed.js. Such code can send any message, so none
// is believed here: what is unknown is dropped, words are made text, results are the
// caller's to judge.
import { openWorker } from "./policy.js";

const MOST_WORDS = 20_000;

export async function start({
  python = [],
  sealed = false,
  onProgress = () => {},
  onSaid = () => {},
  onPost = () => {},
} = {}) {
  const began = performance.now();
  const { worker, heard } = await openWorker(new URL("worker.js", import.meta.url));
  const waiting = new Map();
  let next = 1;
  let starting = true;

  const ready = new Promise((done, failed) => {
    worker.addEventListener("message", ({ data }) => {
      if (typeof data !== "object" || data === null) return;
      if (data.progress === "said") onSaid(words(data.detail));
      else if (data.progress) starting && onProgress(data.progress, data.detail, performance.now() - began);
      else if ("posted" in data) onPost(data.posted, data.buffers);
      else if (data.ready) done(data.ready);
      else if (data.fatal) failed(new PythonError(data.fatal));
      else if (data.ended) end(new PythonError(data.ended));
      else settle(data);
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      const error = new Error(event.message || "the Worker could not be loaded");
      failed(error);
      end(error);
    });
  });
  for (const event of heard) worker.dispatchEvent(new event.constructor(event.type, event));

  // Every open call fails with this.
  function end(error) {
    for (const { failed } of waiting.values()) failed(error);
    waiting.clear();
  }

  function settle({ id, result, buffers, error }) {
    if (!waiting.has(id)) return;
    const { done, failed } = waiting.get(id);
    waiting.delete(id);
    if (error) failed(new PythonError(error));
    else done({ result, buffers });
  }

  const urls = python.map((name) => new URL(name, document.baseURI).href);
  worker.postMessage({ start: { python: urls, sealed } });
  const facts = await ready.catch((error) => {
    worker.terminate(); // what could not start still holds memory
    throw error;
  });
  starting = false;
  onProgress("ready", "", performance.now() - began);

  function send(message, buffers = []) {
    const id = next++;
    const promise = new Promise((done, failed) => waiting.set(id, { done, failed }));
    worker.postMessage({ id, ...message }, buffers);
    return promise;
  }

  return {
    // {device, jspi, versions}: the row of the report for "webgpu", whether blocking
    // calls can wait, and what runs here.
    facts,
    startMs: performance.now() - began,
    call: (name, args = {}, buffers = []) => send({ call: name, args, buffers }, buffers),
    mount: async (file) => (await send({ mount: file })).result,
    unmount: async (path) => {
      await send({ unmount: path });
    },
    stop() {
      worker.terminate();
      end(new Error("stopped"));
    },
  };
}

// An exception of Python: `type` is its class, `message` its text.
export class PythonError extends Error {
  constructor({ type, message, traceback }) {
    super(words(message));
    this.name = "PythonError";
    this.type = words(type);
    this.traceback = words(traceback);
  }
}

function words(said) {
  return typeof said === "string" ? said.slice(0, MOST_WORDS) : "";
}
