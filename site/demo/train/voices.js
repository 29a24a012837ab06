// The visitor's own voice: some seconds of each vowel, which are then trained on.
import { make } from "../make.js";
import { record } from "../notes/sounds.js";

const SECONDS = 3;

export function voices({ page, ask, names }) {
  const at = (id) => document.getElementById(id);
  let stop = null; // the recording that runs
  const rows = names.map(([name, word], vowel) => {
    const said = make("span", { class: "note" }, ["none yet"]);
    const button = make("button", { type: "button", class: "button small" }, ["Record"]);
    button.setAttribute("aria-label", `Record “${name}” as in ${word}`);
    button.addEventListener("click", () => take(vowel));
    at("own").append(make("li", {}, [make("span", {}, [`${name} `, make("span", { class: "note" }, [`as in ${word}`])]), said, button]));
    return { said, button };
  });

  function allow() {
    for (const { button } of rows) button.disabled = stop !== null;
  }

  async function take(vowel) {
    const { said } = rows[vowel];
    page.settled("voice");
    const before = said.textContent;
    stop = () => {};
    allow();
    try {
      const { samples, fs } = await recorded((s) => (said.textContent = `${s.toFixed(1)} of ${SECONDS} s`));
      said.textContent = before;
      const { result } = await ask("record", { vowel, fs }, [samples.buffer]);
      show(result);
      if (!result.frames) {
        page.problem({
          title: "The recording is too quiet",
          text: `Hold “${names[vowel][0]}” as in ${names[vowel][1]} for the whole ${SECONDS} seconds, near the microphone.`,
          mild: true,
          key: "voice",
        });
      } else page.say(`${result.frames} frames of “${names[vowel][0]}” were saved`);
    } catch (error) {
      said.textContent = before;
      page.failure(error, { title: "The voice cannot be recorded", key: "voice" });
    }
    stop = null;
    allow();
  }

  async function recorded(onSeconds) {
    let full = null;
    const ended = new Promise((done) => (full = done));
    stop = await record({
      onSeconds(s) {
        onSeconds(Math.min(s, SECONDS));
        if (s >= SECONDS) full();
      },
      onFull: full,
    });
    await ended;
    return stop();
  }

  function show({ own, made, speakers }) {
    own.forEach((frames, vowel) => {
      rows[vowel].said.textContent = frames ? `${frames} frames` : "none yet";
    });
    const there = own.some((frames) => frames > 0);
    for (const value of ["own", "both"]) {
      document.querySelector(`input[name="data"][value="${value}"]`).disabled = !there;
    }
    if (!there) document.querySelector('input[name="data"][value="made"]').checked = true;
    at("forget").disabled = !there;
    at("voices-said").textContent = `Synthetic voices: harmonics through the resonances of a vocal tract, ${made.train.toLocaleString("en")} examples of ${speakers[0]} speakers; ${made.test} of ${speakers[1]} others are held out.`;
  }

  at("forget").addEventListener("click", async () => show((await ask("forget")).result));
  return { show };
}
