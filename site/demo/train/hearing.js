// What the network hears: a test example that is played, or the microphone as it goes.
import { openMicrophone } from "../live/microphone.js";
import { make } from "../make.js";

const SECONDS = 0.6; // of an example
const HEARD = 0.1; // seconds of sound that are asked of at once
const EVERY_MS = 120;
const KEPT = 0.5; // of the bars before, so that they do not flicker

export function hearing({ page, ask, names, settings, lost }) {
  const at = (id) => document.getElementById(id);
  const bars = names.map(([name, word]) => {
    const fill = make("div");
    const label = make("dt", {}, [name, " ", make("i", {}, [`as in ${word}`])]);
    const value = make("span", { class: "value" }, ["–"]); // no <output>: it would be spoken
    const node = make("dd", {}, [make("div", { class: "track", "aria-hidden": "true" }, [fill]), value]);
    at("bars").append(label, node);
    return { label, fill, value };
  });
  let seed = 0;
  let context = null;
  let microphone = null;
  let shares = null; // that the bars show

  function draw(found) {
    shares = found;
    const best = Math.max(...found);
    bars.forEach(({ label, fill, value }, k) => {
      fill.style.width = `${100 * found[k]}%`;
      value.textContent = `${(100 * found[k]).toFixed(0)} %`;
      value.title = found[k].toPrecision(7);
      label.toggleAttribute("data-best", found[k] === best);
    });
  }

  function said(words) {
    if (at("hear-said").textContent !== words) at("hear-said").textContent = words;
  }

  const nameOf = (found) => names[found.indexOf(Math.max(...found))][0];

  function clear() {
    shares = null;
    bars.forEach(({ label, fill, value }) => {
      fill.style.width = "0";
      value.textContent = "–";
      value.removeAttribute("title");
      label.removeAttribute("data-best");
    });
    said("Nothing has been heard yet");
  }

  async function example() {
    page.settled("hear");
    try {
      const { result, buffers } = await ask("example", { seed: ++seed, seconds: SECONDS, device: settings.device });
      at("bars").dataset.seed = seed; // which example it was
      play(new Float32Array(buffers[0].buffer), result.fs);
      if (result.lost) return lost(result);
      if (!result.probabilities) return said("There is no network yet");
      draw(result.probabilities);
      const name = nameOf(result.probabilities);
      const verdict = name === result.vowel ? "and the network recognises it" : `but the network recognises “${name}”`;
      said(`${result.speaker[0].toUpperCase()}${result.speaker.slice(1)} says “${result.vowel}” as in ${result.word}, ${verdict}`);
    } catch (error) {
      page.failure(error, { title: "The example cannot be played", key: "hear" });
    }
  }

  function play(samples, fs) {
    context ??= new AudioContext();
    const sound = context.createBuffer(1, samples.length, fs);
    const edge = Math.round(0.02 * fs); // without a click at its ends
    for (let n = 0; n < edge; n++) {
      samples[n] *= n / edge;
      samples[samples.length - 1 - n] *= n / edge;
    }
    sound.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(context, { buffer: sound });
    source.connect(context.destination);
    source.start();
  }

  async function listen() {
    if (microphone) return deaf();
    page.settled("hear");
    at("listen").disabled = true;
    try {
      microphone = await openMicrophone({ onEnded: deaf });
      at("listen").textContent = "Stop listening";
      at("listen").setAttribute("aria-pressed", "true");
      hearOn(microphone);
    } catch (error) {
      page.failure(error, { title: "The microphone cannot be used", key: "hear" });
    }
    at("listen").disabled = false;
  }

  function deaf() {
    microphone?.stop();
    microphone = null;
    at("listen").textContent = "Listen to the microphone";
    at("listen").setAttribute("aria-pressed", "false");
  }

  async function hearOn(mic) {
    said("Listening");
    while (microphone === mic) {
      const wait = new Promise((next) => setTimeout(next, EVERY_MS));
      const samples = document.hidden ? null : mic.ring.latest(Math.ceil(HEARD * mic.fs), [0]);
      try {
        if (samples) hear((await ask("listen", { fs: mic.fs, device: settings.device }, [samples.buffer])).result);
      } catch (error) {
        page.failure(error, { title: "The sound cannot be classified", key: "hear" });
        deaf();
      }
      await wait;
    }
  }

  function hear(result) {
    const { quiet, probabilities } = result;
    if (result.lost) lost(result);
    if (!microphone || result.lost) return;
    if (quiet) return said("Listening: the sound is too quiet");
    if (!probabilities) return said("There is no network yet");
    draw(shares ? shares.map((share, k) => KEPT * share + (1 - KEPT) * probabilities[k]) : probabilities);
    said(`Listening: “${nameOf(shares)}”`);
  }

  at("example").addEventListener("click", example);
  at("listen").addEventListener("click", listen);

  return {
    clear,
    allow(there) {
      for (const id of ["example", "listen"]) at(id).disabled = !there;
      if (!there) deaf();
    },
  };
}
