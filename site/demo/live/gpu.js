// The GPU's fate on this page: there or not, lost, opened again, measured.

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const byId = (id) => document.getElementById(id);
const BUDGET_S = 4; // per engine; one measurement more may run over it

export class GpuCare {
  constructor({ page, rlx, loop }) {
    Object.assign(this, { page, rlx, loop });
    this.fallback = "";
    this.engine = "";
  }

  // Say once what there is, and offer what it allows.
  greet() {
    const { page, rlx } = this;
    const option = document.querySelector('input[name="device"][value="webgpu"]');
    option.disabled = !page.gpu.there;
    byId("lose").disabled = !page.gpu.there;
    byId("lose").addEventListener("click", () => this.lose());
    byId("measure").addEventListener("click", () => this.measure());
    if (!rlx.facts.jspi) {
      byId("measure").disabled = true;
      byId("measure-said").textContent =
        "Measuring needs stack switching (JSPI), which this browser does not support; “auto” uses assumed speeds.";
    }
    if (!page.gpu.there) {
      page.problem({
        title: "WebGPU is not available: everything runs on NumPy",
        text: `${capital(page.gpu.why)}. The numbers are the same; large jobs are slower.`,
        mild: true,
        key: "no-gpu",
      });
    }
  }

  // Told what each answer says of where it ran.
  saw({ engine, fallback }) {
    if (engine !== this.engine) {
      this.engine = engine;
      this.page.engine(engine);
    }
    if (fallback === this.fallback) return;
    this.fallback = fallback;
    if (!fallback) return this.page.settled("lost");
    this.page.problem({
      title: "The GPU failed: continuing with NumPy",
      text: `${capital(fallback)}. NumPy computes the spectrum from now on.`,
      actions: [{ label: "Try the GPU again", run: () => this.reopen() }],
      mild: true,
      key: "lost",
    });
    this.page.say(`Running on ${engine}, instead of the GPU`);
  }

  async lose() {
    await this.alone("lose", "The GPU is being lost", "lose").then(
      () => this.page.say("The GPU device was destroyed; the next spectrum on it will fail"),
    );
  }

  async reopen() {
    this.page.say("Opening the GPU again");
    const answer = await this.alone("reopen", "The GPU could not be opened again", "lost");
    if (!answer) return;
    const { engine, why } = answer.result;
    if (why) {
      this.fallback = why;
      this.page.problem({
        title: "The GPU could not be opened again",
        text: `${capital(why)}.`,
        actions: [{ label: "Try the GPU again", run: () => this.reopen() }],
        mild: true,
        key: "lost",
      });
    } else {
      this.fallback = "";
      this.page.settled("lost");
      this.page.say(`${engine} is open again`);
    }
  }

  async measure() {
    byId("measure").disabled = true;
    const devices = this.page.gpu.there ? ["cpu", "webgpu"] : ["cpu"];
    const answer = await this.alone("measure", "The engines could not be measured", "measure", { devices, budget_s: BUDGET_S });
    byId("measure").disabled = false;
    if (answer) this.page.say("Measured: “auto” now uses measurements of this machine");
  }

  // A line of progress from Python.
  heard({ measuring }) {
    if (measuring) this.page.say(`Measuring ${measuring}`);
  }

  // A call between frames; its failure is shown and gives null.
  async alone(name, title, key, args = {}) {
    try {
      return await this.loop.alone(() => this.rlx.call(name, args));
    } catch (error) {
      this.page.failure(error, { title, key });
      return null;
    }
  }
}
