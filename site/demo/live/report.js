// What the page says in words and numbers: peaks, speed, and where it ran and why.
import { make } from "../shell.js";
import { peakTable, setText } from "./peak-table.js";

const EVERY_MS = 300; // a table that changes with every frame cannot be read

const byId = (id) => document.getElementById(id);

export class Report {
  constructor() {
    this.told = -Infinity;
    this.said = "";
  }

  // Another signal: nothing is known of it yet.
  clear() {
    this.told = -Infinity;
    byId("peaks").replaceChildren();
    byId("peaks-more").textContent = "";
    for (const node of document.querySelectorAll(".figures dd")) node.textContent = "–";
  }

  // Called for every picture; writes a few times a second, at once where `now` is set.
  tell(spectrum, facts, view, figures, asked, now = false) {
    const time = performance.now();
    if (!now && time - this.told < EVERY_MS) return;
    this.told = time;
    peakTable(spectrum, view.shown);
    speed(figures);
    if (facts.explain !== this.said) {
      this.said = facts.explain;
      decision(facts);
    }
    setText("call", callOf(asked, facts.shape));
  }
}

// --- speed ------------------------------------------------------------------------

function speed(figures) {
  const rate = figures.perSecond;
  setText("figure-rate", Number.isFinite(rate) ? rate.toFixed(rate < 10 ? 1 : 0) : "–");
  setText("figure-dropped", String(figures.dropped));
  for (const stage of ["call", "peaks", "curve", "draw"]) setText(`figure-${stage}`, ms(figures.median(stage)));
  // A recording is gathered in Python, everything else in the page.
  setText("figure-gather", ms(figures.median("gather") + figures.median("read")));
}

function ms(value) {
  return Number.isFinite(value) ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ms` : "–";
}

// --- the decision -------------------------------------------------------------------

function decision({ engine, explain, fallback, candidates }) {
  const badge = byId("ran-on");
  badge.textContent = fallback ? `${engine}, instead of the GPU` : engine;
  badge.className = `badge ${fallback ? "warn" : "good"}`;
  byId("explain").textContent = `${capital(explain)}.`;
  byId("ways-table").hidden = candidates.length === 0;
  byId("ways").replaceChildren(...candidates.map(wayRow));
}

function wayRow({ way, engine, ms: predicted, source, blocker }) {
  const known = predicted === null ? make("td", { colspan: "2" }, [blocker || "its speed is unknown"]) : null;
  const cells = known
    ? [known]
    : [make("td", { class: "number" }, [ms(predicted)]), make("td", {}, [source])];
  return make("tr", {}, [make("th", { scope: "row" }, [way]), make("td", {}, [engine]), ...cells]);
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// The call as one would write it in Python.
function callOf({ fs, nperseg, k, window: shape, mode, device, fmin, fmax }, [rows, samples]) {
  const where = device === "auto" ? "" : `, device="${device}"`;
  return (
    `# x: float32 [${rows}, ${samples}]\n` +
    `peaks = rlx.welch_peaks(\n` +
    `    x, fs=${fs}, nperseg=${nperseg}, k=${k},\n` +
    `    window="${shape}", preset="scipy",\n` +
    `    mode="${mode}", fmin=${fmin}, fmax=${fmax}${where},\n)`
  );
}
