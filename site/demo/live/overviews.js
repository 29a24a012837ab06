// When the whole of a recording is read for its overview: of the marked channel, between
// frames, and again when another channel or another estimate is looked at.
import { Overview } from "./overview.js";

const REST_MS = 400; // a channel that stays marked so long is read

const byId = (id) => document.getElementById(id);

export class Overviews {
  constructor({ page, rlx, loop, sources }) {
    Object.assign(this, { page, rlx, loop, sources });
    this.picture = new Overview(byId("overview"), byId("overview-said"), { jump: (seconds) => sources.jump(seconds) });
    this.wanted = ""; // of which channel and estimate the picture is, or will be
    this.channel = -1;
    this.timer = 0;
  }

  // Another signal, or another group of channels.
  changed() {
    const { current, recording } = this.sources;
    byId("of-overview").hidden = !current || current !== recording;
    this.wanted = "";
    clearTimeout(this.timer);
    this.page.settled("overview");
    this.picture.clear();
  }

  noted() {
    this.picture.noted(this.sources.recording.notes);
  }

  // A picture was drawn, of a recording perhaps. Where the strongest channel is marked, the
  // overview stays with the one that it began with: another is the strongest now and then.
  saw({ rows }, view, { nperseg, window }) {
    const { current, recording } = this.sources;
    if (!current || current !== recording) return;
    const stays = byId("shown").value === "" && this.wanted !== "" && rows.includes(this.channel);
    const channel = stays ? this.channel : rows[view.shown];
    this.channel = channel;
    const wanted = JSON.stringify([recording.path, recording.group, channel, nperseg, window]);
    if (wanted !== this.wanted) {
      const first = this.wanted === "";
      this.wanted = wanted;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.read(wanted, channel, { nperseg, window }), first ? 0 : REST_MS);
    }
    this.picture.show(...recording.window, view);
  }

  async read(wanted, channel, how) {
    const { recording } = this.sources;
    const { fs, group } = recording;
    byId("overview-channel").textContent = recording.channels[channel];
    this.picture.begin({
      seconds: recording.seconds, notes: recording.notes ?? [], gaps: recording.gaps.map((gap) => gap.map((at) => at / fs)),
      unit: recording.units[channel],
    });
    try {
      for (let first = 0, columns = 1; first < columns;) {
        const answer = await this.loop.alone(() =>
          (wanted === this.wanted ? this.rlx.call("overview", { group, channel, first, ...how }) : null));
        if (!answer || wanted !== this.wanted) return;
        this.picture.add(answer.result, answer.buffers[0]);
        ({ next: first, columns } = answer.result);
        await twoFrames(); // one for the loop to begin a frame, one for it to be drawn
      }
    } catch (error) {
      if (wanted === this.wanted) this.page.failure(error, { title: "The overview cannot be computed", mild: true, key: "overview" });
    }
  }
}

function twoFrames() {
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}
