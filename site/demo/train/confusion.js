// Which vowel was taken for which: a table whose cells are filled by their share of a row.
import { make } from "../make.js";

export class Confusion {
  constructor(head, body, said, names) {
    Object.assign(this, { head, body, said, names });
    this.waits = said.textContent;
    this.clear();
  }

  clear() {
    this.said.textContent = this.waits;
    this.head.replaceChildren(make("tr", {}, [
      make("th", { scope: "col" }, ["said ↓ heard →"]),
      ...this.names.map((name) => make("th", { scope: "col" }, [name])),
    ]));
    this.body.replaceChildren(...this.names.map((name) => make("tr", {}, [
      make("th", { scope: "row" }, [name]),
      ...this.names.map(() => make("td", {}, ["–"])),
    ])));
  }

  show(counts, step) {
    this.body.replaceChildren(...counts.map((row, said) => {
      const all = row.reduce((sum, n) => sum + n, 0);
      return make("tr", {}, [
        make("th", { scope: "row" }, [this.names[said]]),
        ...row.map((count, heard) => cell(count, all, said === heard)),
      ]);
    }));
    this.said.textContent = this.worst(counts, step);
  }

  worst(counts, step) {
    let most = { count: 0 };
    counts.forEach((row, said) => row.forEach((count, heard) => {
      if (said !== heard && count > most.count) most = { count, said, heard };
    }));
    const after = `After ${step.toLocaleString("en")} ${step === 1 ? "step" : "steps"}`;
    if (!most.count) return `${after} every held-out example is recognised.`;
    return `${after}, most often “${this.names[most.said]}” is recognised as “${this.names[most.heard]}”: ${most.count} times.`;
  }
}

function cell(count, all, right) {
  const fill = make("i", { "aria-hidden": "true" });
  fill.style.opacity = all ? String(0.42 * (count / all)) : "0";
  return make("td", { class: right ? "right" : "" }, [String(count), fill]);
}
