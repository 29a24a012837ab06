// The shell of every demo page: header, start-up progress, problems, theme, status line.
//
//   import { openShell } from "../shell.js";
//   const page = openShell({ here: "live" });           // "live", "check", "export" …
//   const rlx = await page.start({ python: ["live.py"] });
//   if (!rlx) return;                                   // the page says why it failed
//   …the first call that gives the visitor something to see…
//   page.firstResult();
//
// A page brings <main id="main"> that begins with <div class="intro"><h1>…<p>…</div>; the
// header goes before it, progress and problems after the intro, the status line below.
//
//   page.start(options)    as start() of rlx.js; null when Python could not be started
//   page.firstResult()     closes the progress; time to first result counts from navigation;
//                          firstResult("Ready") where nothing is shown unasked
//   page.say(text)         the status line, spoken by screen readers: not for every frame
//   page.engine(name)      what computes, at the left of the status line
//   page.problem({title, text, actions: [{label, run}], detail, mild, key})
//                          shows a message and returns a function that takes it away; a
//                          second one with the same key replaces the first; `detail` is
//                          folded away; `mild` is for what was recovered from
//   page.failure(error, {title, …})  the same for an error of Python or of the page
//   page.settled(key)      takes away the problem of that key, if it is there
//   page.onTheme(fn)       called after light became dark or back (redraw a canvas)
//   page.gpu               after start: {there, name, why} of the browser's GPU
import { make } from "./make.js";
import { printableLines } from "./printable.js";
import { start as startPython } from "./rlx.js";
import { themeButton } from "./theme-button.js";

export { make };

const DEMOS = [
  ["live", "Live spectrum"],
  ["check", "Check this GPU"],
  ["search", "Search your notes"],
  ["notes", "Hear the notes"],
  ["train", "Train"],
  ["playground", "Playground"],
  ["export", "Without Python"],
];
const STEPS = [
  ["runtime", "Python runtime"],
  ["packages", "NumPy and rlxweb"],
  ["adapter", "GPU adapter"],
  ["ready", "shaders and first result"],
];
const MOST_WORDS = 4000; // of a problem

export function openShell({ here }) {
  const main = document.querySelector("main");
  main.id ||= "main";
  main.tabIndex = -1;
  document.body.prepend(skipLink(main.id), header(here));
  // On a phone the links are wider than the screen.
  document.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const status = statusLine();
  document.body.append(status.node);
  const problems = problemList();
  const progress = startPanel();
  const intro = main.querySelector(".intro");
  if (intro) intro.after(progress.node, problems.node);
  else main.prepend(progress.node, problems.node);

  const page = {
    gpu: { there: false, name: "", why: "Python has not started yet" },
    say: status.say,
    engine: status.engine,
    problem: problems.show,
    settled: problems.settled,
    failure: (error, about = {}) => problems.show({ ...told(error), ...about }),
    onTheme: (fn) => addEventListener("rlxweb-theme", fn),
    firstResult: progress.over,
    start: (options) => startShown(page, progress, status, options),
  };
  guard(page);
  return page;
}

// --- starting ---------------------------------------------------------------------

async function startShown(page, progress, status, options = {}) {
  try {
    const rlx = await startPython({
      ...options,
      onProgress(step, detail, ms) {
        progress.at(step);
        options.onProgress?.(step, detail, ms);
      },
    });
    const { device, versions } = rlx.facts;
    page.gpu = {
      there: device.available,
      name: device.engine,
      why: device.available ? "" : reason(device.blocker),
    };
    if (!device.available) progress.without("adapter");
    status.versions(`rlxweb ${versions.rlxweb} · NumPy ${versions.numpy} · Python ${versions.python}`);
    page.engine(device.available ? device.engine : `NumPy ${versions.numpy}`);
    return rlx;
  } catch (error) {
    progress.failed();
    page.failure(error, {
      title: "Python could not be started",
      actions: [{ label: "Load the page again", run: () => location.reload() }],
    });
    return null;
  }
}

// "open …: the browser offers no adapter; …" → what is the matter, without the doing.
function reason(text) {
  return text.replace(/^[^:]{0,60}: /, "").split("; see ")[0];
}

function startPanel() {
  const items = STEPS.map(([key, label]) =>
    make("li", { "data-step": key }, [make("div", {}, [label]), make("span")]));
  const bar = make("div");
  const summary = make("summary", {}, ["Starting Python in this tab"]);
  const node = make("details", { class: "panel start", open: "" }, [
    summary,
    make("div", { class: "bar", "aria-hidden": "true" }, [bar]),
    make("ol", {}, items),
  ]);
  let now = -1;
  let since = performance.now();

  function finish(state) {
    if (now < 0) return;
    const item = items[now];
    item.dataset.state ??= state;
    if (item.dataset.state === "now") item.dataset.state = state;
    item.lastChild.textContent = `${Math.round(performance.now() - since)} ms`;
  }

  function at(step) {
    const index = STEPS.findIndex(([key]) => key === step);
    if (index < 0 || index === now) return;
    finish("done");
    now = index;
    since = performance.now();
    items[index].dataset.state = "now";
    bar.style.width = `${(100 * index) / STEPS.length}%`;
    node.setAttribute("aria-busy", "true");
  }

  function over(what = "First result") {
    if (node.dataset.over !== undefined) return;
    finish("done");
    bar.style.width = "100%";
    const { startTime } = performance.mark("rlxweb-first-result");
    const seconds = (startTime / 1000).toFixed(1);
    node.dataset.over = seconds;
    node.open = false;
    node.removeAttribute("aria-busy");
    summary.replaceChildren(`${what} `, make("strong", {}, [`${seconds} s`]), " after opening");
  }

  return {
    node,
    at,
    over,
    failed() {
      finish("failed");
      node.removeAttribute("aria-busy");
    },
    // A step that ended without what it looked for.
    without(step) {
      items[STEPS.findIndex(([key]) => key === step)].dataset.state = "none";
    },
  };
}

// --- problems ---------------------------------------------------------------------

// The words of an error: rlxweb's own sentence, with Python's traceback folded away.
export function told(error) {
  const text = String(error?.message || error || "the error has no message").slice(0, MOST_WORDS);
  return { title: "That did not work", text: printableLines(text), detail: error?.traceback };
}

function problemList() {
  const node = make("div", { class: "problems", role: "alert" });
  const shown = new Map();

  function show({ title, text, actions = [], detail = "", mild = false, key = title }) {
    shown.get(key)?.remove();
    const box = make("section", { class: mild ? "problem warn" : "problem" }, [
      make("h2", {}, [title]),
      make("p", {}, [text]),
    ]);
    const away = () => {
      box.remove();
      if (shown.get(key) === box) shown.delete(key);
    };
    if (detail) {
      box.append(make("details", {}, [make("summary", {}, ["What Python said"]), make("pre", { tabindex: "0" }, [detail])]));
    }
    const buttons = [...actions, { label: "Dismiss", run: away }].map(({ label, run }) => {
      const button = make("button", { type: "button", class: "button small" }, [label]);
      button.addEventListener("click", () => run(away));
      return button;
    });
    box.append(make("div", { class: "row" }, buttons));
    shown.set(key, box);
    node.append(box);
    box.scrollIntoView({ block: "nearest" });
    return away;
  }

  return {
    node,
    show,
    settled(key) {
      shown.get(key)?.remove();
      shown.delete(key);
    },
  };
}

// What nobody caught is shown as well; the console keeps it, for whoever mends it.
function guard(page) {
  addEventListener("unhandledrejection", (event) => {
    page.failure(event.reason, { title: "Something went wrong in this page" });
  });
  addEventListener("error", (event) => {
    page.failure(event.error ?? event.message, { title: "Something went wrong in this page" });
  });
}

// --- header and status ---------------------------------------------------------------

function skipLink(id) {
  return make("a", { class: "skip", href: `#${id}` }, ["Skip to the demo"]);
}

function header(here) {
  const icon = make("img", { src: new URL("icon.svg", import.meta.url).href, alt: "" });
  const links = DEMOS.map(([folder, label]) =>
    make("a", { href: `../${folder}/`, ...(folder === here ? { "aria-current": "page" } : {}) }, [label]));
  const nav = make("nav", { "aria-label": "Demos" }, links);
  const home = make("a", { class: "shell-home", href: "../../" }, [icon, "rlxweb"]);
  const docs = make("a", { class: "shell-docs", href: "../../" }, ["Documentation"]);
  nav.append(docs);
  return make("header", { class: "shell-header" }, [make("div", {}, [home, nav, themeButton()])]);
}

function statusLine() {
  const engine = make("div", { class: "engine" }, ["no engine yet"]);
  const said = make("div", { class: "said", role: "status" });
  const versions = make("div", { class: "versions" });
  const set = (node) => (text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  return {
    node: make("footer", { class: "shell-status" }, [make("div", {}, [engine, said, versions])]),
    engine: set(engine),
    say: set(said),
    versions: set(versions),
  };
}
