// Python in a Worker (?where=worker) or in this page; tests call py() and blocking().
import { boot } from "./python.js";

const where = new URL(location.href).searchParams.get("where");
if (where === "worker") {
  const worker = new Worker("python.js", { type: "module" });
  const waiting = new Map();
  let next = 0;
  worker.onmessage = ({ data: { id, ok, error } }) => {
    const { done, failed } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) done(ok);
    else failed(new Error(error));
  };
  worker.onerror = (event) => console.error("worker:", event.message);
  const ask = (how) => (code) => new Promise((done, failed) => {
    const id = next++;
    waiting.set(id, { done, failed });
    worker.postMessage({ id, how, code });
  });
  globalThis.py = ask("py");
  globalThis.blocking = ask("blocking");
} else {
  Object.assign(globalThis, await boot());
}
await globalThis.py("None");
globalThis.isReady = true;
