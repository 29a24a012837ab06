// What a run said: lines as they come, the last value, errors, figures.
import { make } from "../shell.js";
import { heatFigure, lineFigure } from "./chart.js";

const BURST_MS = 25;

export class Output {
  constructor(node, { onLine }) {
    this.node = node;
    this.onLine = onLine;
    this.figures = [];
    this.text = null;
    this.waiting = [];
    this.timer = null;
    this.width = 0;
    // A frame later, so that drawing is no part of the layout that was being observed.
    new ResizeObserver(() => requestAnimationFrame(() => this.#fit())).observe(node);
  }

  clear() {
    this.waiting = [];
    this.node.replaceChildren();
    this.figures = [];
    this.text = null;
  }

  get isEmpty() {
    return !this.waiting.length && !this.node.childElementCount;
  }

  // What a program said, as heard.js gives it.
  take(said) {
    if ("out" in said) this.line(said.out, "out");
    else if ("err" in said) this.line(said.err, "err");
    else if ("value" in said) this.add(make("pre", { class: "value" }, [said.value]));
    else if ("plot" in said) this.draw(() => lineFigure(said.plot, said.arrays));
    else if ("heat" in said) this.draw(() => heatFigure(said.heat, said.arrays));
  }

  // Lines of one kind share a block, which grows; what comes in a burst is shown at once.
  line(text, kind) {
    if (kind !== this.kind) this.show();
    this.kind = kind;
    this.waiting.push(text);
    this.timer ??= setTimeout(() => this.show(), BURST_MS);
  }

  // Shows now what is waiting.
  show() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!this.waiting.length) return;
    const text = `${this.waiting.join("\n")}\n`;
    this.waiting = [];
    this.#follow(() => {
      if (this.text?.dataset.kind !== this.kind) {
        this.text = make("pre", { class: "stream", "data-kind": this.kind });
        this.node.append(this.text);
      }
      this.text.append(text);
    });
  }

  note(text, kind = "") {
    this.add(make("p", { class: `said-here ${kind}` }, [text]));
  }

  draw(made) {
    try {
      const figure = made();
      this.add(figure, () => figure.redraw());
      this.figures.push(figure);
    } catch (error) {
      this.note(`A figure cannot be drawn: ${error.message}`, "warn");
    }
  }

  #fit() {
    if (this.node.clientWidth === this.width) return;
    this.width = this.node.clientWidth;
    this.redraw();
  }

  redraw() {
    for (const figure of this.figures) figure.redraw();
  }

  error({ type, message, frames, hint }) {
    const places = frames.map((frame) => (frame ? this.#place(frame) : make("li", { class: "skipped" }, ["…"])));
    this.add(make("section", { class: "error", "aria-label": "Error" }, [
      ...(places.length ? [make("ol", {}, places)] : []),
      make("p", {}, [make("strong", {}, [type]), message ? ": " : "", message]),
      ...(hint ? [make("p", { class: "note" }, [hint])] : []),
    ]));
  }

  #place({ line, name, text }) {
    const button = make("button", { type: "button", class: "button small quiet" }, [`line ${line}`]);
    button.addEventListener("click", () => this.onLine(line));
    return make("li", {}, [
      make("div", {}, [button, ...(name ? [` in ${name}`] : [])]),
      make("pre", {}, [text ?? ""]),
    ]);
  }

  add(node, then = () => {}) {
    this.show();
    this.text = null;
    this.#follow(() => {
      this.node.append(node);
      then();
    });
  }

  // Keep the end in sight, unless the reader has scrolled back.
  #follow(change) {
    const { scrollTop, scrollHeight, clientHeight } = this.node;
    const atEnd = scrollHeight - scrollTop - clientHeight < 40;
    change();
    if (atEnd) this.node.scrollTop = this.node.scrollHeight;
  }
}
