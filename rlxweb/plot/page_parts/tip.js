import { make } from "./demo/make.js";

// What lies under the pointer, in words beside it.
export class Tip {
  constructor(stage) {
    this.stage = stage;
    this.box = make("div", { class: "tip", role: "status" });
    this.box.hidden = true;
    stage.append(this.box);
  }

  hide() {
    this.box.hidden = true;
  }

  // head  a line;  rows  [[name, value, is it the one that is meant]]
  show(x, y, head, rows) {
    const lines = rows.map(([name, value, isIt]) => {
      const words = make("span", {}, [name]);
      return make("div", {}, [isIt ? make("b", {}, [words]) : words, make("span", {}, [value])]);
    });
    this.box.replaceChildren(make("b", {}, [head]), ...lines);
    this.box.hidden = false;
    const { offsetWidth: wide, offsetHeight: tall } = this.box;
    const room = this.stage.clientWidth;
    const left = x + 14 + wide < room ? x + 14 : Math.max(0, x - 14 - wide);
    this.box.style.left = `${left}px`;
    this.box.style.top = `${Math.max(0, Math.min(y + 14, this.stage.clientHeight - tall))}px`;
  }
}
