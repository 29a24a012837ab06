// One job by the exported module and by Python, each timed from the click, one after the
// other so that neither waits for the other's work; then their numbers and shaders compared.
import { make, openShell } from "../shell.js";

const JOB = { rows: 32, samples: 2048, fs: 256, nperseg: 256, k: 5 };
const SHOWN = 4; // rows
const WARM = 20;
const PLAN = new URL("plan/", import.meta.url);

const page = openShell({ here: "export" });
const at = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en-US");
const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const start = document.querySelector(".start");
start.hidden = true; // until Python is asked for

let [run, rlx] = [null, null];

// Two tones in each row and a little noise, the same every time.
function samples() {
  const { rows, samples: n, fs } = JOB;
  let seed = 1;
  const noise = () => ((seed = (seed * 48271) % 2147483647) / 2147483647 - 0.5);
  return Float32Array.from({ length: rows * n }, (_, i) => {
    const [row, t] = [Math.floor(i / n), (i % n) / fs];
    return Math.sin(2 * Math.PI * (4 + 3 * row) * t) + 0.5 * Math.sin(2 * Math.PI * (7 + row) * t) + 0.3 * noise();
  });
}

async function byModule(x) {
  const began = performance.now();
  run ??= await (await import("./plan/welch.js")).load();
  const found = await run({ x });
  const first = performance.now() - began;
  const each = await median(() => run({ x }));
  const texts = await Promise.all(run.plan.shaders.map(async (path) =>
    run.plan.texts[path] ?? (await fetch(new URL(path, PLAN))).text()));
  const { vendor, architecture, description } = run.adapter;
  const engine = description || `${vendor} ${architecture}`.trim() || "an unnamed GPU";
  return { ...found, first, each, texts, engine, bytes: fetchedBytes() };
}

async function byPython(x) {
  const began = performance.now();
  start.hidden = false;
  rlx ??= await page.start({ python: ["export.py"] });
  if (!rlx) return null;
  const device = page.gpu.there ? "webgpu" : "cpu";
  const ask = () => rlx.call("peaks", { ...JOB, device }, [x.slice().buffer]);
  const { result, buffers: [hz, power] } = await ask();
  const first = performance.now() - began;
  page.firstResult();
  const found = { hz: new Float64Array(hz.slice().buffer), power: new Float32Array(power.slice().buffer) };
  const each = await median(ask);
  return { ...found, first, each, texts: result.shaders, engine: result.engine, bytes: await runtimeBytes() };
}

async function median(work) {
  const took = [];
  for (let i = 0; i < WARM; i += 1) {
    const began = performance.now();
    await work();
    took.push(performance.now() - began);
  }
  return took.sort((a, b) => a - b)[WARM / 2];
}

// What the page itself fetched of the module: the Worker's files are not among these.
function fetchedBytes() {
  const own = performance.getEntriesByType("resource").filter(({ name }) => name.startsWith(PLAN.href));
  const sizes = new Map(own.map(({ name, decodedBodySize }) => [name, decodedBodySize]));
  return [...sizes.values()].reduce((sum, n) => sum + n, 0);
}

// What Python's Worker fetches, as the site's list of files has it.
async function runtimeBytes() {
  const answer = await fetch("../../site.json").catch(() => null);
  if (!answer?.ok) return null;
  const { files } = await answer.json();
  return Object.entries(files).filter(([path]) => path.startsWith("runtime/"))
    .reduce((sum, [, { bytes }]) => sum + bytes, 0);
}

function show(id, found) {
  const side = at(id);
  const facts = [
    ["first result", ms(found.first)],
    ["each further run", ms(found.each)],
    ["transferred", found.bytes === null ? "unknown" : `${count(found.bytes)} bytes`],
    ["ran on", found.engine],
  ];
  side.querySelector(".facts").replaceChildren(...facts.flatMap(([name, text], i) => [
    make("dt", {}, [name]), make("dd", i ? {} : { class: "first" }, [text]),
  ]));
  const { k } = JOB;
  const lines = Array.from({ length: SHOWN }, (_, row) => make("tr", {}, [
    make("td", {}, [String(row)]),
    ...Array.from(found.hz.slice(row * k, (row + 1) * k), (hz) => make("td", { class: "number" }, [`${hz} Hz`])),
  ]));
  const heads = ["row", ...Array.from({ length: k }, (_, i) => `${i + 1}.`)];
  side.querySelector(".scroll").replaceChildren(make("table", { class: "table" }, [
    make("thead", {}, [make("tr", {}, heads.map((text, i) => make("th", i ? { class: "number" } : {}, [text])))]),
    make("tbody", {}, lines),
  ]));
}

function failed(id, error) {
  const words = error.code ? `${error.message} (${error.code})` : String(error.message ?? error);
  at(id).querySelector(".facts").replaceChildren(make("dt", {}, ["it did not run"]), make("dd", {}, [words]));
}

function compare(ours, theirs) {
  const main = document.querySelector("main");
  if (!ours || !theirs) {
    at("verdict").textContent = "One of the two did not run, so there is nothing to compare";
    return;
  }
  const all = [...ours.hz, ...ours.power];
  const others = [...theirs.hz, ...theirs.power];
  const equal = all.filter((value, i) => Object.is(value, others[i])).length;
  const worst = all.reduce((most, value, i) => Math.max(most, Math.abs(value - others[i]) / Math.abs(others[i])), 0);
  const shaders = ours.texts.filter((text) => theirs.texts.includes(text)).length;
  const numbers = equal === all.length ? `the same ${count(all.length)} numbers, bit for bit`
    : `${count(equal)} of ${count(all.length)} numbers are identical; the largest relative difference is ${worst.toExponential(1)}`;
  const words = shaders === ours.texts.length ? `the same ${shaders === 1 ? "shader" : `${shaders} shaders`}, letter by letter`
    : `${shaders} of ${ours.texts.length} identical shaders, because Python also uses what this GPU supports beyond WebGPU’s defaults`;
  main.dataset.state = worst < 1e-4 ? "same" : "apart";
  main.dataset.equal = String(equal === all.length);
  main.dataset.shaders = String(shaders === ours.texts.length);
  at("verdict").textContent = `${worst < 1e-4 ? "Right" : "Wrong"}: ${numbers}`;
  at("aside").textContent = `Both ran ${words}.`;
}

async function both() {
  at("run").disabled = true;
  const x = samples();
  const found = {};
  for (const [id, work, words] of [["module", byModule, "The module runs"], ["python", byPython, "Python starts and runs"]]) {
    at("doing").textContent = words;
    try {
      found[id] = await work(x);
      if (found[id]) show(id, found[id]);
    } catch (error) {
      failed(id, error);
    }
  }
  at("doing").textContent = "";
  compare(found.module, found.python);
  at("run").textContent = "Run both again";
  at("run").disabled = false;
}

at("run").addEventListener("click", both);
