// The case that was picked, in numbers: fills the section #details, beside the matrix, and
// on a phone a sheet below it.
//
//   const sheet = new Sheet(mark);     // mark(cell) shows which one it is, mark(null) none
//   sheet.open(cell, byKeyboard), sheet.show() after its result changed, sheet.close()
import { make } from "../make.js";
import { caseNodes } from "./details.js";

const at = (id) => document.getElementById(id);

export class Sheet {
  constructor(mark) {
    this.mark = mark;
    this.cell = null;
    this.title = make("h2", { id: "details-title" });
    this.body = make("div", { id: "details-body" });
    const close = make("button", { type: "button", id: "details-close", class: "button small" }, ["Close"]);
    close.addEventListener("click", () => this.close());
    at("details").append(this.title, this.body, close);
    this.#tellNone();
    addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  open(cell, byKeyboard) {
    this.cell = cell;
    this.mark(cell);
    this.show();
    document.body.dataset.details = "open";
    cell.button.scrollIntoView({ block: "nearest" });
    if (byKeyboard) at("details").focus();
  }

  show() {
    const { title, body } = caseNodes(this.cell);
    this.title.replaceChildren(...title);
    this.body.replaceChildren(...body);
  }

  close() {
    if (!this.cell) return;
    const { button } = this.cell;
    this.cell = null;
    this.mark(null);
    delete document.body.dataset.details;
    this.#tellNone();
    button.focus();
  }

  #tellNone() {
    this.title.textContent = "No case is selected";
    this.body.replaceChildren(make("p", { class: "note" }, [
      "Select a square to see its inputs, its error and the first wrong element.",
    ]));
  }
}
