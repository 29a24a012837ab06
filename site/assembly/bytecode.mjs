// Compiles what a page imports, by the very Python that will import it.
//
//     node bytecode.mjs RUNTIME ZIP
//
// RUNTIME is a folder with Pyodide, its lock file and our wheel; ZIP is written.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [runtime, zip] = process.argv.slice(2);
const script = new URL("bytecode_in_python.py", import.meta.url);
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${runtime}/` });
await python.loadPackage("rlxweb", { messageCallback: () => {} });
python.runPython(readFileSync(script, "utf-8"));
writeFileSync(zip, python.FS.readFile("/bytecode.zip"));
