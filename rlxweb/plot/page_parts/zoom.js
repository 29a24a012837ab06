// What of two axes is in view, moved by wheel, drag, pinch and keys. An axis is held in
// its own measure: a logarithmic one in logarithms.
const LEAST = 1e-4; // of the whole that can be in view
const STEP = 1.25;

export class View {
  // home  {x: [from, to], y: [from, to]};  logs  which axes are logarithmic
  constructor(home, logs = {}) {
    this.listeners = [];
    this.home = home;
    this.logs = logs;
    this.set();
  }

  set() {
    const measured = (axis) => this.home[axis].map((end) => (this.logs[axis] ? Math.log(end) : end));
    this.whole = { x: measured("x"), y: measured("y") };
    this.now = { x: [...this.whole.x], y: [...this.whole.y] };
  }

  // Begin anew with other ends, or other axes.
  renew(home, logs) {
    [this.home, this.logs] = [home, logs];
    this.set();
    this.tell();
  }

  // The ends that are in view, in their units.
  span(axis) {
    return this.now[axis].map((end) => (this.logs[axis] ? Math.exp(end) : end));
  }

  // From a value to its share of the axis, and back.
  share(axis, value) {
    const [from, to] = this.now[axis];
    return ((this.logs[axis] ? Math.log(Math.max(value, 1e-300)) : value) - from) / (to - from);
  }

  value(axis, share) {
    const [from, to] = this.now[axis];
    const own = from + share * (to - from);
    return this.logs[axis] ? Math.exp(own) : own;
  }

  get isWhole() {
    return ["x", "y"].every((axis) => this.now[axis].every((end, at) => Math.abs(end - this.whole[axis][at]) < 1e-12));
  }

  zoom(axis, factor, share = 0.5) {
    const [from, to] = this.now[axis];
    const [low, high] = this.whole[axis];
    const wide = Math.min(high - low, Math.max((to - from) * factor, (high - low) * LEAST));
    const begin = from + share * (to - from) - share * wide;
    this.now[axis] = held(begin, wide, low, high);
    this.tell();
  }

  move(axis, shares) {
    const [from, to] = this.now[axis];
    const [low, high] = this.whole[axis];
    this.now[axis] = held(from + shares * (to - from), to - from, low, high);
    this.tell();
  }

  reset() {
    this.now = { x: [...this.whole.x], y: [...this.whole.y] };
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

function held(begin, wide, low, high) {
  const from = Math.min(Math.max(begin, low), high - wide);
  return [from, from + wide];
}

// Lets a canvas steer a view; `boxOf` says where its axes lie.
export function steer(canvas, view, boxOf) {
  const shares = (event) => {
    const box = boxOf();
    return {
      x: (event.offsetX - box.left) / (box.right - box.left),
      y: (box.bottom - event.offsetY) / (box.bottom - box.top),
    };
  };
  canvas.addEventListener("wheel", (event) => {
    const at = shares(event);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      if (view.isWhole) return;
      view.move("x", (event.deltaX || event.deltaY) / 800);
    } else {
      if (view.isWhole && event.deltaY > 0) return; // nothing more is there: the page may scroll
      view.zoom(at.x < 0 ? "y" : "x", Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), at.x < 0 ? at.y : at.x);
    }
    event.preventDefault();
  }, { passive: false });
  fingers(canvas, view, shares);
  canvas.addEventListener("dblclick", () => view.reset());
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "+": () => view.zoom("x", 1 / STEP), "=": () => view.zoom("x", 1 / STEP),
      "-": () => view.zoom("x", STEP), "_": () => view.zoom("x", STEP),
      ArrowLeft: () => view.move("x", -0.1), ArrowRight: () => view.move("x", 0.1),
      ArrowUp: () => (event.shiftKey ? view.zoom("y", 1 / STEP) : view.move("y", 0.1)),
      ArrowDown: () => (event.shiftKey ? view.zoom("y", STEP) : view.move("y", -0.1)),
      0: () => view.reset(), Home: () => view.reset(),
    }[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  });
}

function fingers(canvas, view, shares) {
  const down = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    down.set(event.pointerId, shares(event));
    canvas.setPointerCapture(event.pointerId);
  });
  for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, (event) => down.delete(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    const before = down.get(event.pointerId);
    if (!before) return;
    const now = shares(event);
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    down.set(event.pointerId, now);
    if (!other) {
      view.move("x", before.x - now.x);
      view.move("y", before.y - now.y);
      return;
    }
    const [was, is] = [Math.abs(before.x - other.x), Math.abs(now.x - other.x)];
    if (was > 0.02 && is > 0.02) view.zoom("x", was / is, other.x);
  });
}
