// A textarea with line numbers: Tab indents, Shift+Tab takes back, Enter keeps the indent.
//
//   const editor = new Editor(node, { onRun, onChange });
//   editor.code; editor.load(code); editor.mark(line or null); editor.focus()
//
// The keyboard can always leave: after Escape, Tab goes to the next control.
import { make } from "../shell.js";

const STEP = "    ";
const MOST_NUMBERED = 20_000; // lines; those after them have no number

export class Editor {
  constructor(node, { onRun, onChange }) {
    this.gutter = make("div", { class: "gutter", "aria-hidden": "true" });
    this.area = make("textarea", {
      id: "code",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      autocorrect: "off",
      wrap: "off",
      "aria-label": "Python code",
      "aria-describedby": "keys",
    });
    node.append(this.gutter, this.area);
    this.leaving = false;
    this.marked = null;
    this.onRun = onRun;
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.area.addEventListener("input", () => {
      this.mark(null);
      this.#number();
      onChange(this.code);
    });
    this.area.addEventListener("scroll", () => this.#follow());
    this.area.addEventListener("blur", () => (this.leaving = false));
  }

  get code() {
    return this.area.value;
  }

  load(code) {
    this.area.value = code;
    this.area.setSelectionRange(0, 0);
    this.area.scrollTop = 0;
    this.mark(null);
    this.#number();
    this.#follow();
  }

  // Show where an error was; null takes the mark away.
  mark(line) {
    this.marked?.classList.remove("bad");
    this.marked = line ? (this.gutter.children[line - 1] ?? null) : null;
    this.marked?.classList.add("bad");
  }

  // Put the cursor on a line and bring it into view.
  goTo(line) {
    const lines = this.code.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    const height = this.area.scrollHeight / Math.max(lines.length, 1);
    this.area.scrollTop = Math.max(0, (line - 4) * height);
  }

  // One by one, asking how many there are, would take minutes where a link brings many.
  #number() {
    const count = Math.min(this.code.split("\n").length, MOST_NUMBERED);
    const there = this.gutter.childElementCount;
    const missing = Array.from({ length: Math.max(0, count - there) }, (_, k) => make("div", {}, [String(there + k + 1)]));
    if (there > count) this.gutter.replaceChildren(...[...this.gutter.children].slice(0, count));
    this.gutter.append(...missing);
  }

  #follow() {
    this.gutter.style.transform = `translateY(${-this.area.scrollTop}px)`;
  }

  // --- keys ---------------------------------------------------------------------------

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.onRun();
    } else if (event.key === "Escape") {
      this.leaving = true;
    } else if (event.key === "Tab" && !this.leaving && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      if (event.shiftKey) this.#outdent();
      else this.#indent();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#newLine();
    } else if (event.key !== "Shift") {
      this.leaving = false;
    }
  }

  #indent() {
    const { selectionStart: from, selectionEnd: to, value } = this.area;
    if (!value.slice(from, to).includes("\n")) {
      const column = from - (value.lastIndexOf("\n", from - 1) + 1);
      this.#insert(" ".repeat(STEP.length - (column % STEP.length)));
    } else {
      this.#lines((line) => (line ? STEP + line : line));
    }
  }

  #outdent() {
    this.#lines((line) => line.replace(/^ {1,4}|^\t/, ""));
  }

  // Change whole lines of the selection, and keep them selected.
  #lines(change) {
    const { selectionStart: from, selectionEnd: to, value } = this.area;
    const start = value.lastIndexOf("\n", from - 1) + 1;
    const after = value.indexOf("\n", to > from && value[to - 1] === "\n" ? to - 1 : to);
    const end = after < 0 ? value.length : after;
    const before = value.slice(start, end);
    const text = before.split("\n").map(change).join("\n");
    if (text === before) return;
    this.area.setSelectionRange(start, end);
    this.#insert(text);
    if (from === to) {
      const at = Math.max(start, from + text.length - before.length);
      this.area.setSelectionRange(at, at);
    } else {
      this.area.setSelectionRange(start, start + text.length);
    }
  }

  #newLine() {
    const { selectionStart: from, value } = this.area;
    const line = value.slice(value.lastIndexOf("\n", from - 1) + 1, from);
    const indent = /^[ \t]*/.exec(line)[0];
    this.#insert(`\n${indent}${/:\s*(#.*)?$/.test(line) ? STEP : ""}`);
  }

  // execCommand, for all that it is old, is the one way that undo knows of.
  #insert(text) {
    const done = text ? document.execCommand("insertText", false, text) : document.execCommand("delete");
    if (done) return;
    const { selectionStart: from, selectionEnd: to } = this.area;
    this.area.setRangeText(text, from, to, "end");
    this.area.dispatchEvent(new Event("input"));
  }
}
