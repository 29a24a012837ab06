// Loads the plan, shows what it gives for a made input, and lets it check itself.
import { RlxError, load } from "./{name}.js";

const SHOWN = 6; // values of each output
const TIMES = 20;
const at = (id) => document.getElementById(id);
const number = (value) => (typeof value === "bigint" || Number.isInteger(value) ? value.toLocaleString("en-US") : value.toPrecision(6));
const ms = (value) => `${value < 10 ? value.toPrecision(2) : Math.round(value)} ms`;
const shape = ({ dtype, shape: of }) => (of.length ? `${dtype} [${of.join(", ")}]` : `${dtype} scalar`);
const counted = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;
// The messages are parts of sentences, and may begin with an address.
const sentenceOf = (text) => `${text.replace(/^(a|the|this) /, (word) => word[0].toUpperCase() + word.slice(1))}.`;
let run = null;

function say(state, sentence, aside = "") {
  document.documentElement.dataset.state = state;
  at("sentence").textContent = sentence;
  at("aside").textContent = aside;
}

function failed(error) {
  const isOurs = error instanceof RlxError;
  say("failed", isOurs ? `The plan did not run (${error.code})` : "The plan did not run", sentenceOf(error.message));
  at("run").disabled = at("check").disabled = true;
  at("again").hidden = false;
  if (!isOurs) throw error; // the console says where
}

// Two tones in every row of floats, so that spectra have something to show; 0 is right for every index.
function made({ dtype, shape: of }) {
  const arrays = { f32: Float32Array, i32: Int32Array, u32: Uint32Array, f16: Uint16Array, bool: Uint8Array, i64: BigInt64Array, u64: BigUint64Array };
  const x = new arrays[dtype](of.reduce((product, n) => product * n, 1));
  const wide = of.at(-1) ?? 1;
  const tones = Float32Array.from({ length: wide }, (_, i) => Math.sin(i * 0.25) + 0.5 * Math.sin(i * 0.8));
  return dtype === "f32" ? x.map((_, i) => tones[i % wide]) : x;
}

function inputs() {
  return Object.fromEntries(Object.entries(run.inputs).map(([name, one]) => [name, made(one)]));
}

function row(cells, kind = "td") {
  const line = document.createElement("tr");
  line.append(...cells.map((text) => Object.assign(document.createElement(kind), { textContent: text })));
  return line;
}

function showNumbers(found) {
  at("input").textContent = "Input: two tones in every row of floats; 0 in all other arrays.";
  at("heads").replaceChildren(row(["output", ...Array.from({ length: SHOWN }, (_, i) => `[${i}]`)], "th"));
  at("rows").replaceChildren(...Object.entries(found).map(([name, values]) =>
    row([run.outputs[name].dtype === "f16" ? `${name} (bits)` : name, ...Array.from(values.slice(0, SHOWN), (value) => number(value))])));
}

function showFacts(first) {
  for (const section of document.querySelectorAll("section[hidden]")) section.hidden = false;
  const { vendor, architecture, device, description, software } = run.adapter;
  const { times, plan } = run;
  const bytes = plan.buffers.reduce((sum, { nbytes }) => sum + nbytes, 0);
  const facts = {
    "GPU": `${[vendor, architecture, device, description].filter(Boolean).join(" ") || "the browser does not say"}${software ? " (software)" : ""}`,
    "First result": `${ms(first)} after navigation: adapter after ${ms(times.adapter)} of loading, plan ${ms(times.plan)}, device ${ms(times.device)}, shaders compiled ${ms(times.pipelines)}`,
    "Inputs": Object.entries(run.inputs).map(([key, one]) => `${key}: ${shape(one)}`).join(", "),
    "Outputs": Object.entries(run.outputs).map(([key, one]) => `${key}: ${shape(one)}`).join(", "),
    "On the GPU": `${counted(plan.shaders.length, "shader")}, ${counted(plan.commands.length, "command")}, ${counted(bytes, "byte")} in buffers`,
    "Exported by": `rlxweb ${plan.rlxweb}`,
  };
  at("facts").replaceChildren(...Object.entries(facts).flatMap(([name, text]) => [
    Object.assign(document.createElement("dt"), { textContent: name }),
    Object.assign(document.createElement("dd"), { textContent: text }),
  ]));
}

async function check() {
  if (!run.plan.vectors) return say("unchecked", "The plan ran", "The plan was exported without test vectors.");
  const { ok, worst, compared, cases } = await run.check();
  const sentence = `${ok ? "Right" : "Wrong"}: ${counted(compared, "value")} of ${counted(cases, "test vector")}`;
  if (!worst) return say("wrong", sentence, "There was nothing to compare.");
  const { output, index, got, want, share } = worst;
  return say(ok ? "right" : "wrong", sentence,
    `The largest error is at ${output}[${index}]: got ${got}, expected ${want}; ${(100 * share).toPrecision(2)} % of the tolerance.`);
}

async function start() {
  at("again").hidden = true;
  say("loading", "Loading");
  run?.close();
  try {
    run = await load();
    run.lost.then(failed);
    const found = await run(inputs());
    const first = performance.now();
    performance.mark("rlxweb-first-result");
    showNumbers(found);
    showFacts(first);
    await check();
    at("run").disabled = at("check").disabled = false;
  } catch (error) {
    failed(error);
  }
}

async function time() {
  const [given, took] = [inputs(), []];
  for (let i = 0; i < TIMES; i += 1) {
    const began = performance.now();
    await run(given);
    took.push(performance.now() - began);
  }
  took.sort((a, b) => a - b);
  at("timing").textContent = `Median ${ms(took[TIMES / 2])} per run, minimum ${ms(took[0])}`;
}

at("run").addEventListener("click", () => time().catch(failed));
at("check").addEventListener("click", () => check().catch(failed));
at("again").addEventListener("click", start);
start();
