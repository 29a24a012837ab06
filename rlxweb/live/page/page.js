// The page of `rlxweb live --web`: what the program computes, drawn as the demo draws it.
import { make } from "./demo/make.js";
import { printable } from "./demo/printable.js";
import { themeButton } from "./demo/theme-button.js";
import { Chart } from "./demo/live/chart.js";
import { Picks } from "./demo/live/picks.js";
import { peakTable, setText } from "./demo/live/peak-table.js";
import { Waterfall } from "./demo/live/waterfall.js";
import { bandBars, bandLegend, signOf } from "./demo/live/bands.js";
import { Feed } from "./feed.js";

const FIRST = 8; // channels that are picked at the start
const TABLES_MS = 300; // a table that changes with every update cannot be read
const SLOW_HZ = 4096; // signals up to this rate are looked at from below
const byId = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

const chart = new Chart(byId("chart"));
const waterfall = new Waterfall(byId("waterfall"));
const picks = new Picks();
const feed = new Feed({ about, update, end, lost });
const now = { signal: null, spectrum: null, paused: false, over: false, tables: -Infinity, timer: 0, frame: 0 };

byId("header").append(themeButton());
waterfall.read(byId("waterfall-said"));
chart.empty("Waiting for the first complete segment …");
listen();
feed.open();

// --- what comes -------------------------------------------------------------------

function about(told) {
  settled();
  if (now.signal) {
    if (String(now.signal.rows) !== String(told.rows)) waterfall.clear("");
    now.signal.rows = told.rows;
    return;
  }
  const channels = told.channels.map((name) => printable(name, 40));
  const bands = told.bands.map(([name, from, to]) => ({ name: printable(name, 24), sign: signOf(name), from, to }));
  now.signal = { ...told, channels, bands };
  const name = printable(told.name);
  setText("picture-title", name);
  document.title = `${name} · rlxweb live`;
  const many = channels.length === 1 ? "1 channel" : `${channels.length} channels`;
  setText("facts", `${many} at ${plain(told.fs)} Hz`);
  setText("estimate", `${told.estimate} Resolution ${plain(told.step / told.merged)} Hz.`);
  byId("merged").hidden = told.merged === 1;
  setText("merged", `Each point shows the strongest of ${told.merged} neighbouring bins; peaks are searched in all bins.`);
  bandLegend(bands);
  suit(told);
  picks.offer(channels, FIRST);
}

// Frequencies that such a signal is looked at in.
function suit({ fs, first, step, bins }) {
  const top = first + (bins - 1) * step;
  byId("from").value = 0;
  byId("to").value = plain(top > 60 && fs <= SLOW_HZ && top > 0.45 * fs ? 60 : Math.min(top, 8000));
}

function update(told) {
  const { signal } = now;
  say(told.stalled ? ["warn", `no samples for ${Math.round(told.silent)} s`] : ["good", "running"]);
  setText("figure-seconds", `${told.seconds.toFixed(1)} s`);
  setText("figure-rate", told.rate === null ? "–" : `${plain(told.rate, 5)} Hz`);
  setText("figure-latency", told.latency_ms === null ? "–" : `${told.latency_ms.toFixed(1)} ms`);
  setText("figure-lost", told.lost.toLocaleString("en"));
  if (!told.power || !signal.rows.length) return;
  setText("figure-segments", told.segments.toLocaleString("en"));
  const { rows, first, step, unit, bands } = signal;
  now.spectrum = {
    power: told.power, t: told.t, shares: told.shares,
    channels: rows.length, bins: told.power.length / rows.length, first, step, unit,
    bands: bands.length ? bands : null,
    rows, names: rows.map((row) => signal.channels[row]),
    peaks: told.peaks.map((found) => found.map(([hz, power]) => ({ hz, power }))),
  };
  now.frame ||= requestAnimationFrame(draw);
}

function draw() {
  now.frame = 0;
  const view = viewOf(now.spectrum);
  chart.draw(now.spectrum, view);
  waterfall.push(now.spectrum, view);
  tables();
}

// Now and then, but the last picture's too: a signal may fall silent after it.
function tables() {
  if (!now.timer) now.timer = setTimeout(tabulate, Math.max(0, now.tables + TABLES_MS - performance.now()));
}

function tabulate() {
  clearTimeout(now.timer);
  now.timer = 0;
  if (!now.spectrum) return;
  now.tables = performance.now();
  peakTable(now.spectrum, viewOf(now.spectrum).shown);
  const { names, shares } = now.spectrum;
  if (shares) bandBars(now.signal.bands, names, shares);
}

function viewOf({ first, step, bins, rows, peaks }) {
  const top = first + (bins - 1) * step;
  const limit = (id, otherwise) => {
    const value = byId(id).valueAsNumber;
    return Number.isFinite(value) ? Math.min(Math.max(0, value), top) : otherwise;
  };
  let [from, to] = [limit("from", 0), limit("to", top)];
  if (!(to > from)) [from, to] = [0, top];
  return { from, to, log: chosen("axis") === "log", logHz: chosen("hz") === "log", shown: picks.shown(rows, peaks) };
}

// Another look at the newest picture.
function look() {
  if (!now.spectrum) return;
  const view = viewOf(now.spectrum);
  chart.look(view);
  waterfall.look(view);
  tabulate();
}

// --- how it stands ----------------------------------------------------------------

function end(words) {
  now.over = true;
  byId("pause").disabled = true;
  if (words) {
    say(["bad", "stopped"]);
    problem("The signal stopped", words);
  } else {
    say(["", "ended"]);
  }
}

function lost(forever) {
  say(["bad", "no connection"]);
  problem("rlxweb live does not answer", forever
    ? "Another run uses this address now, or too many pages are open. Open the address shown in the terminal."
    : "The program was stopped or is too busy. This page continues automatically when the program answers again.");
}

function problem(title, text) {
  byId("problems").replaceChildren(make("section", { class: "problem" }, [make("h2", {}, [title]), make("p", {}, [printable(text, 600)])]));
}

function settled() {
  byId("problems").replaceChildren();
}

function say([kind, words]) {
  const node = byId("state");
  if (node.textContent !== words) node.textContent = words;
  node.className = `badge ${kind}`;
}

// --- what the visitor does ----------------------------------------------------------

// Nothing is asked for while nobody looks.
function settle() {
  if (now.over) return;
  if (now.paused || document.hidden) {
    feed.close();
    say(["", now.paused ? "paused" : "paused while this tab is hidden"]);
  } else if (now.signal && !picks.picked.length) {
    feed.close();
    now.spectrum = null;
    chart.empty("Choose at least one channel.");
    say(["", "no channel selected"]);
  } else {
    feed.open(now.signal ? picks.picked : null);
  }
}

function pause() {
  now.paused = !now.paused;
  byId("pause").textContent = now.paused ? "Go on" : "Pause";
  byId("pause").setAttribute("aria-pressed", String(now.paused));
  settle();
}

function listen() {
  for (const input of document.querySelectorAll('input[name="axis"], input[name="hz"], #from, #to, #shown')) {
    input.addEventListener("input", look);
  }
  byId("picks").addEventListener("picked", settle);
  byId("pause").addEventListener("click", pause);
  document.addEventListener("visibilitychange", settle);
  addEventListener("rlxweb-theme", () => {
    chart.readColours();
    waterfall.readColours();
  });
  addEventListener("keydown", key);
}

function key(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, button, summary, .scroll")) return;
  const acts = {
    " ": pause, f: () => other("hz"), p: () => other("axis"),
    ArrowUp: () => mark(-1), ArrowDown: () => mark(1),
  };
  const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || (event.key === " " && now.over)) return;
  event.preventDefault();
  act();
}

function other(name) {
  document.querySelector(`input[name="${name}"]:not(:checked)`).checked = true;
  look();
}

function mark(step) {
  const select = byId("shown");
  const many = select.options.length;
  select.selectedIndex = (select.selectedIndex + step + many) % many;
  look();
}

function plain(value, digits = 4) {
  return String(Number(value.toPrecision(digits)));
}
