// The playground: an editor, a Run button, and what Python says while it runs.
//
// Only a press runs anything, and only the text that is on the screen at that press. Each
// run has a Worker of its own, which ends with it, so the page stays alive whatever a
// program does, and no program meets another. In a frame of another page nothing runs.
import { openShell } from "../shell.js";
import { closedBy } from "../policy.js";
import { Editor } from "./editor.js";
import { Heard, heardEnd } from "./heard.js";
import { Output } from "./output.js";
import { Program } from "./program.js";
import { toFragment } from "./share.js";
import { Supply } from "./supply.js";

const page = openShell({ here: "playground" });
const at = (id) => document.getElementById(id);
const output = new Output(at("output"), { onLine: (line) => editor.goTo(line) });
const editor = new Editor(at("editor"), { onRun: () => run(), onChange: changed });
const program = new Program({
  editor, page, list: at("example"), origin: at("origin"), onShown: buttons,
});
const supply = new Supply();

let ready = false; // Python has started once
let current = null; // the run that goes on: {room, heard, ended}
let lateLink = false; // a link that came while a program ran

async function main() {
  if (window.top !== window) return refuseFrame();
  listen();
  await program.open();
  supply.fill(async (options) => {
    const rlx = await page.start(options);
    if (rlx) started();
    return rlx;
  });
  await tellPromise();
}

function started() {
  if (!page.gpu.there) tellNoGpu();
  ready = true;
  if (!current) page.say("Python is ready");
  page.firstResult("Ready");
  buttons();
}

// Whoever frames this page could make a visitor press Run on something they do not see.
function refuseFrame() {
  for (const node of document.querySelectorAll("button, select")) node.disabled = true;
  editor.area.disabled = true;
  output.clear();
  page.problem({
    key: "framed",
    title: "The playground does not run inside another page",
    text: "The surrounding page could change what you see and what is run. Open the playground in its own tab.",
    actions: [{ label: "Open the playground", run: () => open(location.pathname, "_blank", "noopener") }],
  });
}

function tellNoGpu() {
  page.problem({
    key: "no-gpu",
    mild: true,
    title: "This browser offers no WebGPU",
    text: `${page.gpu.why}. Everything here runs on NumPy instead; device="webgpu" raises an error.`,
  });
}

// Said only where the browser holds programs to it. What a program asks of the site's own
// host, which `import` can, that host hears.
async function tellPromise() {
  const closed = await closedBy(new URL("../worker.js", import.meta.url));
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const own = here
    ? "Nothing leaves this machine: no program here can reach another host."
    : `No program here can reach another host than this site's own, ${location.hostname}.`;
  at("promise").textContent = closed
    ? own
    : "This host does not prevent programs from reaching other hosts: run only what you trust.";
}

// --- running --------------------------------------------------------------------------

async function run() {
  if (current) return;
  const code = program.pressed();
  if (code === null) return;
  const own = { room: null, heard: new Heard(), clock: null, ended: false };
  current = own;
  output.clear();
  editor.mark(null);
  at("clock").textContent = "";
  page.settled("run");
  page.say(ready ? "Running" : "Runs as soon as Python is ready");
  buttons();
  try {
    await ran(own, code);
  } catch (error) {
    if (!own.ended) failed(error);
  } finally {
    over(own);
  }
}

async function ran(own, code) {
  const room = await supply.take();
  if (own.ended) return supply.rest(room); // stopped before it began
  own.room = room;
  room.hear = (data, arrays) => take(own, data, arrays);
  page.say("Running");
  const began = performance.now();
  own.clock = setInterval(() => (at("clock").textContent = `${seconds(began)} s`), 100);
  const { result } = await room.rlx.call("run", { code });
  finished(heardEnd(result), own.heard, seconds(began));
}

function seconds(began) {
  return ((performance.now() - began) / 1000).toFixed(2);
}

function take(own, data, arrays) {
  if (own.ended) return;
  const said = own.heard.take(data, arrays);
  if (said) output.take(said);
}

function finished({ error, dropped }, heard, took) {
  output.show();
  const missing = dropped + heard.dropped;
  if (missing) output.note(`… and ${missing.toLocaleString("en")} more lines, which are not shown.`);
  at("clock").textContent = `${took} s`;
  if (!error) {
    if (output.isEmpty) output.note("The program printed nothing.");
    page.say(`Ran in ${took} s`);
    return;
  }
  output.error(error);
  editor.mark(error.frames.at(-1)?.line);
  page.say(`${error.type} after ${took} s`);
}

function failed(error) {
  page.failure(error, { title: "Python no longer responds", key: "run" });
  page.say("The next run restarts Python");
}

// Its room goes, and with it all that the program did and may still be doing.
function over(own) {
  clearInterval(own.clock);
  own.ended = true;
  own.room?.rlx.stop();
  if (current !== own) return;
  current = null;
  supply.rest();
  buttons();
  if (lateLink) linked();
}

function stop() {
  if (!current) return;
  output.note("Stopped. The next run restarts Python; all values of this run are lost.", "warn");
  page.say("Stopped");
  over(current);
}

// --- what the visitor does --------------------------------------------------------------

function buttons() {
  at("run").disabled = Boolean(current) || !ready || !program.readable;
  at("stop").disabled = !current;
  at("output").setAttribute("aria-busy", String(Boolean(current)));
}

function changed() {
  at("link").hidden = true;
  program.edited();
}

// A link is shown when nothing runs: what is said is then said by what is on the screen.
function linked() {
  lateLink = Boolean(current);
  if (!lateLink) program.takeLink();
}

async function share() {
  page.settled("share");
  let fragment;
  try {
    fragment = await toFragment(editor.code);
  } catch (error) {
    page.problem({ key: "share", title: "A link cannot contain this code", text: `${error.message}.` });
    return;
  }
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

function listen() {
  at("run").addEventListener("click", run);
  at("stop").addEventListener("click", stop);
  at("share").addEventListener("click", share);
  at("reset").addEventListener("click", () => {
    program.choose(program.example);
    output.clear();
  });
  at("example").addEventListener("change", () => program.choose(at("example").value));
  at("address").addEventListener("focus", () => at("address").select());
  addEventListener("hashchange", linked);
  page.onTheme(() => output.redraw());
  // A file dropped beside the editor would be opened in place of this page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (drop) => drop.dataTransfer?.types.includes("Files") && drop.preventDefault());
  }
}

main().catch((error) => page.failure(error, { title: "The playground could not be opened" }));
