// What is noted in a recording: a list by text, a click that jumps there, and the stretch
// between two of them.
import { printable } from "../printable.js";
import { make } from "../shell.js";
import { clockOf } from "./recording.js";

const MOST_LISTED = 200;
const MOST_CHOICES = 500; // of a beginning or an end
const byId = (id) => document.getElementById(id);

export class Notes {
  // jump(seconds)      the visitor chose a moment
  // stretch(from, to)  … or what is played, in seconds
  constructor({ jump, stretch }) {
    this.jump = jump;
    this.notes = [];
    byId("note-text").addEventListener("change", () => this.list());
    byId("notes-list").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.jump(Number(button.value));
    });
    for (const id of ["since", "until"]) {
      byId(id).addEventListener("change", () => stretch(...this.chosen()));
    }
  }

  clear() {
    this.show({ count: 0, notes: [] }, 0);
  }

  // [{onset, duration, text}] of a recording of so many seconds; `count` of them there are.
  show({ count, notes }, seconds) {
    this.notes = notes;
    this.seconds = seconds;
    byId("notes").hidden = !count;
    byId("notes-said").textContent = count === 1 ? "1 annotation" : `${count.toLocaleString("en")} annotations`;
    const counts = new Map();
    for (const { text } of notes) counts.set(text, (counts.get(text) ?? 0) + 1);
    const texts = [...counts].slice(0, MOST_CHOICES).map(([text, many]) =>
      make("option", { value: text }, [`${printable(text, 60)} (${many.toLocaleString("en")})`]));
    byId("note-text").replaceChildren(make("option", { value: "" }, ["all"]), ...texts);
    byId("note-text-field").hidden = counts.size < 2;
    this.offer();
    this.list();
  }

  list() {
    const wanted = byId("note-text").value;
    const found = byId("note-text").selectedIndex > 0 ? this.notes.filter(({ text }) => text === wanted) : this.notes;
    byId("notes-list").replaceChildren(...found.slice(0, MOST_LISTED).map(({ onset, duration, text }) =>
      make("li", {}, [make("button", { type: "button", class: "note-at", value: String(onset) }, [
        make("span", { class: "when" }, [clockOf(onset, true)]),
        make("bdi", {}, [printable(text, 120) || "(no words)"]),
        ...(duration ? [make("span", { class: "when" }, [`${Number(duration.toPrecision(3))} s`])] : []),
      ])])));
    const more = found.length - MOST_LISTED;
    byId("notes-more").textContent = more > 0 ? `… and ${more.toLocaleString("en")} more` : "";
  }

  // Where a stretch may begin and end.
  offer() {
    const some = this.notes.slice(0, MOST_CHOICES);
    const option = ({ onset, text }) => make("option", { value: String(onset) }, [`${clockOf(onset)} ${printable(text, 40)}`]);
    byId("since").replaceChildren(make("option", { value: "0" }, ["the beginning"]), ...some.map(option));
    const ends = some.map(({ onset, duration, text }) => option({ onset: onset + duration, text: duration ? `end of ${text}` : text }));
    byId("until").replaceChildren(make("option", { value: "" }, ["the end"]), ...ends);
  }

  // The stretch; where it would end before it begins, up to the end.
  chosen() {
    const from = Number(byId("since").value);
    const to = byId("until").value === "" ? this.seconds : Number(byId("until").value);
    if (to > from) return [from, Math.min(to, this.seconds)];
    byId("until").value = "";
    return [from, this.seconds];
  }
}
