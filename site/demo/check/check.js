// "Check this GPU": runs the op suite case by case and fills the matrix as it goes.
//
// Python (check.py) runs and judges one case per call, so the page stays in charge: it
// shows each result as it comes and can stop between any two.
import { make, openShell } from "../shell.js";
import { PythonError } from "../rlx.js";
import { factsNodes } from "./details.js";
import { download } from "./download.js";
import { legendNodes, Matrix } from "./matrix.js";
import { fileName, report } from "./report.js";
import { Sheet } from "./sheet.js";
import { count, remainder, sentence } from "./words.js";

const SPOILED_EVERY = 40;
const LOSSES_IN_A_ROW = 3;

const page = openShell({ here: "check" });
const at = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
const radio = (name, value) => document.querySelector(`input[name="${name}"][value="${value}"]`);

let rlx = null;
let matrix = null;
let run = null;
const sheet = new Sheet((cell) => matrix.pick(cell));

async function main() {
  rlx = await page.start({ python: ["check.py"] });
  if (!rlx) return;
  try {
    await open();
    await start();
  } catch (error) {
    page.failure(error, { title: "The check could not be started" });
  }
}

async function open() {
  const { result: ops } = await rlx.call("plan");
  matrix = new Matrix(at("matrix"), ops, (cell, byKeyboard) => sheet.open(cell, byKeyboard));
  showLegend();
  const device = page.gpu.there ? "webgpu" : "cpu";
  radio("device", device).checked = true;
  if (!page.gpu.there) tellNoGpu();
  at("run").addEventListener("click", () => start());
  at("cancel").addEventListener("click", cancel);
  at("download").addEventListener("click", () => download(report(run, rlx.facts), fileName(run)));
  at("filter").addEventListener("change", showFiltered);
  at("colour").addEventListener("change", () => {
    matrix.colour(chosen("colour"));
    showLegend();
  });
  at("device").addEventListener("change", () => start());
}

function tellNoGpu() {
  at("aside").before(make("p", { class: "sentence-note" }, [
    "WebGPU is not available, so this page compares NumPy in float32 with NumPy in float64.",
  ]));
  page.problem({
    key: "no-gpu",
    mild: true,
    title: "This browser offers no WebGPU",
    text: `${page.gpu.why}. No GPU is checked: the page compares NumPy in float32 with NumPy in float64, on the CPU. `
      + "Chrome and Edge have WebGPU, Safari from version 26 and Firefox on Windows and macOS.",
  });
}

// --- a run --------------------------------------------------------------------------

async function start() {
  const device = chosen("device");
  run = {
    device,
    spoiling: at("spoil").checked,
    cells: matrix.cells,
    tally: { right: 0, wrong: 0, refused: 0 },
    done: 0,
    total: matrix.cells.length,
    began: new Date(),
    seconds: 0,
    cancelled: false,
    lost: 0,
  };
  matrix.clear();
  busy(true);
  try {
    run.row = (await rlx.call("facts", { device })).result;
    showFacts(run.row);
    await eachCase();
  } catch (error) {
    run.cancelled = true;
    page.failure(error, { title: "The run stopped", key: "stopped" });
  } finally {
    busy(false);
    showSummary();
    page.say(at("sentence").textContent);
  }
}

async function eachCase() {
  const clock = performance.now();
  for (const [index, cell] of run.cells.entries()) {
    if (run.cancelled) break;
    matrix.running(cell);
    cell.result = await oneCase(cell, run.spoiling && index % SPOILED_EVERY === 0);
    run.tally[cell.result.word] += 1;
    run.done += 1;
    run.seconds = (performance.now() - clock) / 1000;
    matrix.show(cell);
    if (cell === sheet.cell) sheet.show();
    if (run.done === 1) page.firstResult();
    showSummary();
    noteLoss(cell);
  }
}

// One verdict. A failure of the reference is one too; only a missing GPU ends the run.
async function oneCase(cell, spoil) {
  try {
    const { result } = await rlx.call("check", { op: cell.op.name, at: cell.at, device: run.device, spoil });
    return spoil && result.elements ? { ...result, spoiled: true } : result;
  } catch (error) {
    if (!(error instanceof PythonError) || error.type === "AdapterMissing") throw error;
    return { word: "wrong", why: `${error.type}: ${error.message}`, raised: error.type };
  }
}

function noteLoss(cell) {
  run.lost = cell.result.lost ? run.lost + 1 : 0;
  if (!run.lost) return;
  const given = run.lost >= LOSSES_IN_A_ROW;
  run.cancelled ||= given;
  page.problem({
    key: "lost",
    mild: !given,
    title: given ? "The GPU was lost repeatedly" : "The GPU was lost and opened again",
    text: given
      ? `It was lost ${LOSSES_IN_A_ROW} times in a row, last in ${cell.op.name}. The results so far are kept; check NumPy instead, or reload the page.`
      : `It was lost in ${cell.op.name}. This case counts as wrong; the run continues.`,
    actions: given ? [{ label: "Check NumPy instead", run: switchToNumPy }] : [],
  });
}

function switchToNumPy(away) {
  away();
  radio("device", "cpu").checked = true;
  start();
}

function cancel() {
  run.cancelled = true;
  at("cancel").disabled = true;
  page.say("Cancelling after the current case");
}

// --- what is shown --------------------------------------------------------------------

function busy(running) {
  at("run").disabled = running;
  at("cancel").disabled = !running;
  at("download").disabled = running;
  at("spoil").disabled = running;
  radio("device", "cpu").disabled = running;
  radio("device", "webgpu").disabled = running || !page.gpu.there;
  document.body.dataset.running = running;
  if (running) {
    page.say("Checking");
    page.settled("lost");
    page.settled("stopped");
    showSummary();
  }
}

function showSummary() {
  const engine = run.row?.facts.adapter ?? run.row?.engine ?? "this engine";
  const against = run.device === "cpu" ? `${engine}, float32 compared with float64` : engine;
  at("sentence").textContent = sentence(run.tally, against, run);
  at("sentence").dataset.state = run.tally.wrong ? "wrong" : run.done === run.total ? "right" : "running";
  at("aside").textContent = remainder(run.tally, { ...run, total: document.body.dataset.running === "true" ? run.done : run.total });
  at("progress").max = run.total;
  at("progress").value = run.done;
  at("clock").textContent = `${count(run.done)} of ${count(run.total)} cases, ${run.seconds.toFixed(0)} s`;
  for (const word of ["wrong", "refused"]) {
    radio("filter", word).nextElementSibling.textContent = `${word[0].toUpperCase()}${word.slice(1)} (${count(run.tally[word])})`;
  }
  if (chosen("filter") !== "all") showNothing();
}

function showFiltered() {
  matrix.filter(chosen("filter"));
  showNothing();
}

function showNothing() {
  const shown = chosen("filter");
  const none = shown !== "all" && run.tally[shown] === 0;
  at("nothing").hidden = !none;
  at("nothing").textContent = none ? `No case is ${shown}.` : "";
}

function showLegend() {
  at("legend").replaceChildren(...legendNodes(chosen("colour")));
}

function showFacts(row) {
  at("facts").replaceChildren(...factsNodes(row));
  page.engine(row.engine);
}

main();
