// Hear the notes: the model is loaded, a sound is heard once, and its notes are told anew
// whenever a setting changes, without running the model again.
import { fetchedModel } from "../models.js";
import { printable } from "../printable.js";
import { make, openShell } from "../shell.js";
import { Player } from "./player.js";
import { noteName, Roll } from "./roll.js";
import { MOST_RECORDED, MOST_SECONDS, ofFile, record } from "./sounds.js";
import { tune } from "./tune.js";

const MOST_LINES = 500;
const SETTLE_MS = 60;

const page = openShell({ here: "notes" });
const at = (id) => document.getElementById(id);
const took = (s) => (s < 1 ? `${Math.max(1, Math.round(1000 * s))} ms` : `${s.toFixed(1)} s`);
const device = () => document.querySelector('input[name="device"]:checked').value;
const engine = () => (device() === "webgpu" ? page.gpu.name : "NumPy");

let rlx = null;
let ready = false; // the model is loaded
let busy = false; // Python computes
let sound = null; // {samples, fs, title} that was heard last
let heard = ""; // how long that took, in words
let stopRecording = null;
let stale = false; // a setting changed while Python computed
let link = "";

const roll = new Roll(at("roll"));
const player = new Player((s) => {
  roll.at(s);
  at("play").textContent = s === null ? "Play the notes" : "Stop";
});
page.onTheme(() => roll.paint());

// --- the model -------------------------------------------------------------------------

async function loadModel(get) {
  page.settled("model");
  at("model-files").hidden = true;
  at("model-bar").hidden = false;
  say("Loading the model");
  try {
    const files = await get();
    if (!files) return withoutModel();
    const [, raw] = files[0];
    const size = raw.byteLength;
    await rlx.call("load", {}, [raw]);
    ready = true;
    at("model").dataset.state = "ready";
    say(`Basic Pitch is loaded: ${Math.round(size / 1000)} kB`);
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

// --- a sound ---------------------------------------------------------------------------

async function hear(own) {
  if (!ready || busy) return;
  player.stop();
  hold(true);
  page.settled("sound");
  at("bar").hidden = false;
  at("bar").value = 0;
  at("said").textContent = `Listening to ${own.title}`;
  try {
    const copy = own.samples.slice(); // the buffer is handed over
    const { result } = await rlx.call("hear", { fs: own.fs, device: device() }, [copy.buffer]);
    sound = own;
    const rate = result.seconds / Math.max(result.took, 1e-3);
    heard = `${own.title}: ${result.seconds.toFixed(1)} s analysed in ${took(result.took)} (${rate.toFixed(1)} times real time) by ${engine()}`;
    page.engine(engine());
    await tellNotes(true);
    page.firstResult();
  } catch (error) {
    at("said").textContent = "The sound was not analysed";
    page.failure(error, { title: "The sound cannot be analysed", key: "sound" });
  } finally {
    at("bar").hidden = true;
    hold(false);
  }
  if (stale) again();
}

async function tellNotes(anew) {
  stale = false;
  const settings = {
    onset_threshold: Number(at("onset").value),
    frame_threshold: Number(at("frame").value),
    minimum_note_length: Number(at("least").value),
  };
  const { result, buffers } = await rlx.call("notes", { settings });
  const [start, end, amplitude] = buffers.slice(0, 3).map((b) => new Float32Array(b.buffer));
  const pitch = new Uint8Array(buffers[3].buffer);
  const notes = { start, end, amplitude, pitch, seconds: result.seconds };
  roll.show(notes, anew);
  list(notes);
  at("said").textContent = `${result.count} ${result.count === 1 ? "note" : "notes"} · ${heard}`;
  at("roll").setAttribute("aria-label", `Piano roll of ${result.count} notes in ${result.seconds.toFixed(1)} seconds. Keys: plus, minus, arrows, 0.`);
  offer(buffers[4]);
}

function list({ start, end, amplitude, pitch }) {
  const count = Math.min(MOST_LINES, pitch.length);
  at("lines").replaceChildren(...Array.from({ length: count }, (_, n) => make("tr", {}, [
    make("th", { scope: "row" }, [noteName(pitch[n])]),
    ...[start[n], end[n] - start[n], amplitude[n]].map((x) => make("td", { class: "number" }, [x.toFixed(2)])),
  ])));
}

function offer(midi) {
  URL.revokeObjectURL(link);
  link = URL.createObjectURL(new Blob([midi], { type: "audio/midi" }));
  at("midi").href = link;
  at("midi").download = `${sound.title.replace(/\.[^.]*$/, "").replace(/[^\w -]+/g, "") || "notes"}.mid`;
  at("midi").removeAttribute("aria-disabled");
}

// The notes by other settings; while Python computes it is done afterwards.
async function again() {
  if (!sound) return;
  stale = true;
  if (busy) return;
  hold(true);
  try {
    while (stale) await tellNotes(false);
  } catch (error) {
    page.failure(error, { title: "The notes cannot be computed", key: "sound" });
  } finally {
    hold(false);
  }
}

async function openSound(file) {
  if (!ready || busy) return;
  try {
    const { samples, fs, cut } = await ofFile(file);
    if (cut) {
      page.problem({
        title: `${printable(file.name)} is too long`,
        text: `It lasts ${Math.round(cut)} s; this page analyses only the first ${MOST_SECONDS} s. The program in the cookbook of the manual has no limit.`,
        mild: true,
        key: "long",
      });
    }
    await hear({ samples, fs, title: printable(file.name) });
  } catch (error) {
    page.failure(error, { title: `${printable(file.name)} cannot be opened`, key: "sound" });
  }
}

async function toggleRecording() {
  if (stopRecording) return endRecording();
  page.settled("sound");
  try {
    stopRecording = await record({
      onSeconds: (s) => (at("said").textContent = `Recording: ${s.toFixed(1)} of ${MOST_RECORDED} s`),
      onFull: () => endRecording(),
    });
    at("record").textContent = "Stop and analyse";
  } catch (error) {
    page.failure(error, { title: "The microphone cannot be used", key: "sound" });
  }
}

async function endRecording() {
  const stop = stopRecording;
  if (!stop) return;
  stopRecording = null;
  at("record").textContent = "Record";
  const { samples, fs } = await stop();
  if (samples.length) await hear({ samples, fs, title: "your recording" });
}

// --- the page --------------------------------------------------------------------------

function hold(now) {
  busy = now;
  allow();
}

function allow() {
  for (const id of ["record", "tune", "pick-sound"]) at(id).disabled = !ready || busy;
  at("play").disabled = !sound || busy;
  document.querySelector("main").setAttribute("aria-busy", String(busy));
}

function shownValues() {
  at("onset-is").textContent = Number(at("onset").value).toFixed(2);
  at("frame-is").textContent = Number(at("frame").value).toFixed(2);
  at("least-is").textContent = `${at("least").value} ms`;
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
    const [file] = event.dataTransfer.files;
    if (file) take(file);
  });
}

// A file that misses its place would be opened in place of this page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
droppable(at("model"), takeModel);
droppable(at("sound"), openSound);

let settling = 0;
for (const id of ["onset", "frame", "least"]) {
  at(id).addEventListener("input", () => {
    shownValues();
    clearTimeout(settling);
    settling = setTimeout(again, SETTLE_MS);
  });
}
for (const box of document.querySelectorAll('input[name="device"]')) {
  box.addEventListener("change", () => sound && hear(sound));
}
at("record").addEventListener("click", toggleRecording);
at("tune").addEventListener("click", () => hear({ ...tune(), title: "a tune" }));
at("play").addEventListener("click", () => (player.isPlaying ? player.stop() : player.play(roll.notes)));
at("pick-sound").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  target.value = "";
  if (file) openSound(file);
});
at("pick-model").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  target.value = "";
  if (file) takeModel(file);
});

async function takeModel(file) {
  if (!rlx || busy) return;
  if (await loadModel(async () => [[file.name, await file.arrayBuffer()]])) await hear({ ...tune(), title: "a tune" });
}

async function open() {
  shownValues();
  allow();
  const posted = ({ done, of }) => (at("bar").value = of ? done / of : 1);
  rlx = await page.start({ python: ["../../examples/transcription.py", "notes.py"], onPost: posted });
  if (!rlx) return;
  const gpu = document.querySelector('input[name="device"][value="webgpu"]');
  gpu.disabled = !page.gpu.there;
  gpu.checked = page.gpu.there;
  const bytes = (so_far, all) => (at("model-bar").value = so_far / all);
  if (await loadModel(() => fetchedModel("basic-pitch", bytes))) await hear({ ...tune(), title: "a tune" });
}

open();
