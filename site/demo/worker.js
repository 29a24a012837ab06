// Python in a Worker: NumPy and rlxweb from ../runtime/, and one way in.
//
// Messages in   {start: {python: [urls], sealed}}, then {id, call, args, buffers},
//               {id, mount: File} → its path, {id, unmount: path}
// Messages out  {progress, detail}, {ready}, {id, result, buffers}, {id, error}, {fatal},
//               {ended} when Python can answer no more, and {posted, buffers} for each
//               post(data, arrays) of Python as it runs
// Used through rlx.js; a page never talks to it directly.
import { loadRlxweb } from "../runtime/rlxweb.mjs";
import { limited, seal } from "./sealed.js";

const EIO = 29;
const STEPS = new Map([
  ["python", ["runtime", "Python"]],
  ["packages", ["packages", "NumPy and rlxweb"]],
  ["imported", ["adapter", "the GPU of this browser"]],
]);
const tell = postMessage.bind(globalThis); // a sealed Worker has no other
let call = null;
let files = null;
let sealed = false; // then what is said beside posts, which have an end, goes nowhere

// Demo functions take (args, buffers) and give a result or (result, [arrays]). They are
// entered so that blocking waits may switch stacks where the browser can do that.
// post(data, arrays) hands the page something while a function is still running.
const ENTRY = `
import inspect, json, time

async def finish(out):
    return pack(await out)

def pack(out):
    data, arrays = out if isinstance(out, tuple) else (out, [])
    return json.dumps(data), arrays

def post(data, arrays=()):
    post_text(json.dumps(data), list(arrays))

def enter(name, text, buffers):
    out = globals()[name](json.loads(text), [b.to_py() for b in buffers])
    return finish(out) if inspect.isawaitable(out) else pack(out)
`;

function step(progress, detail = "") {
  if (!sealed || progress !== "said") tell({ progress, detail });
}

// Python is on its way before anybody asks for it: this file is loaded for nothing else.
const coming = loadRlxweb({
  stderr: (text) => step("said", text),
  onStep: (name) => STEPS.has(name) && step(...STEPS.get(name)),
});
coming.catch(() => {}); // told by start

async function start({ python = [], sealed: closed = false }) {
  const sources = python.map(source);
  for (const text of sources) text.catch(() => {}); // awaited when Python is there
  const py = await coming;
  const row = await py.runPythonAsync(`
from rlxweb.select.availability import open_async
row = await open_async("webgpu")
import json
json.dumps(row.as_json())
`);
  const namespace = py.globals.get("dict")();
  const post = (text, arrays) => give({ posted: JSON.parse(text) }, arrays);
  namespace.set("post_text", closed ? limited(post) : post);
  py.runPython(ENTRY, { globals: namespace });
  py.runPython(`import os, sys; os.mkdir("/demo"); sys.path.append("/demo")`);
  for (const [index, url] of python.entries()) {
    const text = await sources[index];
    py.FS.writeFile(`/demo/${url.split("/").at(-1)}`, text); // for files that import it
    py.runPython(text, { globals: namespace, filename: url });
  }
  const jspi = await canBlock(py);
  const enter = namespace.get("enter");
  call = jspi ? (...given) => enter.callPromising(...given) : enter;
  files = fileRoom(py.FS);
  if (closed) seal();
  sealed = closed;
  tell({ ready: { device: JSON.parse(row), jspi, versions: versions(py) } });
}

// Can Python called from here wait in blocking code? That takes JSPI, and where it is
// missing callPromising is there and throws.
async function canBlock(py) {
  const ask = py.runPython("from rlxweb.gpu.browser_port import can_block; can_block");
  try {
    return await ask.callPromising();
  } catch {
    return false;
  } finally {
    ask.destroy();
  }
}

async function source(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} could not be loaded (${answer.status} ${answer.statusText})`);
  return answer.text();
}

// Files of the page as paths that Python can open. Nothing is copied: each read takes its
// own slice of the file, so a file may be larger than memory.
function fileRoom(FS) {
  const { WORKERFS } = FS.filesystems;
  const read = WORKERFS.stream_ops.read;
  // A file that changed since it was chosen cannot be read any more: an OSError of
  // Python's, where the browser's own exception would end the interpreter.
  WORKERFS.stream_ops.read = (...asked) => {
    try {
      return read(...asked);
    } catch {
      throw new FS.ErrnoError(EIO);
    }
  };
  let next = 1;
  return {
    mount(file) {
      const folder = `/files/${next++}`;
      FS.mkdirTree(folder);
      FS.mount(WORKERFS, { files: [file] }, folder);
      return `${folder}/${file.name}`;
    },
    unmount(path) {
      FS.unmount(path.split("/").slice(0, 3).join("/"));
    },
  };
}

function versions(py) {
  return JSON.parse(py.runPython(`
import json, sys, numpy, rlxweb
json.dumps({"rlxweb": rlxweb.__version__, "numpy": numpy.__version__, "python": sys.version.split()[0]})
`));
}

// A Python failure as {type, message, traceback}: the message is rlxweb's own sentence.
function told(error) {
  const lines = String(error.message ?? error).trim().split("\n");
  const last = lines.findLast((line) => /^[A-Za-z_][\w.]*(:|$)/.test(line)) ?? lines.at(-1);
  const at = lines.lastIndexOf(last);
  const text = lines.slice(at).join("\n");
  const [, type, message] = /^([\w.]+):?\s*([^]*)$/.exec(text) ?? [, "Error", text];
  return { type: error.type ?? type.split(".").at(-1), message: message || text, traceback: lines.join("\n") };
}

// A message to the page with copies of Python's arrays, which are let go of here.
function give(message, arrays) {
  const buffers = [];
  for (const array of arrays) {
    const view = array.getBuffer();
    buffers.push(view.data.slice());
    view.release();
    array.destroy();
  }
  tell({ ...message, buffers }, buffers.map((b) => b.buffer));
}

async function answer({ id, call: name, args, buffers }) {
  const proxies = [];
  try {
    const out = await call(name, JSON.stringify(args ?? {}), (buffers ?? []).map((b) => new Uint8Array(b)));
    proxies.push(out);
    const [text, arrays] = out;
    proxies.push(arrays);
    give({ id, result: JSON.parse(text) }, arrays);
  } catch (error) {
    tell({ id, error: told(error) });
  } finally {
    for (const proxy of proxies) proxy?.destroy?.();
  }
}

function keep({ id, mount, unmount }) {
  try {
    tell({ id, result: mount ? files.mount(mount) : files.unmount(unmount) });
  } catch (error) {
    tell({ id, error: told(error) });
  }
}

addEventListener("message", async ({ data, isTrusted }) => {
  if (!isTrusted) return; // made up in here, not sent by the page
  if (data.call) return answer(data);
  if (!data.start) return keep(data);
  try {
    await start(data.start);
  } catch (error) {
    tell({ fatal: told(error) });
  }
});

// What no call answers for. The end of the interpreter is one such: all calls hear of it.
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  const { reason } = event;
  const over = reason?.pyodide_fatal_error || reason?.name === "ExitStatus";
  if (over) tell({ ended: told(reason) });
  else step("said", told(reason).traceback);
});
