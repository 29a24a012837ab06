// Python in a Worker: Pyodide, NumPy, and the package that the command runs from.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const say = (told) => postMessage(JSON.stringify(told));

async function fetched(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} could not be loaded (${answer.status})`);
  return answer;
}

async function run() {
  const quiet = () => {};
  const indexURL = new URL("pyodide/", import.meta.url).href;
  const py = await loadPyodide({ indexURL, stdout: quiet, stderr: (text) => console.error(text) });
  await py.loadPackage("numpy", { messageCallback: quiet });
  py.unpackArchive(await (await fetched("package.zip")).arrayBuffer(), "zip", { extractDir: "/package" });
  py.globals.set("asked", await (await fetched("asked.json")).text());
  py.globals.set("said", (line) => postMessage(line));
  await py.runPythonAsync(`
import sys
sys.path.insert(0, "/package")
from rlxweb.smoke.tab.pyodide_main import run_request
await run_request(asked, said)
`);
}

function told(error) {
  const text = String(error?.message ?? error).trim();
  return { failed: text.split("\n").at(-1), is_lost: false };
}

try {
  await run();
} catch (error) {
  say(told(error));
} finally {
  say({ end: true });
}
