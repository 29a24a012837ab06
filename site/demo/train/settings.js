// What the visitor sets, and what of it can change while a network is on its way.

const RATES = { sgd: "0.03", adam: "0.003", adamw: "0.003" };
const FIXED = ["kind", "hidden"]; // the state of a network is built for them
const SEED = 0;

const at = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

export class Settings {
  constructor() {
    at("kind").addEventListener("change", () => {
      if (Object.values(RATES).includes(at("rate").value)) at("rate").value = RATES[at("kind").value];
    });
    this.rate = Number(at("rate").value);
  }

  get steps() {
    return Number(at("steps").value);
  }

  get device() {
    return chosen("device");
  }

  set device(name) {
    document.querySelector(`input[name="device"][value="${name}"]`).checked = true;
  }

  // What Python is asked with. Of a rate that is half typed the one before it counts.
  now() {
    if (at("rate").validity.valid) this.rate = Number(at("rate").value);
    return {
      kind: at("kind").value,
      hidden: Number(at("hidden").value),
      batch: Number(at("batch").value),
      data: chosen("data"),
      device: this.device,
      rate: this.rate,
      seed: SEED,
    };
  }

  // What a step is compiled for.
  key({ kind, hidden, batch, data, device }) {
    return [kind, hidden, batch, data, device].join();
  }

  // Are they such that a training can begin? The browser says what is not.
  check() {
    return at("rate").reportValidity() && at("steps").reportValidity();
  }

  lock(on) {
    for (const id of FIXED) at(id).disabled = on;
  }

  offer(gpu) {
    document.querySelector('input[name="device"][value="webgpu"]').disabled = !gpu.there;
    this.device = gpu.there ? "webgpu" : "cpu";
  }
}
