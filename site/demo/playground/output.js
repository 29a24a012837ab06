// What a run said: lines as they come, the last value, errors, figures.
import { make } from "../shell.js";
import { heatFigure, lineFigure } from "./chart.js";

export class Output {
  constructor(node, { onLine }) {
    this.node = node;
    this.onLine = onLine;
    this.figures = [];
    this.width = 0;
    // A frame later, so that drawing is no part of the layout that was being observed.
    new ResizeObserver(() => requestAnimationFrame(() => this.#fit())).observe(node);
  }

  clear() {
    this.node.replaceChildren();
    this.figures = [];
    this.text = null;
  }

  // One message of Python's `post`.
  take(data, arrays) {
    if ("out" in data) this.line(data.out, "out");
    else if ("err" in data) this.line(data.err, "err");
    else if ("value" in data) this.add(make("pre", { class: "value" }, [data.value]));
    else if ("plot" in data) this.draw(lineFigure(data.plot, arrays));
    else if ("heat" in data) this.draw(heatFigure(data.heat, arrays));
  }

  // Lines of one kind share a block, which grows.
  line(text, kind) {
    if (this.text?.dataset.kind !== kind) {
      this.text = make("pre", { class: "stream", "data-kind": kind });
      this.node.append(this.text);
    }
    this.#follow(() => this.text.append(`${text}\n`));
  }

  note(text, kind = "") {
    this.add(make("p", { class: `said-here ${kind}` }, [text]));
  }

  draw(figure) {
    this.figures.push(figure);
    this.add(figure, () => figure.redraw());
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
