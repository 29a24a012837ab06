// Train a network: steps are made some at a time, so that the page hears of each stretch
// and can stop between two of them. Python does one thing after the other, in the order
// in which it is asked here.
import { openShell } from "../shell.js";
import { Confusion } from "./confusion.js";
import { Curve, inPercent, inShort } from "./curve.js";
import { files } from "./files.js";
import { hearing } from "./hearing.js";
import { Settings } from "./settings.js";
import { voices } from "./voices.js";

const CALL_MS = 70; // of steps that one call makes
const JUDGED = 25; // steps between two looks at the held-out part
const TOLD = 100; // steps between two sentences for those who listen to the page
const ROWS = 12; // of the table of the curve
const NAMES = [["ee", "see"], ["eh", "bed"], ["ah", "father"], ["aw", "law"], ["oo", "too"]];

const page = openShell({ here: "train" });
const at = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en");
const curve = new Curve(at("curve"));
const settings = new Settings();
const confusion = new Confusion(at("confusion-head"), at("confusion"), at("confusion-said"), NAMES.map(([name]) => name));

let rlx = null;
let turn = Promise.resolve(); // the last call into Python
let running = false;
let wanted = false; // that it runs
let steps = 0;
let target = 0; // steps at which it ends
let judgedAt = -1;
let prepared = "";
let engine = "";
let paces = []; // seconds a step, of the last calls

// One call after the other.
function ask(name, args = {}, buffers = []) {
  const answer = turn.then(() => rlx.call(name, args, buffers));
  turn = answer.catch(() => {});
  return answer;
}

// --- the training ----------------------------------------------------------------------

async function run() {
  if (running || !settings.check()) return;
  running = wanted = true;
  if (steps >= target || target > steps + settings.steps) target = steps + settings.steps;
  curve.upTo(target);
  for (const key of ["bad", "lost", "failed"]) page.settled(key);
  show("running");
  let how = "paused";
  try {
    while (wanted) {
      const next = await stretch();
      if (!next) continue;
      how = next;
      break;
    }
    if (how === "paused" && steps) {
      running = false;
      show(how); // at once; whoever goes on now is asked after this
    }
    if ((how === "paused" || how === "done") && (await judge())) how = "lost";
  } catch (error) {
    how = "failed";
    page.failure(error, { title: "The training failed", key: "failed" });
  }
  if (how === "paused" && steps) return;
  if (how === "paused") how = "ready"; // before its first step
  running = wanted = false;
  show(how);
}

// Steps of one call. What ended the training, or "".
async function stretch() {
  const asked = settings.now();
  if (prepared !== settings.key(asked)) {
    const over = await prepare(asked);
    if (over || !wanted) return over;
  }
  const most = Math.min(target - steps, JUDGED - (steps % JUDGED));
  const { result, buffers } = await ask("advance", { rate: asked.rate, ms: CALL_MS, most });
  if (result.lost) return lost(result);
  curve.push(new Float64Array(buffers[0].buffer));
  steps = result.steps;
  if (result.bad) return stopped(result);
  paces = [...paces.slice(-19), result.seconds / result.count];
  figures(asked);
  if (steps % JUDGED === 0 && (await judge())) return "lost";
  if (steps >= target) return "done";
  return "";
}

async function prepare(asked) {
  say("Deriving and compiling the step");
  const { result } = await ask("prepare", asked);
  if (result.missing) {
    page.problem({ title: "There is nothing to train on", text: `${result.missing}.`, mild: true, key: "missing" });
    return "paused";
  }
  if (result.lost) return lost(result);
  page.settled("missing");
  saved.letGo();
  prepared = settings.key(asked);
  paces = [];
  engine = result.engine;
  page.engine(engine);
  at("why").textContent = `${engine}: ${why(asked.device, result.why)}. A step is a graph of ${result.nodes} nodes and was ready after ${result.seconds.toFixed(1)} s; the network has ${count(result.weights)} weights.`;
  at("explain").textContent = result.explain;
  at("explained").hidden = false;
  say(`Training on ${engine}`);
  return "";
}

function why(device, decided) {
  if (device === "auto") return decided;
  return page.gpu.there ? "you chose it" : "WebGPU is not available";
}

// Judges the held-out part once for each step; true when the device was lost.
async function judge() {
  if (judgedAt === steps || !steps) return false;
  const { result } = await ask("judge");
  if (result.lost) {
    lost(result);
    return true;
  }
  judgedAt = steps;
  const loss = Number(result.loss);
  curve.judge(steps, loss, result.right);
  confusion.show(result.confusion, steps);
  at("figure-held").textContent = inShort(loss);
  at("figure-right").textContent = inPercent(result.right);
  at("curve").setAttribute("aria-label", curve.words());
  rows();
  if (steps % TOLD === 0) page.say(`Step ${count(steps)}: ${inPercent(result.right)} of ${result.of} held-out examples are correct`);
  page.firstResult();
  return false;
}

function stopped({ bad, step }) {
  page.problem({
    title: `Stopped: the loss of step ${count(step)} is not a number`,
    text: bad,
    actions: [{ label: "Reset", run: reset }],
    key: "bad",
  });
  figures(settings.now());
  return "stopped";
}

function lost({ lost: reason, steps: back }) {
  steps = back;
  judgedAt = -1;
  prepared = "";
  curve.cut(back);
  figures(settings.now());
  const text = `${reason}. The training was reset to its last test, at step ${count(back)}.`;
  page.problem({
    title: "The GPU was lost",
    text: text.charAt(0).toUpperCase() + text.slice(1),
    actions: [
      { label: "Continue with NumPy", run: () => goOn("cpu") },
      { label: "Try the GPU again", run: reopen },
    ],
    mild: true,
    key: "lost",
  });
  return "lost";
}

function goOn(device) {
  settings.device = device;
  run();
}

async function reopen() {
  const { result } = await ask("reopen");
  if (result.why) page.say(`The GPU could not be opened again: ${result.why}`);
  else goOn("webgpu");
}

// Ends what runs.
async function halt() {
  wanted = false;
  while (running) await new Promise((next) => setTimeout(next, 10));
}

async function reset() {
  await halt();
  await ask("reset");
  saved.letGo();
  began(0, []);
  page.settled("bad");
  show("ready");
}

// Another network: how many steps it has made, and their losses.
function began(made, losses) {
  steps = made;
  target = 0;
  judgedAt = -1;
  prepared = "";
  paces = [];
  curve.clear(Math.max(settings.steps, made));
  curve.push(losses);
  confusion.clear();
  heard.clear();
  for (const id of ["figure-held", "figure-right", "figure-ms", "figure-rate"]) at(id).textContent = "–";
  figures(settings.now());
  at("curve").setAttribute("aria-label", curve.words());
  rows();
}

// --- what is shown ---------------------------------------------------------------------

function figures({ batch }) {
  at("figure-steps").textContent = steps ? count(steps) : "–";
  at("figure-loss").textContent = steps ? inShort(curve.mean()) : "–";
  if (!paces.length) return;
  const pace = [...paces].sort((a, b) => a - b)[paces.length >> 1];
  at("figure-ms").textContent = `${(1000 * pace).toPrecision(3)} ms`;
  at("figure-rate").textContent = count(Math.round(batch / pace));
}

function rows() {
  const { judged } = curve;
  const every = Math.ceil(judged.length / ROWS) || 1;
  const some = judged.filter((_, k) => (judged.length - 1 - k) % every === 0);
  at("rows").replaceChildren(...some.map(({ step, loss, right }) => {
    const row = document.createElement("tr");
    const cells = [count(step), inShort(curve.mean(step)), inShort(loss), inPercent(right)];
    row.append(...cells.map((words, k) => Object.assign(document.createElement("td"), { textContent: words, className: k ? "number" : "" })));
    return row;
  }));
}

function say(words) {
  at("said").textContent = words;
  page.say(words);
}

const WORDS = {
  ready: () => "Ready. Press Start to train a new network",
  running: () => (prepared ? `Training on ${engine}` : "Deriving and compiling the step"),
  paused: () => `Paused at step ${count(steps)}`,
  done: () => `Done: ${count(steps)} steps on ${engine}, ${at("figure-right").textContent} of the held-out examples correct`,
  stopped: () => `Stopped before step ${count(steps + 1)}`,
  lost: () => `The GPU was lost; the training was reset to step ${count(steps)}`,
  failed: () => "The training failed",
};

function show(state) {
  at("training").dataset.state = state;
  const on = state === "running";
  at("start").textContent = on ? "Pause" : steps ? "Continue" : "Start";
  at("start").disabled = at("reset").disabled = !rlx;
  at("reset").disabled ||= !steps && !on && !saved.isOpen;
  for (const id of ["save", "save-state"]) at(id).disabled = !steps;
  settings.lock(on || steps > 0);
  heard.allow(steps > 0 || saved.isOpen);
  say(WORDS[state]());
}

// --- the page --------------------------------------------------------------------------

const parts = {
  page,
  ask,
  names: NAMES,
  settings,
  began,
  halt,
  show,
  lost(result) {
    lost(result);
    if (!running) show("lost");
  },
};
const heard = hearing(parts);
const own = voices(parts);
const saved = files(parts);

at("start").addEventListener("click", () => {
  if (running) wanted = false;
  else run();
});
at("reset").addEventListener("click", reset);
at("steps").addEventListener("change", () => {
  if (!settings.check()) return;
  target = Math.max(steps, settings.steps);
  curve.upTo(target);
});
page.onTheme(() => curve.readColours());

async function open() {
  rlx = await page.start({ python: ["vowels.py", "network.py", "data.py", "train.py"] });
  if (!rlx) return say("Python could not be started");
  settings.offer(page.gpu);
  if (!page.gpu.there) {
    page.problem({
      title: "WebGPU is not available: NumPy trains the network",
      text: `${page.gpu.why.charAt(0).toUpperCase()}${page.gpu.why.slice(1)}. The curve is the same.`,
      mild: true,
      key: "no-gpu",
    });
  }
  say("Generating the voices");
  try {
    const { result } = await ask("make");
    own.show(result);
    page.firstResult("Ready");
    show("ready");
  } catch (error) {
    rlx = null;
    page.failure(error, { title: "The voices could not be generated", key: "failed" });
  }
}

open();
