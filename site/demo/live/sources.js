// Which signal is shown, and the change from one to another: whoever was there before
// lets go of what it holds.
import { printable } from "../printable.js";
import { make } from "../shell.js";
import { openMicrophone } from "./microphone.js";
import { Notes } from "./notes.js";
import { clockOf, inBytes, openRecording } from "./recording.js";
import { Synthetic } from "./synthetic.js";

const MOST_PICKED = 64; // channels of a recording that are taken unasked
const MOST_LISTED = 256; // groups, and channels that were left out

const byId = (id) => document.getElementById(id);

export class Sources {
  // changed()  another signal is shown;  moved()  another moment of it;  noted()  its
  // annotations are known
  constructor({ page, rlx, loop, settings, changed, moved, noted }) {
    Object.assign(this, { page, rlx, loop, settings, changed, moved, noted });
    this.current = null;
    this.recording = null; // stays open while another signal is shown
    this.file = null; // the one of the recording
    this.unrated = null; // one whose rate was asked for
    this.asked = 0; // the newest wish; what an older one brings is let go
    this.notes = new Notes({
      jump: (seconds) => this.jump(seconds),
      stretch: (from, to) => {
        this.recording.stretch(from, to);
        this.moved();
      },
    });
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
    this.page.problem({ title: "The microphone was disconnected", text: "The device was removed, or its permission was revoked.", mild: true, key: "microphone" });
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
    this.read(opened);
    return opened;
  }

  // What was noted, which takes a walk through the file: told when it is known.
  async read(recording) {
    recording.notes = [];
    this.notes.clear();
    try {
      const { result } = await this.loop.alone(() => (this.recording === recording ? this.rlx.call("annotations", {}) : { result: null }));
      if (!result || this.recording !== recording) return;
      recording.notes = result.notes.map(([onset, duration, text]) => ({ onset, duration, text, shown: printable(text, 80) }));
      this.notes.show({ count: result.count, notes: recording.notes }, recording.seconds);
      this.noted();
    } catch (error) {
      this.page.failure(error, { title: "The annotations cannot be read", mild: true, key: "file" });
    }
  }

  // To another moment of the recording, which is then played from there.
  jump(seconds) {
    const { recording } = this;
    recording.at = Math.min(Math.max(0, seconds), recording.seconds);
    if (recording.at < recording.from || recording.at >= recording.to) this.unbound();
    this.moved();
    this.saw(true);
  }

  // All of it is played again.
  unbound() {
    Object.assign(this.recording, { from: 0, to: this.recording.seconds });
    byId("since").value = "0";
    byId("until").value = "";
  }

  askRate(file, why) {
    this.unrated = file;
    byId("asked").hidden = false;
    byId("asked-why").textContent = `The sampling rate of ${printable(file.name)} is unknown (${why}).`;
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
    const { format, fs, channels, seconds, units } = this.recording;
    const unit = new Set(units).size === 1 && units[0] ? ` in ${units[0]}` : "";
    const begun = this.recording.timeAt(0);
    const gaps = this.recording.gaps.length;
    byId("file-facts").textContent =
      `${format}, ${inBytes(this.file.size)}: ${counted(channels)}${unit} at ${Number(fs.toPrecision(6))} Hz, ${clockOf(seconds)}` +
      `${gaps ? ` with ${gaps === 1 ? "a gap" : `${gaps} gaps`}` : ""}${begun && `, started at ${begun}`}`;
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
      this.settings.offer(next.channels, next === this.recording ? MOST_PICKED : Infinity, next.units);
    }
    byId("picture-title").textContent = next?.title ?? "Recording";
    this.changed();
  }

  rest(resting) {
    this.current?.rest?.(resting).catch((error) => this.page.failure(error));
  }

  // A picture was drawn: where in the recording are we?
  saw(jumped = false) {
    const { current } = this;
    if (!current || current !== this.recording) return;
    const slider = byId("position");
    if (jumped || !slider.matches(":active")) slider.value = String((1000 * current.at) / current.seconds);
    const time = current.timeAt(current.at);
    const said = `${clockOf(current.at)} of ${clockOf(current.seconds)}${time && ` · ${time}`}`;
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
      this.notes.offer();
      this.facts();
      this.take(this.recording, true);
    });
    byId("position").addEventListener("input", () => {
      const { recording } = this;
      recording.at = (byId("position").valueAsNumber / 1000) * recording.seconds;
      if (recording.at < recording.from || recording.at >= recording.to) this.unbound();
      this.moved();
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
