// The examples of the list; each is a Python file in examples/, shown as it stands.

export const EXAMPLES = [
  { id: "graph", title: "A graph, run and explained" },
  { id: "peaks", title: "Welch peaks of an EEG, with a plot" },
  { id: "devices", title: "GraphDevices: where would the graph run?" },
  { id: "decisions", title: "Decisions and cost models" },
  { id: "custom_op", title: "A custom op" },
  { id: "spectrogram", title: "A spectrogram, as a heat map" },
  { id: "benchmark", title: "NumPy and WebGPU compared" },
  { id: "profile", title: "Where the time of a run goes" },
  { id: "errors", title: "Errors for invalid input" },
];

// Their texts by id, all of them: a choice is then shown at once.
export async function sources() {
  const texts = await Promise.all(EXAMPLES.map(({ id }) => source(id)));
  return new Map(EXAMPLES.map(({ id }, at) => [id, texts[at]]));
}

async function source(id) {
  const answer = await fetch(new URL(`examples/${id}.py`, import.meta.url));
  if (!answer.ok) throw new Error(`the example ${id} could not be loaded (${answer.status})`);
  return answer.text();
}
