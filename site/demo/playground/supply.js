// Rooms for programs, one for each run: a Worker with Python in it. What a program did is
// gone with its room.
//
// Starting one takes seconds, so some are kept ready. They are started while nothing runs,
// one after the other; where memory is small there is one, else two.
import { start } from "../rlx.js";

const PYTHON = ["plots.py", "playground.py"];
const SMALL_GB = 4;
const DEPTH = (navigator.deviceMemory ?? 8) <= SMALL_GB ? 1 : 2;

export class Supply {
  constructor() {
    this.rooms = []; // promises; the last may be a start under way
    this.starting = false;
    this.resting = true;
  }

  // A promise of one, which is to be stopped by whoever took it: {rlx, hear}, where `hear`
  // is called with what the program says. It rejects where Python could not start.
  take() {
    this.resting = false;
    return this.rooms.shift() ?? made(start);
  }

  // The run is over: time to start others. `unused` is a room that was taken in vain.
  rest(unused = null) {
    if (unused) this.rooms.push(Promise.resolve(unused));
    this.resting = true;
    this.fill();
  }

  // Start one, by a function like start() of rlx.js; those after it follow by themselves.
  fill(by = start) {
    if (!this.resting || this.starting || this.rooms.length >= DEPTH) return;
    this.starting = true;
    const room = made(by);
    this.rooms.push(room);
    room.then(() => this.settled(), () => this.settled(room));
  }

  // One that failed is not tried again before somebody asks.
  settled(failed = null) {
    this.starting = false;
    if (failed) this.rooms = this.rooms.filter((room) => room !== failed);
    else this.fill();
  }
}

async function made(by) {
  const room = { hear() {} };
  const onPost = (data, arrays) => room.hear(data, arrays);
  room.rlx = await by({ python: PYTHON, sealed: true, onPost });
  if (!room.rlx) throw new Error("Python could not be started");
  await room.rlx.call("run", { code: "" }); // imports what every run needs
  return room;
}
