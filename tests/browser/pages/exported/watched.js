// Before a page's own: how many buffers there are, and every device that was opened.
globalThis.buffers = { made: 0, destroyed: 0 };
globalThis.devices = [];
const wrap = (owner, name, around) => {
  const inner = owner.prototype[name];
  owner.prototype[name] = function (...given) { return around(() => inner.apply(this, given), this, given); };
};
if (globalThis.GPUDevice) { // there is none in the blank page before
  wrap(GPUDevice, "createBuffer", (go) => { buffers.made += 1; return go(); });
  wrap(GPUBuffer, "destroy", (go) => { buffers.destroyed += 1; return go(); });
  wrap(GPUAdapter, "requestDevice", async (go) => { const made = await go(); devices.push(made); return made; });
}
