import { lookOf } from "./colours.js";
import { make } from "./demo/make.js";

let made = 0;

// Radio buttons in a row: [[value, words]].
export function choice(name, options, chosen, tell) {
  const group = `choice-${++made}`;
  const labels = options.map(([value, words]) => {
    const input = make("input", { type: "radio", name: group, value });
    input.checked = value === chosen;
    input.addEventListener("change", () => tell(value));
    return make("label", {}, [input, words]);
  });
  return make("fieldset", { class: "choice" }, [make("legend", {}, [name]), make("div", {}, labels)]);
}

export function button(words, label, act) {
  const own = make("button", { type: "button", class: "button small", "aria-label": label }, [words]);
  own.addEventListener("click", act);
  return own;
}

export function zoomButtons(view) {
  return make("div", { class: "row" }, [
    button("+", "Zoom in", () => view.zoom("x", 1 / 1.6)),
    button("−", "Zoom out", () => view.zoom("x", 1.6)),
    button("Reset", "Show all again", () => view.reset()),
  ]);
}

// A button for each row that shows it or not; `shown` is a Set of rows that is changed,
// `over` is told the row that is pointed at, or null; `inks`: rows have colours.
export function legend(rows, shown, tell, { over = () => {}, inks = true } = {}) {
  const buttons = rows.map((row, at) => {
    const { dashed } = lookOf(at);
    const swatch = make("span", { class: `swatch${dashed ? " dashed" : ""}`, "aria-hidden": "true" });
    if (!row.state) swatch.style.setProperty("--ink", `var(--series-${(at % 8) + 1})`);
    const words = row.state ? `${row.name} (${row.state})` : row.name;
    const own = make("button", { type: "button", "aria-pressed": String(shown.has(at)), title: words }, [...(inks ? [swatch] : []), make("span", {}, [words])]);
    own.disabled = Boolean(row.state);
    own.addEventListener("click", () => {
      if (!shown.delete(at)) shown.add(at);
      update();
    });
    for (const [event, value] of [["pointerenter", at], ["focus", at], ["pointerleave", null], ["blur", null]]) {
      own.addEventListener(event, () => over(value));
    }
    return own;
  });
  const update = () => {
    buttons.forEach((own, at) => own.setAttribute("aria-pressed", String(shown.has(at))));
    tell();
  };
  const every = (fill) => () => {
    shown.clear();
    if (fill) rows.forEach((row, at) => row.state || shown.add(at));
    update();
  };
  const parts = [make("div", { class: "legend", role: "group", "aria-label": "Channels" }, buttons)];
  if (rows.length > 2) {
    parts.push(make("div", { class: "row" }, [button("All", "Show all channels", every(true)), button("None", "Show no channel", every(false))]));
  }
  return parts;
}

// A table that is folded away, for who reads rather than looks.
export function table(title, heads, lines) {
  const head = make("tr", {}, heads.map((words) => make("th", { scope: "col" }, [words])));
  const body = lines.map((cells) => make("tr", {}, cells.map((cell, at) => make(at ? "td" : "th", at ? { class: "number" } : { scope: "row" }, [cell]))));
  const own = make("table", { class: "table" }, [make("thead", {}, [head]), make("tbody", {}, body)]);
  const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, [own]);
  return make("details", {}, [make("summary", {}, [title]), box]);
}
