// The playground: an editor, a Run button, and what Python says while it runs.
//
// Code runs in the Worker, so that the page stays alive whatever the code does; Stop ends
// the Worker and starts another. Code that came with a link is shown, never run by itself.
import { openShell } from "../shell.js";
import { start as startPython } from "../rlx.js";
import { Editor } from "./editor.js";
import { EXAMPLES, source } from "./examples.js";
import { Output } from "./output.js";
import { fromFragment, toFragment } from "./share.js";

const PYTHON = ["plots.py", "playground.py"];
const KEPT = "rlxweb-playground";

const page = openShell({ here: "playground" });
const at = (id) => document.getElementById(id);
const output = new Output(at("output"), { onLine: (line) => editor.goTo(line) });
const editor = new Editor(at("editor"), { onRun: () => run(), onChange: changed });

let rlx = null;
let running = false;
let stopped = false;
let wanted = false; // Run was asked for while Python was starting
let example = EXAMPLES[0].id;
let untouched = "";

async function main() {
  fillExamples();
  listen();
  const fresh = await firstCode();
  rlx = await page.start({ python: PYTHON, onPost: take });
  if (!rlx) return;
  if (!page.gpu.there) tellNoGpu();
  ready();
  if (fresh || wanted) await run();
  else await rlx.call("run", { code: "" });
  if (!fresh) output.clear();
  page.firstResult();
}

function tellNoGpu() {
  page.problem({
    key: "no-gpu",
    mild: true,
    title: "This browser offers no WebGPU",
    text: `${page.gpu.why}. Everything here runs on NumPy instead; device="webgpu" is refused.`,
  });
}

// --- the code -------------------------------------------------------------------------

function fillExamples() {
  for (const { id, title } of EXAMPLES) at("example").add(new Option(title, id));
}

// From the link, else as it was left, else the first example: true only for that.
async function firstCode() {
  if (await takeLink()) return false;
  const kept = remembered();
  if (kept) {
    await choose(kept.example, kept.code);
    return false;
  }
  await choose(example);
  return true;
}

async function takeLink() {
  try {
    const code = await fromFragment(location.hash);
    if (code === null) return false;
    const before = editor.code;
    await choose(example, code);
    page.problem({
      key: "link",
      mild: true,
      title: "This code came with the link",
      text: "It was not run. Read it, then press Run.",
      actions: before && before !== code ? [{ label: "Bring back what was here", run: back(before) }] : [],
    });
    return true;
  } catch (error) {
    page.problem({
      key: "link",
      title: "The link holds no code that can be read",
      text: `${error.message || "it is damaged"}. Ask for the link again; what you had here is unchanged.`,
    });
    return false;
  }
}

// Put an example, or other code under its name, into the editor.
async function choose(id, code) {
  example = EXAMPLES.some((one) => one.id === id) ? id : EXAMPLES[0].id;
  at("example").value = example;
  untouched = await source(example);
  editor.load(code ?? untouched);
  remember();
}

async function replaceWith(id) {
  const before = editor.code;
  const edited = before !== untouched;
  const old = example;
  await choose(id);
  page.settled("link");
  page.settled("replaced");
  if (!edited) return;
  page.problem({
    key: "replaced",
    mild: true,
    title: "Your changes were replaced",
    text: "The example is in the editor now.",
    actions: [{ label: "Bring back what was here", run: back(before, old) }],
  });
}

function back(code, id = example) {
  return async (away) => {
    away();
    await choose(id, code);
    editor.area.focus();
  };
}

function changed() {
  at("link").hidden = true;
  remember();
}

function remember() {
  try {
    if (editor.code === untouched && example === EXAMPLES[0].id) localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, JSON.stringify({ example, code: editor.code }));
  } catch {
    // storage is blocked or full: the code lives as long as the page
  }
}

function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT));
    return typeof kept?.code === "string" ? kept : null;
  } catch {
    return null;
  }
}

async function share() {
  const fragment = await toFragment(editor.code);
  history.replaceState(null, "", fragment);
  at("link").hidden = false;
  at("address").value = location.href;
  try {
    await navigator.clipboard.writeText(location.href);
    at("copied").textContent = "Copied";
  } catch {
    at("copied").textContent = "Copy it from here";
    at("address").select();
  }
}

// --- running --------------------------------------------------------------------------

function take(data, arrays) {
  if (running) output.take(data, arrays);
}

async function run() {
  if (running) return;
  if (!rlx) {
    wanted = true;
    page.say("Runs as soon as Python is ready");
    return;
  }
  wanted = false;
  busy(true);
  output.clear();
  editor.mark(null);
  const began = performance.now();
  const clock = setInterval(() => (at("clock").textContent = `${seconds(began)} s`), 100);
  try {
    const { result } = await rlx.call("run", { code: editor.code });
    finished(result, seconds(began));
  } catch (error) {
    if (!stopped) page.failure(error, { title: "Python stopped answering", key: "run", actions: [{ label: "Start Python again", run: restart }] });
  } finally {
    clearInterval(clock);
    busy(false);
  }
}

function seconds(began) {
  return ((performance.now() - began) / 1000).toFixed(2);
}

function finished({ error, dropped }, took) {
  output.show();
  if (dropped) output.note(`… and ${dropped.toLocaleString("en")} more lines, which are not shown.`);
  at("clock").textContent = `${took} s`;
  if (!error) {
    if (output.isEmpty) output.note("It ran and said nothing.");
    page.say(`Ran in ${took} s`);
    return;
  }
  output.error(error);
  editor.mark(error.frames.at(-1)?.line);
  page.say(`${error.type} after ${took} s`);
}

async function stop() {
  if (!running) return;
  stopped = true;
  rlx.stop();
  output.note("Stopped. Python starts again, with nothing left of this run.", "warn");
  await restart();
}

async function restart(away = () => {}) {
  away();
  rlx?.stop(); // what does not answer still holds memory
  rlx = null;
  at("run").disabled = true;
  page.say("Python is starting again");
  try {
    rlx = await startPython({ python: PYTHON, onPost: take });
    ready();
    page.say("Python is ready again");
    if (wanted) run();
  } catch (error) {
    page.failure(error, {
      title: "Python could not be started again",
      actions: [{ label: "Load the page again", run: () => location.reload() }],
    });
  }
}

function ready() {
  stopped = false;
  at("run").disabled = running;
}

function busy(now) {
  running = now;
  at("run").disabled = now || !rlx;
  at("stop").disabled = !now;
  at("output").setAttribute("aria-busy", String(now));
  if (now) page.say("Running");
}

function listen() {
  at("run").addEventListener("click", run);
  at("stop").addEventListener("click", stop);
  at("share").addEventListener("click", share);
  at("reset").addEventListener("click", () => {
    replaceWith(example);
    output.clear();
  });
  at("example").addEventListener("change", () => replaceWith(at("example").value));
  at("address").addEventListener("focus", () => at("address").select());
  addEventListener("hashchange", takeLink);
  page.onTheme(() => output.redraw());
}

main();
