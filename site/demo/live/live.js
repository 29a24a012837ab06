// The live spectrum: a signal, a call into Python per frame, a picture.
import { openShell } from "../shell.js";
import { BandPanel } from "./band-panel.js";
import { Chart } from "./chart.js";
import { Loop } from "./loop.js";
import { GpuCare } from "./gpu.js";
import { Overviews } from "./overviews.js";
import { Report } from "./report.js";
import { Settings } from "./settings.js";
import { Sources } from "./sources.js";
import { Waterfall } from "./waterfall.js";

const SLOW_MS = 800;
const byId = (id) => document.getElementById(id);

const page = openShell({ here: "live" });
const settings = new Settings();
const chart = new Chart(byId("chart"));
const waterfall = new Waterfall(byId("waterfall"));
const bands = new BandPanel();
const report = new Report();
const slow = { era: -1 }; // the change of settings whose slow answer was spoken of
let last = null; // the newest picture: {spectrum, facts, asked}
let went = 0; // seconds of the signal that were shown

settings.makeRhythms();
chart.empty("Starting Python …");
waterfall.read(byId("waterfall-said"));
if (matchMedia("(prefers-reduced-motion: reduce)").matches) byId("pace").value = "500";

const rlx = await page.start({
  python: ["overview.py", "live.py"],
  onPost: (data) => gpu.heard(data),
  onSaid: (line) => page.say(line),
});

const loop = new Loop({ prepare, compute, draw, advance, failed, rested });
const sources = new Sources({ page, rlx, loop, settings, changed: sourceChanged, moved, noted: () => overviews.noted() });
const overviews = new Overviews({ page, rlx, loop, sources });
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
  const asked = { ...settings.estimate(current.fs), bands: bands.due(settings.bandSet) };
  const rows = settings.picked;
  const names = rows.map((at) => settings.channels[at]);
  return { current, group: current.group, asked, gathered, rows, names, t: went };
}

function wait(words) {
  if (last) {
    waterfall.clear("");
    bands.clear();
  }
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
    page.say("Computing: the first run of a setting on a GPU compiles shaders");
  }, SLOW_MS);
  return answer.finally(() => {
    clearTimeout(timer);
    if (slow.era === loop.era) page.say("Running");
  });
}

function draw({ current, group, asked, rows, names, t }, { result: facts, buffers }) {
  if (current !== sources.current || group !== current.group) return; // of a signal that is gone
  const [power, hz, height, counts, ...banded] = buffers;
  const { k } = facts;
  const peaks = Array.from(counts, (count, row) =>
    Array.from({ length: count }, (_, rank) => ({ hz: hz[row * k + rank], power: height[row * k + rank] })));
  const unit = current.unitOf?.(rows) ?? current.unit;
  if (facts.bands) bands.take(facts.bands, banded, { rows, names, unit });
  const spectrum = {
    power, peaks, rows, names, t, unit,
    channels: names.length, bins: facts.bins, step: facts.step,
    bands: bands.bands,
  };
  last = { spectrum, facts, asked };
  const view = settings.view(asked.fs, spectrum);
  chart.draw(spectrum, view);
  waterfall.push(spectrum, view);
  bands.show(spectrum, view.shown, settings.bandAxis);
  overviews.saw(spectrum, view, asked);
  report.tell(spectrum, facts, view, loop.figures, asked);
  gpu.saw(facts);
  sources.saw();
  bands.awake = true;
  page.firstResult();
}

// Another look at the newest picture, where no new one comes.
function look() {
  if (!last) return;
  const view = settings.view(last.asked.fs, last.spectrum);
  chart.look(view);
  waterfall.look(view);
  bands.show(last.spectrum, view.shown, settings.bandAxis);
  overviews.saw(last.spectrum, view, last.asked);
  report.tell(last.spectrum, last.facts, view, loop.figures, last.asked, true);
}

function advance(seconds) {
  went += seconds;
  sources.current?.advance(seconds);
}

function failed(error) {
  page.failure(error, { title: "The spectrum could not be computed", key: "frame" });
  page.say("Stopped: change a setting, or choose another signal, to continue");
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
  bands.clear();
  waterfall.clear("");
  overviews.changed();
  loop.figures.forget();
  goOn();
  estimateSaid();
}

// Another moment of the recording: what is beside it in the waterfall did not come before.
function moved() {
  waterfall.clear("");
  goOn();
  loop.once();
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
  const looks = 'input[name="axis"], input[name="hz"], input[name="band-axis"], #from, #to, #shown';
  for (const input of document.querySelectorAll(looks)) input.addEventListener("input", look);
  for (const id of ["from", "to"]) byId(id).addEventListener("input", goOn);
  byId("bands").addEventListener("click", ({ target }) => {
    const row = target.closest("tr")?.sectionRowIndex;
    if (!last || row === undefined) return;
    byId("shown").value = String(last.spectrum.rows[row]);
    look();
  });
  byId("band-set").addEventListener("change", () => {
    bands.clear();
    goOn();
  });
  byId("picks").addEventListener("picked", goOn);
  byId("pace").addEventListener("change", () => {
    loop.interval = settings.pace;
  });
  byId("pause").addEventListener("click", () => {
    const paused = !loop.paused;
    loop.pause(paused);
    byId("pause").textContent = paused ? "Continue" : "Pause";
    byId("pause").setAttribute("aria-pressed", String(paused));
    page.say(paused ? "Paused" : "Running");
  });
  page.onTheme(() => {
    for (const picture of [chart, waterfall, overviews.picture]) picture.readColours();
  });
}
