// Pyodide with rlxweb and the tests' own modules, in a page or in a Worker.
import { loadPyodide } from "../runtime/pyodide.mjs";

export async function boot() {
  const base = new URL("../", import.meta.url).href;
  const python = await loadPyodide({ indexURL: `${base}runtime/` });
  const quiet = { messageCallback: () => {} };
  await python.loadPackage("rlxweb", quiet);
  const tests = await (await fetch(`${base}_tests/tests.zip`)).arrayBuffer();
  python.unpackArchive(tests, "zip", { extractDir: "/tests_of_rlxweb" });
  python.runPython("import sys; sys.path.insert(0, '/tests_of_rlxweb')");
  return {
    // A wait may switch stacks here, where the browser can.
    py: async (code) => String(await python.runPythonAsync(code)),
    // Entered so that no wait can: what every call is in a browser without JSPI.
    blocking: async (code) => String(python.runPython(code)),
  };
}

if (globalThis.WorkerGlobalScope && globalThis instanceof WorkerGlobalScope) {
  const ways = boot();
  addEventListener("message", async ({ data: { id, how, code } }) => {
    try {
      postMessage({ id, ok: await (await ways)[how](code) });
    } catch (error) {
      postMessage({ id, error: String(error.message ?? error) });
    }
  });
}
