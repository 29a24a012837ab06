// Python under node: Pyodide, NumPy, and the package that the command runs from.
//
//     node node.mjs RUNTIME PACKAGE.zip < asked.json
//
// Answers with lines on stdout, as every process that stands for an engine does.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const say = (line) => {
  const bytes = Buffer.from(`${line}\n`);
  for (let at = 0; at < bytes.length; ) at += wrote(bytes.subarray(at));
};

function wrote(bytes) {
  try {
    return writeSync(1, bytes);
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
    return 0; // a pipe that is full for the moment
  }
}

async function run([runtime, packed]) {
  const quiet = () => {};
  const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
  const py = await loadPyodide({ indexURL: `${runtime}/`, stdout: quiet, stderr: quiet });
  await py.loadPackage("numpy", { messageCallback: quiet });
  py.unpackArchive(new Uint8Array(readFileSync(packed)), "zip", { extractDir: "/package" });
  py.globals.set("asked", readFileSync(0, "utf-8").split("\n")[0]);
  py.globals.set("said", say);
  await py.runPythonAsync(`
import sys
sys.path.insert(0, "/package")
from rlxweb.smoke.tab.pyodide_main import run_request
await run_request(asked, said)
`);
}

try {
  await run(process.argv.slice(2));
} catch (error) {
  const text = String(error?.message ?? error).trim();
  say(JSON.stringify({ failed: text.split("\n").at(-1).slice(0, 500), is_lost: false }));
}
