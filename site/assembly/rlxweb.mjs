// Python with NumPy and rlxweb in it, all of it on its way at once.
//
//   import { loadRlxweb } from "./runtime/rlxweb.mjs";
//   const python = await loadRlxweb();
//   await python.runPythonAsync("import rlxweb; …");
//
// In a page or in a Worker. Gives what loadPyodide gives, takes its options and `onStep`,
// which hears "python", "packages" and "imported" as each of them begins or is done.
// The packages come as one file that is laid into Python's file system as it is: nothing
// is unpacked, and of their binaries none is compiled but those that are imported.
import { loadPyodide } from "./pyodide.mjs";

const PACKED = {};
const HERE = new URL("./", import.meta.url).href;

// What dataclasses write when a module of theirs is imported comes compiled, as modules do.
const IMPORT = `
import dataclasses, importlib, marshal
importlib.invalidate_caches()
with open(home + "/rlxweb_dataclasses.marshal", "rb") as file:
    known = marshal.load(file)
dataclasses.exec = lambda source, *spaces: exec(known.get(source, source), *spaces)
import rlxweb
`;
const HOME = "import site; site.getsitepackages()[0]";

// The browser opens its GPU process while all the rest is on its way. What comes of it is
// asked for again, and heard, when the device is opened.
navigator.gpu?.requestAdapter().catch(() => {});

export async function loadRlxweb({ onStep = () => {}, ...options } = {}) {
  onStep("python");
  const coming = image();
  coming.catch(() => {}); // awaited below; Python's own failure is told first
  const python = await loadPyodide({ indexURL: HERE, ...options });
  onStep("packages");
  const home = python.runPython(HOME);
  layOut(python.FS, home, await coming);
  for (const name of Object.keys(PACKED.packages)) python.loadedPackages[name] = "rlxweb.mjs";
  const globals = python.toPy({ home });
  python.runPython(IMPORT, { globals });
  globals.destroy();
  onStep("imported");
  return python;
}

async function image() {
  const answer = await fetch(HERE + PACKED.image, { integrity: PACKED.integrity });
  if (!answer.ok) {
    throw new Error(`${HERE}${PACKED.image} could not be loaded (${answer.status} ${answer.statusText})`);
  }
  const unpacked = answer.body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

// Every file is a part of the one buffer: none is copied.
function layOut(FS, home, bytes) {
  const end = bytes.indexOf(10);
  const sizes = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const folders = new Set();
  let at = end + 1;
  for (const [path, size] of Object.entries(sizes)) {
    const cut = path.lastIndexOf("/");
    const folder = cut < 0 ? home : `${home}/${path.slice(0, cut)}`;
    if (!folders.has(folder)) {
      FS.mkdirTree(folder);
      folders.add(folder);
    }
    FS.createDataFile(folder, path.slice(cut + 1), bytes.subarray(at, at + size), true, true, true);
    at += size;
  }
  if (at !== bytes.length) {
    throw new Error(`${PACKED.image} has ${bytes.length} bytes where its list says ${at}`);
  }
}
