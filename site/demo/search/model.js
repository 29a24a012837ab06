// The model's files: of this site, where it was built with them, or of the visitor.

const MODELS = new URL("../../models/", import.meta.url);
const HERE = new URL("minilm/", MODELS);
export const WANTED = ["model.safetensors", "config.json", "tokenizer.json"];

// The site's own: [[name, ArrayBuffer], …], or null where it has none.
//   onBytes(bytes so far, bytes of all)
export async function fetched(onBytes) {
  const answer = await fetch(new URL("models.json", MODELS)).catch(() => null);
  const { minilm: files } = answer?.ok ? await answer.json() : {};
  if (!files) return null;
  const all = Object.values(files).reduce((sum, n) => sum + n, 0);
  let so_far = 0;
  const got = [];
  for (const [name, size] of Object.entries(files)) {
    got.push([name, await whole(name, size, (n) => onBytes((so_far += n), all))]);
  }
  return got;
}

async function whole(name, size, onBytes) {
  const answer = await fetch(new URL(name, HERE));
  if (!answer.ok) throw new Error(`${name} of the model could not be loaded (${answer.status} ${answer.statusText})`);
  const into = new Uint8Array(size);
  let at = 0;
  for (const reader = answer.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new Error(`${name} of the model has more than the ${size} bytes that this site lists`);
    into.set(value, at);
    at += value.length;
    onBytes(value.length);
  }
  if (at !== size) throw new Error(`${name} of the model ended after ${at} of ${size} bytes; load the page again`);
  return into.buffer;
}

// Those that somebody chose or dropped, the same shape; an Error that names what is missing.
export async function chosen(files) {
  const byName = new Map(Array.from(files, (file) => [file.name, file]));
  const missing = WANTED.filter((name) => !byName.has(name));
  if (missing.length) {
    const given = [...byName.keys()].join(", ") || "no file";
    throw new Error(`${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} missing: ${given} was given. Choose all ${WANTED.length} at once`);
  }
  const wanted = [...byName].filter(([name]) => /\.(safetensors|json)$/.test(name));
  return Promise.all(wanted.map(async ([name, file]) => [name, await file.arrayBuffer()]));
}
