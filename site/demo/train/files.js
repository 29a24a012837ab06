// The trained network as a file, there and back.
import { printable } from "../printable.js";

const MOST = 64 << 20; // bytes of a file that is opened

export function files({ page, ask, settings, began, halt, show }) {
  const at = (id) => document.getElementById(id);
  const part = {
    isOpen: false, // a network of a file judges
    letGo() {
      if (part.isOpen) said("");
      part.isOpen = false;
    },
  };
  const said = (words) => (at("file-said").textContent = words);

  async function save(call, name, type) {
    page.settled("file");
    try {
      const { buffers } = await ask(call);
      const url = URL.createObjectURL(new Blob([buffers[0]], { type }));
      const link = document.createElement("a");
      link.href = url;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      said(`${name}: ${Math.ceil(buffers[0].length / 1000)} kB`);
    } catch (error) {
      page.failure(error, { title: `${name} cannot be saved`, key: "file" });
    }
  }

  async function open(file) {
    const name = printable(file.name);
    page.settled("file");
    try {
      if (file.size > MOST) throw new Error(`It has ${file.size.toLocaleString("en")} bytes; at most ${MOST.toLocaleString("en")} are supported`);
      const raw = await file.arrayBuffer();
      if (/\.npz$/i.test(file.name)) await state(name, raw);
      else await network(name, raw);
    } catch (error) {
      said("");
      page.failure(error, { title: `${name} cannot be opened`, key: "file" });
    }
  }

  async function network(name, raw) {
    await halt();
    const { result } = await ask("open_network", { name }, [raw]);
    part.isOpen = true;
    show(result.steps ? "paused" : "ready");
    said(`${name}, with ${result.weights.toLocaleString("en")} weights, is used for listening until a training continues`);
  }

  async function state(name, raw) {
    await halt();
    const { kind, hidden, seed } = settings.now();
    const { result, buffers } = await ask("open_state", { kind, hidden, seed }, [raw]);
    part.isOpen = false;
    began(result.steps, new Float64Array(buffers[0].buffer));
    show("paused");
    said(`${name}: continue from step ${result.steps.toLocaleString("en")}`);
  }

  at("save").addEventListener("click", () => save("save_network", "vowels.rlxg", "application/octet-stream"));
  at("save-state").addEventListener("click", () => save("save_state", "vowels-state.npz", "application/zip"));
  at("open").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) open(file);
  });
  return part;
}
