// Runs pytest in Pyodide, and watches it: there are no threads and no signals in there.
//
//     node run.mjs CORE WHEELS ROOT [PYTEST ARGUMENTS]
//
// CORE has Pyodide with NumPy and SciPy, WHEELS what else the tests import, ROOT is the
// checkout. Python runs in a worker, which says when a test begins and ends. When one
// takes too long, Python is interrupted, and so shows where it was; where it does not
// hear, everything is ended with the name of the test.
import { readdirSync, readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const START_S = 300;
const GRACE_S = 10;
const HUNG = 124;
const SIGINT = 2;

function watch(data) {
  const interrupt = new Uint8Array(new SharedArrayBuffer(1));
  const python = new Worker(new URL(import.meta.url), {
    workerData: { ...data, interrupt },
  });
  let timers = [];
  const after = (seconds, act) => timers.push(setTimeout(act, seconds * 1000));
  const end = (why, code) => {
    console.error(`wasm: ${why}`);
    process.exit(code);
  };
  const expect = (what, seconds) => {
    timers.forEach(clearTimeout);
    timers = [];
    if (!what) return;
    after(seconds, () => {
      console.error(`wasm: ${what} took over ${seconds} s`);
      interrupt[0] = SIGINT;
    });
    // a deadline of a test of the watch itself is short, and so is what follows it
    after(seconds + Math.min(GRACE_S, 2 * seconds), () => end(`${what} did not hear the interrupt`, HUNG));
  };
  expect("starting Python", START_S);
  python.on("message", ({ what, seconds, code }) => {
    if (code === undefined) expect(what, seconds);
    else process.exit(code);
  });
  // an error of Pyodide's own quotes its source, which is one line of a megabyte
  python.on("error", (error) => end(String(error.stack ?? error).slice(0, 4000), 1));
  python.on("exit", (code) => end(`Python ended without a word (${code})`, 1));
}

async function run({ core, wheels, root, words, interrupt }) {
  const { loadPyodide } = await import(pathToFileURL(`${core}/pyodide.mjs`).href);
  const python = await loadPyodide({ indexURL: `${core}/` });
  // the streams of a worker have no descriptors, which Pyodide looks for
  python.setStdin({ error: true });
  python.setStdout({ write: (bytes) => writeSync(1, bytes) });
  python.setStderr({ write: (bytes) => writeSync(2, bytes) });
  await python.loadPackage(["numpy", "scipy"], { messageCallback: () => {} });
  const site = python.runPython("import site; site.getsitepackages()[0]");
  for (const name of readdirSync(wheels)) {
    const wheel = new Uint8Array(readFileSync(`${wheels}/${name}`));
    python.unpackArchive(wheel, "wheel", { extractDir: site });
  }
  python.FS.mkdir("/checkout");
  python.mountNodeFS("/checkout", root);
  python.registerJsModule("watchdog", {
    expect: (what, seconds) => parentPort.postMessage({ what, seconds }),
  });
  python.setInterruptBuffer(interrupt);
  python.globals.set("words", python.toPy(words));
  parentPort.postMessage({ what: "collecting the tests", seconds: START_S });
  const code = await python.runPythonAsync(`
    import os, sys
    sys.dont_write_bytecode = True
    sys.path.insert(0, "/checkout")
    os.chdir("/checkout")
    import pytest
    int(pytest.main(["-p", "tests.wasm.pytest_plugin", *words]))
  `);
  parentPort.postMessage({ code });
}

if (isMainThread) {
  const [core, wheels, root, ...words] = process.argv.slice(2);
  watch({ core, wheels, root, words });
} else {
  await run(workerData);
}
