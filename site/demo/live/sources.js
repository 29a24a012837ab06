// Which signal is shown, and the change from one to another: whoever was there before
// lets go of what it holds.
import { printable } from "../printable.js";
import { make } from "../shell.js";
import { openMicrophone } from "./microphone.js";
import { inBytes, openRecording } from "./recording.js";
import { Synthetic } from "./synthetic.js";

const MOST_PICKED = 64; // channels of a recording that are taken unasked
const MOST_LISTED = 256; // groups, and channels that were left out

const byId = (id) => document.getElementById(id);

export class Sources {
  constructor({ page, rlx, loop, settings, changed }) {
    Object.assign(this, { page, rlx, loop, settings, changed });
    this.current = null;
    this.recording = null; // stays open while another signal is shown
    this.file = null; // the one of the recording
    this.unrated = null; // one whose rate was asked for
    this.asked = 0; // the newest wish; what an older one brings is let go
    if (rlx) this.listen();
  }

  // --- synthetic --------------------------------------------------------------------

  synthetic({ suit = true } = {}) {
    this.asked++;
    this.page.settled("file");
    this.settings.source = "synthetic";
    this.settings.showSource("synthetic");
    const made = new Synthetic(Number(byId("channels").value), this.settings.amplitudes);
    this.take(made, suit);
    this.page.say("Showing the synthetic EEG");
  }

  // --- microphone --------------------------------------------------------------------

  async microphone() {
    const wish = ++this.asked;
    this.settings.showSource("microphone");
    this.page.settled("microphone");
    this.page.settled("file");
    this.page.say("Waiting for the permission to listen");
    try {
      const opened = await openMicrophone({ onEnded: () => this.silent(opened) });
      if (wish !== this.asked) return void (await opened.stop());
      this.take(opened, true);
      this.page.say("Listening to the microphone");
    } catch (error) {
      if (wish !== this.asked) return;
      this.page.problem({ title: "No microphone", text: error.message, mild: true, key: "microphone" });
      this.back();
    }
  }

  silent(microphone) {
    if (this.current !== microphone) return;
    this.page.problem({ title: "The microphone went away", text: "It was disconnected, or its permission was taken back.", mild: true, key: "microphone" });
    this.back();
  }

  // To the signal that needs nothing.
  back() {
    this.synthetic({ suit: this.current?.title !== "Synthetic EEG" });
  }

  // --- recordings --------------------------------------------------------------------

  recordings() {
    this.asked++;
    this.settings.source = "recording";
    this.settings.showSource("recording");
    if (this.recording) this.take(this.recording, true);
    else this.take(null, false);
  }

  async open(file, how = {}) {
    this.recordings();
    const wish = this.asked;
    this.page.settled("file");
    const name = printable(file.name);
    this.page.say(`Opening ${name}`);
    byId("asked").hidden = true;
    try {
      const { needsRate } = await this.loop.alone(() => this.replace(file, how, wish));
      if (needsRate) this.askRate(file, needsRate);
      else this.page.say(`Playing ${name}`);
    } catch (error) {
      this.page.failure(error, { title: `${name} cannot be shown`, detail: "", key: "file" });
      this.page.say(`${name} cannot be shown`);
    }
  }

  // Done between two frames: none may read the old recording from the new file.
  async replace(file, how, wish) {
    const opened = await openRecording(this.rlx, file, how);
    if (opened.needsRate) return opened;
    const before = this.recording;
    this.recording = opened;
    this.file = file;
    this.describe();
    if (wish === this.asked || (before && this.current === before)) this.take(opened, true);
    if (before) await this.rlx.unmount(before.path);
    return opened;
  }

  askRate(file, why) {
    this.unrated = file;
    byId("asked").hidden = false;
    byId("asked-why").textContent = `${printable(file.name)} does not tell its sampling rate (${why}).`;
    byId("rate").focus();
    this.page.say("The sampling rate is needed");
  }

  describe() {
    const { file, recording } = this;
    const { format, groups, leftOut, warnings } = recording;
    byId("opened").hidden = false;
    byId("file-name").textContent = printable(file.name);
    byId("group").replaceChildren(...groups.slice(0, MOST_LISTED).map(({ fs, channels }, at) =>
      make("option", { value: String(at) }, [`${counted(channels)} at ${Number(fs.toPrecision(6))} Hz`])));
    byId("group-field").hidden = groups.length < 2;
    byId("layout-field").hidden = format !== "NPY" && format !== "NPZ";
    byId("file-warnings").hidden = warnings.length === 0;
    byId("file-warnings").replaceChildren(...warnings.map((text) => make("li", {}, [printable(text, 1000)])));
    byId("left-out").hidden = leftOut.length === 0;
    const listed = leftOut.slice(0, MOST_LISTED).map(([name, why]) => make("li", {}, [make("bdi", {}, [name]), `: ${why}`]));
    const more = leftOut.length - listed.length;
    if (more) listed.push(make("li", {}, [`… and ${more.toLocaleString("en")} more`]));
    byId("left-out-list").replaceChildren(...listed);
    this.facts();
  }

  facts() {
    const { format, fs, channels, seconds } = this.recording;
    byId("file-facts").textContent =
      `${format}, ${inBytes(this.file.size)}: ${counted(channels)} at ${Number(fs.toPrecision(6))} Hz, ${clock(seconds)}`;
  }

  // --- the change -----------------------------------------------------------------------

  take(next, suit) {
    const before = this.current;
    this.current = next;
    if (before && before !== next) {
      Promise.resolve(before.stop()).catch((error) => this.page.failure(error));
    }
    if (next) {
      if (suit) this.settings.suit(next);
      this.settings.offer(next.channels, next === this.recording ? MOST_PICKED : Infinity);
    }
    byId("picture-title").textContent = next?.title ?? "Recording";
    this.changed();
  }

  rest(resting) {
    this.current?.rest?.(resting).catch((error) => this.page.failure(error));
  }

  // A picture was drawn: where in the recording are we?
  saw() {
    const { current } = this;
    if (!current || current !== this.recording) return;
    const slider = byId("position");
    if (!slider.matches(":active")) slider.value = String((1000 * current.at) / current.seconds);
    const said = `${clock(current.at)} of ${clock(current.seconds)}`;
    if (byId("position-said").textContent !== said) {
      byId("position-said").textContent = said;
      slider.setAttribute("aria-valuetext", said);
    }
  }

  listen() {
    const act = { synthetic: () => this.synthetic(), microphone: () => this.microphone(), recording: () => this.recordings() };
    for (const input of document.querySelectorAll('input[name="source"]')) {
      input.addEventListener("change", () => act[input.value]());
    }
    byId("channels").addEventListener("change", () => this.synthetic({ suit: false }));
    byId("file").addEventListener("change", (event) => {
      const [file] = event.target.files;
      if (file) this.open(file);
      event.target.value = ""; // the same file may be chosen again
    });
    byId("rate-given").addEventListener("click", () => this.rateGiven());
    byId("rate").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.rateGiven();
    });
    byId("layout").addEventListener("change", () => this.open(this.file, { fs: this.recording.fs, layout: byId("layout").value }));
    byId("group").addEventListener("change", () => {
      this.recording.choose(Number(byId("group").value));
      this.facts();
      this.take(this.recording, true);
    });
    byId("position").addEventListener("input", () => {
      this.recording.at = (byId("position").valueAsNumber / 1000) * this.recording.seconds;
    });
    this.listenToDrops();
  }

  rateGiven() {
    const fs = byId("rate").valueAsNumber;
    if (fs > 0) this.open(this.unrated, { fs });
    else byId("rate").reportValidity();
  }

  listenToDrops() {
    const carries = (event) => event.dataTransfer?.types.includes("Files");
    let depth = 0;
    const over = (change) => {
      depth = Math.max(0, depth + change);
      document.body.classList.toggle("dropping", depth > 0);
    };
    addEventListener("dragenter", (event) => carries(event) && over(1));
    addEventListener("dragleave", (event) => carries(event) && over(-1));
    addEventListener("dragover", (event) => {
      if (carries(event)) event.preventDefault();
    });
    addEventListener("drop", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      over(-depth);
      const [file] = event.dataTransfer.files;
      if (file) this.open(file);
    });
  }
}

function counted(channels) {
  return channels.length === 1 ? "1 channel" : `${channels.length} channels`;
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const rest = `${hours ? two(Math.floor(whole / 60) % 60) : Math.floor(whole / 60)}:${two(whole % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}
