// The live spectrum: a signal, a call into Python per frame, a picture.
import { openShell } from "../shell.js";
import { Chart } from "./chart.js";
import { Loop } from "./loop.js";
import { GpuCare } from "./gpu.js";
import { Report } from "./report.js";
import { Settings } from "./settings.js";
import { Sources } from "./sources.js";

const SLOW_MS = 800;
const byId = (id) => document.getElementById(id);

const page = openShell({ here: "live" });
const settings = new Settings();
const chart = new Chart(byId("chart"));
const report = new Report();
const slow = { era: -1 }; // the change of settings whose slow answer was spoken of
let last = null; // the newest picture: {spectrum, facts, asked}

settings.makeRhythms();
chart.empty("Starting Python …");
if (matchMedia("(prefers-reduced-motion: reduce)").matches) byId("pace").value = "500";

const rlx = await page.start({
  python: ["live.py"],
  onPost: (data) => gpu.heard(data),
  onSaid: (line) => page.say(line),
});

const loop = new Loop({ prepare, compute, draw, advance, failed, rested });
const sources = new Sources({ page, rlx, loop, settings, changed: sourceChanged });
const gpu = new GpuCare({ page, rlx, loop });

if (rlx) {
  gpu.greet();
  listen();
  sources.synthetic();
  loop.interval = settings.pace;
  loop.start();
} else {
  chart.empty("Python could not be started, so there is nothing to show.");
}

// --- one frame ----------------------------------------------------------------------

function prepare() {
  const { current } = sources;
  if (!current) return wait("Choose a recording, or drop one on the page.");
  if (!settings.picked.length) return wait("Choose at least one channel.");
  const gathered = current.gather(settings.samples(), settings.picked);
  if (gathered.wait) return wait(gathered.wait);
  const asked = settings.estimate(current.fs);
  const rows = settings.picked;
  const names = rows.map((at) => settings.channels[at]);
  return { current, asked, gathered, rows, names };
}

function wait(words) {
  last = null;
  chart.empty(words);
  return null;
}

function compute({ asked, gathered, names }) {
  const { samples, args } = gathered;
  if (!samples) return patiently(rlx.call("frame", { ...asked, ...args }));
  const shape = [names.length, samples.length / names.length];
  return patiently(rlx.call("frame", { ...asked, shape }, [samples.buffer]));
}

// Say so when an answer is slow, once for each change of the settings.
function patiently(answer) {
  if (slow.era === loop.era) return answer;
  const timer = setTimeout(() => {
    slow.era = loop.era;
    page.say("Computing: the first run of a setting on a GPU compiles its shaders");
  }, SLOW_MS);
  return answer.finally(() => {
    clearTimeout(timer);
    if (slow.era === loop.era) page.say("Running");
  });
}

function draw({ current, asked, rows, names }, { result: facts, buffers }) {
  if (current !== sources.current) return; // of a signal that is gone
  const [power, hz, height, counts] = buffers;
  const { k } = facts;
  const peaks = Array.from(counts, (count, row) =>
    Array.from({ length: count }, (_, rank) => ({ hz: hz[row * k + rank], power: height[row * k + rank] })));
  const spectrum = {
    power, peaks, rows, names,
    channels: names.length, bins: facts.bins, step: facts.step,
    unit: current.unit, bands: current.bands,
  };
  last = { spectrum, facts, asked };
  const view = settings.view(asked.fs, spectrum);
  chart.draw(spectrum, view);
  report.tell(spectrum, facts, view, loop.figures, asked);
  gpu.saw(facts);
  sources.saw();
  page.firstResult();
}

// Another look at the newest picture, where no new one comes.
function look() {
  if (!last) return;
  const view = settings.view(last.asked.fs, last.spectrum);
  chart.look(view);
  report.tell(last.spectrum, last.facts, view, loop.figures, last.asked, true);
}

function advance(seconds) {
  sources.current?.advance(seconds);
}

function failed(error) {
  page.failure(error, { title: "The spectrum could not be computed", key: "frame" });
  page.say("Stopped: change a setting, or choose another signal, to go on");
}

function rested(resting) {
  byId("resting").hidden = !resting;
  byId("resting").textContent = document.hidden ? "resting while this tab is hidden" : loop.paused ? "paused" : "stopped";
  sources.rest(resting);
}

// --- what the visitor does ------------------------------------------------------------

function sourceChanged() {
  last = null;
  chart.empty("");
  report.clear();
  loop.figures.forget();
  goOn();
  estimateSaid();
}

// A change may mend what stopped the loop.
function goOn() {
  page.settled("frame");
  loop.wake();
}

function estimateSaid() {
  const fs = sources.current?.fs;
  const nperseg = Number(byId("nperseg").value);
  byId("k-said").textContent = byId("k").value;
  if (!fs) return;
  const seconds = settings.samples() / fs;
  byId("estimate-said").textContent =
    `Resolution ${Number((fs / nperseg).toPrecision(3))} Hz, from the last ${Number(seconds.toPrecision(3))} s.`;
}

function listen() {
  for (const id of ["nperseg", "segments", "window", "mode", "k"]) {
    byId(id).addEventListener("input", () => {
      estimateSaid();
      loop.figures.forget();
      goOn();
    });
  }
  for (const input of document.querySelectorAll('input[name="device"]')) {
    input.addEventListener("change", () => {
      loop.figures.forget();
      goOn();
    });
  }
  for (const input of document.querySelectorAll('input[name="axis"], #from, #to, #shown')) {
    input.addEventListener("input", look);
  }
  byId("picks").addEventListener("picked", goOn);
  byId("pace").addEventListener("change", () => {
    loop.interval = settings.pace;
  });
  byId("pause").addEventListener("click", () => {
    const paused = !loop.paused;
    loop.pause(paused);
    byId("pause").textContent = paused ? "Go on" : "Pause";
    byId("pause").setAttribute("aria-pressed", String(paused));
    page.say(paused ? "Paused" : "Running");
  });
  page.onTheme(() => chart.readColours());
}
