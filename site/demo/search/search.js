// Search by meaning: the model is loaded, the notes are read, questions are answered. What
// is asked while something runs waits for its end, and only the newest question is answered.
import { printable } from "../printable.js";
import { make, openShell } from "../shell.js";
import { chosen, fetched } from "./model.js";
import { NOTES, QUESTIONS } from "./samples.js";

const SHOWN = 5; // hits
const MOST_NOTES = 64 << 20; // bytes of one file
const OWN = "your notes";
const PYTHON = ["../../examples/minilm.py", "bert_unicode.py", "wordpiece.py", "passages.py", "search.py"];

const page = openShell({ here: "search" });
const at = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en-US");
const chosenOf = (name) => document.querySelector(`input[name="${name}"]:checked`).value;
const took = (s) => (s < 1 ? `${Math.max(1, Math.round(1000 * s))} ms` : `${s.toFixed(1)} s`);
const megabytes = (n) => `${(n / 1e6).toFixed(0)} MB`;

let rlx = null;
let ready = false; // the model is loaded
let busy = false; // Python computes
let names = null; // of the notes that were read, or null
let stale = false; // the notes changed since
let added = []; // files of the visitor
let next = null; // the question that waits

at("text").value = NOTES;

// --- the model -----------------------------------------------------------------------

async function loadModel(get) {
  page.settled("model");
  at("model-files").hidden = true;
  at("model-bar").hidden = false;
  say("Loading the model");
  try {
    const files = await get();
    if (!files) return withoutModel();
    const size = files.reduce((sum, [, raw]) => sum + raw.byteLength, 0);
    say("Preparing the model");
    const { result } = await rlx.call("load", { names: files.map(([name]) => name) }, files.map(([, raw]) => raw));
    ready = true;
    names = null;
    at("model").dataset.state = "ready";
    say(`MiniLM is loaded: ${megabytes(size)}, ${result.width} numbers per text of at most ${result.tokens} tokens`);
    allow();
    return true;
  } catch (error) {
    page.failure(error, { title: "The model cannot be used", key: "model" });
    return withoutModel();
  } finally {
    at("model-bar").hidden = true;
  }
}

function withoutModel() {
  say(ready ? "The model that was loaded before is still used" : "The model is missing");
  at("model-files").hidden = ready;
  page.firstResult("Ready");
  return false;
}

function say(words) {
  at("model-said").textContent = words;
  page.say(words);
}

function fill(bar, part) {
  bar.value = part;
}

// --- the notes -----------------------------------------------------------------------

async function texts() {
  const own = [OWN, new TextEncoder().encode(at("text").value).buffer];
  const files = await Promise.all(added.map(async (file) => [file.name, await file.arrayBuffer()]));
  return [own, ...files];
}

async function readNotes() {
  if (!ready || busy) return false;
  hold(true);
  page.settled("notes");
  at("read-bar").hidden = false;
  fill(at("read-bar"), 0);
  at("read-said").textContent = "Reading";
  try {
    const all = await texts();
    const asked = { names: all.map(([name]) => name), unit: chosenOf("unit"), device: chosenOf("device") };
    const { result } = await rlx.call("read", asked, all.map(([, raw]) => raw));
    names = asked.names;
    stale = false;
    const rate = result.passages / Math.max(result.seconds, 1e-3);
    at("read-said").textContent = result.passages
      ? `${count(result.passages)} passages in ${took(result.seconds)}, ${count(Math.round(rate))} per second, by ${engine()}`
      : "There is nothing to read: the notes are empty";
    page.engine(engine());
    return result.passages > 0;
  } catch (error) {
    names = null;
    at("read-said").textContent = "The notes were not read";
    page.failure(error, { title: "The notes cannot be read", key: "notes" });
    return false;
  } finally {
    at("read-bar").hidden = true;
    hold(false);
  }
}

const engine = () => (chosenOf("device") === "webgpu" ? page.gpu.name : "NumPy");

function changed() {
  stale = true;
  if (names) at("read-said").textContent = "The notes have changed since they were read";
}

function listFiles() {
  at("files").replaceChildren(...added.map((file, i) => {
    const away = make("button", { type: "button", class: "button small quiet" }, ["Remove"]);
    away.setAttribute("aria-label", `Remove ${printable(file.name)}`);
    away.addEventListener("click", () => {
      added.splice(i, 1);
      listFiles();
      changed();
    });
    return make("li", {}, [make("span", {}, [printable(file.name)]), away]);
  }));
}

function addNotes(files) {
  const large = files.filter((file) => file.size > MOST_NOTES);
  if (large.length) {
    page.problem({
      title: `${printable(large[0].name)} was skipped`,
      text: `It has ${count(large[0].size)} bytes; a text file may have at most ${count(MOST_NOTES)}. Split it into several files.`,
      mild: true,
      key: "large",
    });
  }
  added = [...added, ...files.filter((file) => file.size <= MOST_NOTES)];
  listFiles();
  changed();
}

// --- questions -------------------------------------------------------------------------

async function answer(question) {
  next = question;
  if (busy || !ready || !question.trim()) return;
  if (!names || stale) {
    if (!(await readNotes())) return;
  }
  while (next !== null && !busy) {
    const asked = next;
    next = null;
    await answerOne(asked);
  }
}

async function answerOne(question) {
  hold(true);
  page.settled("question");
  at("answered").textContent = "Searching";
  try {
    const { result } = await rlx.call("ask", { question, k: SHOWN, device: chosenOf("device") });
    at("answered").textContent = `The passages most similar to “${printable(question)}”, found in ${took(result.seconds)} by ${engine()}`;
    at("hits").replaceChildren(...result.hits.map(hit));
    page.firstResult();
  } catch (error) {
    at("answered").textContent = "No answer";
    page.failure(error, { title: "The question was not answered", key: "question" });
  } finally {
    hold(false);
  }
}

function hit({ score, text, file, line }) {
  const where = `${printable(names[file])}, line ${line}`;
  const shown = Math.max(0, score).toFixed(2);
  return make("li", {}, [
    make("div", { class: "row" }, [
      make("meter", { min: "0", max: "1", value: shown, "aria-label": "similarity" }),
      make("span", { class: "score" }, [score.toFixed(2)]),
      make("span", {}, [where]),
    ]),
    make("p", {}, [text]),
  ]);
}

// --- the page ----------------------------------------------------------------------------

function hold(now) {
  busy = now;
  allow();
}

function allow() {
  at("go").disabled = !ready || busy;
  at("read").disabled = !ready || busy;
  for (const button of at("tries").children) button.disabled = !ready || busy;
  document.querySelector("main").setAttribute("aria-busy", String(busy));
}

function ask(question) {
  at("question").value = question;
  answer(question);
}

function droppable(node, take) {
  const over = (on) => (event) => {
    event.preventDefault();
    node.classList.toggle("over", on);
  };
  node.addEventListener("dragover", over(true));
  node.addEventListener("dragleave", over(false));
  node.addEventListener("drop", (event) => {
    over(false)(event);
    const files = [...event.dataTransfer.files];
    if (files.length) take(files);
  });
}

// A file that misses its place would be opened in place of this page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

at("tries").replaceChildren(...QUESTIONS.map((words) => {
  const button = make("button", { type: "button", class: "button small" }, [words]);
  button.addEventListener("click", () => ask(words));
  return button;
}));
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  answer(at("question").value);
});
at("text").addEventListener("input", changed);
for (const box of document.querySelectorAll('input[name="unit"], input[name="device"]')) {
  box.addEventListener("change", changed);
}
at("read").addEventListener("click", readNotes);
at("clear").addEventListener("click", () => {
  at("text").value = "";
  added = [];
  listFiles();
  changed();
  at("text").focus();
});
at("pick-notes").addEventListener("change", ({ target }) => {
  addNotes([...target.files]);
  target.value = "";
});
at("pick-model").addEventListener("change", async ({ target }) => {
  const files = [...target.files];
  target.value = "";
  await takeModel(files);
});
droppable(at("notes"), addNotes);
droppable(at("model"), (files) => takeModel(files));
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  event.preventDefault();
  at("question").focus();
});

async function takeModel(files) {
  if (!rlx || busy) return;
  if (await loadModel(() => chosen(files))) await ask(QUESTIONS[0]);
}

async function open() {
  allow();
  const posted = ({ done, of }) => fill(at("read-bar"), of ? done / of : 1);
  rlx = await page.start({ python: PYTHON, onPost: posted });
  if (!rlx) return;
  const gpu = document.querySelector('input[name="device"][value="webgpu"]');
  gpu.disabled = !page.gpu.there;
  gpu.checked = page.gpu.there;
  const bytes = (so_far, all) => {
    fill(at("model-bar"), so_far / all);
    at("model-said").textContent = `Loading the model: ${megabytes(so_far)} of ${megabytes(all)}`;
  };
  if (await loadModel(() => fetched(bytes))) await ask(QUESTIONS[0]);
}

open();
