// The rhythm of the page: one picture per frame of the screen, one call at a time.
//
// A frame that finds the call before it still running starts no second one; it is
// counted as dropped. While the tab is hidden nothing is asked and no time passes.

const LONGEST_STEP = 0.25; // seconds; a longer gap between frames is not caught up with
const KEPT = 60; // frames that the figures are medians of

export class Loop {
  // prepare()          → what to ask and whatever draw needs, or null: nothing to do now
  // compute(prepared)  → promise of the answer
  // draw(prepared, answer)
  // advance(seconds)   time went by
  // failed(error)      the loop halts until `wake`
  // rested(resting)    the tab was hidden or shown, or the visitor paused
  constructor(acts) {
    Object.assign(this, acts);
    this.interval = 0; // milliseconds from one start to the next, 0: every frame
    this.paused = false;
    this.halted = false;
    this.again = false; // one more picture is on its way, see `once`
    this.era = 0; // counts what `wake` was told of
    this.resting = true;
    this.busy = null; // promise of the call that runs
    this.locked = 0; // others who use Python by themselves, or wait for it
    this.turn = Promise.resolve(); // the last of them, done
    this.done = null; // {prepared, answer} to be drawn
    this.figures = new Figures();
    document.addEventListener("visibilitychange", () => this.settle());
  }

  start() {
    this.settle();
  }

  pause(paused) {
    this.paused = paused;
    this.settle();
  }

  // One more picture of a signal that stands still, of another moment of it.
  once() {
    if (!this.paused || this.again) return;
    this.again = true;
    Promise.resolve(this.busy).then(() => {
      this.again = false;
      if (this.paused && !this.busy && !this.locked) this.begin(performance.now());
    });
  }

  // Something changed that may mend what made it halt. A failure of a call from before
  // it halts nothing any more.
  wake() {
    this.era++;
    this.halted = false;
    this.settle();
  }

  settle() {
    const rest = document.hidden || this.paused || this.halted;
    if (rest === this.resting) return;
    this.resting = rest;
    this.rested(rest);
    if (rest) {
      cancelAnimationFrame(this.next);
      this.figures.pause();
    } else {
      this.last = performance.now();
      this.begun = -Infinity;
      this.next = requestAnimationFrame((now) => this.frame(now));
    }
  }

  frame(now) {
    this.next = requestAnimationFrame((later) => this.frame(later));
    this.advance(Math.min(LONGEST_STEP, Math.max(0, (now - this.last) / 1000)));
    this.last = now;
    if (this.done) this.show();
    if (this.busy) {
      if (this.interval === 0) this.figures.dropped++;
    } else if (!this.locked && now - this.begun >= this.interval - 2) {
      this.begin(now);
    }
  }

  show() {
    const { prepared, answer } = this.done;
    this.done = null;
    const before = performance.now();
    this.draw(prepared, answer);
    this.figures.note("draw", performance.now() - before);
    this.figures.drawn();
  }

  begin(now) {
    const before = performance.now();
    const prepared = this.prepare();
    if (!prepared) return;
    this.begun = now;
    this.figures.note("gather", performance.now() - before);
    const asked = performance.now();
    const { era } = this;
    this.busy = this.compute(prepared)
      .then((answer) => {
        this.figures.note("call", performance.now() - asked);
        for (const [name, ms] of Object.entries(answer.result.ms)) this.figures.note(name, ms);
        this.done = { prepared, answer };
        if (this.paused) this.show(); // what was asked before the pause is still wanted
      })
      .catch((error) => {
        if (era !== this.era) return;
        this.halted = true;
        this.settle();
        this.failed(error);
      })
      .finally(() => {
        this.busy = null;
      });
  }

  // Run `work` while no frame is being computed and none begins, one after the other.
  alone(work) {
    this.locked++;
    const done = this.turn.then(() => this.busy).then(work).finally(() => {
      this.locked--;
    });
    this.turn = done.catch(() => {}); // the caller hears of it
    return done;
  }
}

// Medians of the last frames, frames per second, and what was dropped.
class Figures {
  constructor() {
    this.kept = new Map();
    this.dropped = 0;
    this.count = 0;
    this.times = [];
  }

  note(name, ms) {
    if (!this.kept.has(name)) this.kept.set(name, []);
    const list = this.kept.get(name);
    list.push(ms);
    if (list.length > KEPT) list.shift();
  }

  drawn() {
    this.count++;
    this.times.push(performance.now());
    if (this.times.length > KEPT) this.times.shift();
  }

  // The gap of a rest is no frame time.
  pause() {
    this.times = [];
  }

  // Another job begins: its figures are its own.
  forget() {
    this.kept.clear();
    this.times = [];
    this.dropped = 0;
  }

  median(name) {
    const list = [...(this.kept.get(name) ?? [])].sort((a, b) => a - b);
    return list.length ? list[list.length >> 1] : NaN;
  }

  get perSecond() {
    const { times } = this;
    return times.length > 1 ? (1000 * (times.length - 1)) / (times.at(-1) - times[0]) : NaN;
  }
}
