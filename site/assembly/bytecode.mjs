// Compiles what a page imports, by the very Python that will import it.
//
//     node bytecode.mjs RUNTIME OUT
//
// RUNTIME is a folder with Pyodide, its lock file and our wheel. Into the folder OUT go
// bytecode.zip and python_stdlib.zip, which pyodide_bytecode_script.py describes.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [runtime, out] = process.argv.slice(2);
const script = new URL("pyodide_bytecode_script.py", import.meta.url);
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
// node would quote the line of Pyodide that failed, which is megabytes long; of Python's
// traceback the last line names the error.
try {
  const python = await loadPyodide({ indexURL: `${runtime}/` });
  await python.loadPackage("rlxweb", { messageCallback: () => {} });
  python.runPython(readFileSync(script, "utf-8"));
  for (const name of ["bytecode.zip", "python_stdlib.zip"]) {
    writeFileSync(`${out}/${name}`, python.FS.readFile(`/${name}`));
  }
} catch (error) {
  console.error(error.message.trim().split("\n").at(-1));
  process.exitCode = 1;
}
